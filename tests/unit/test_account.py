"""The account that winlab works for: the caller of sudo, not root; and the owner of a lab."""

from __future__ import annotations

import os

import pytest

from winlab import account


@pytest.mark.parametrize(
    ("euid", "sudo", "uid"),
    [
        (1000, None, 1000),
        (0, None, 0),
        (0, "1000", 1000),
        (1001, "1000", 1001),  # 'sudo -u', or a variable that was left
        (0, "", 0),
        (0, "ann", 0),
    ],
)
def test_behind_sudo_it_is_the_caller(monkeypatch: pytest.MonkeyPatch, euid: int, sudo: str | None, uid: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    monkeypatch.delenv("SUDO_UID", raising=False)
    if sudo is not None:
        monkeypatch.setenv("SUDO_UID", sudo)
    assert account.uid() == uid


@pytest.mark.parametrize(
    ("owners", "others"),
    [
        ([], ""),
        ([None, None], ""),  # of an earlier version
        ([1234567], ""),
        ([1234567, 0], ""),  # 'apply' by another user added a node
        ([0, None, 7654321], "root and user 7654321"),
    ],
)
def test_a_lab_belongs_to_another_user_only_if_it_says_so(
    monkeypatch: pytest.MonkeyPatch, owners: list[int | None], others: str
) -> None:
    monkeypatch.setattr(account, "uid", lambda: 1234567)
    assert account.others(owners) == others


def test_users_have_names_where_they_are_known() -> None:
    assert (account.name(0), account.name(7654321), account.name(2**64)) == ("root", "user 7654321", f"user {2**64}")
