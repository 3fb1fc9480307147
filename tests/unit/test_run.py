"""What programs that winlab starts are given."""

from __future__ import annotations

import subprocess  # noqa: TID251 - stands in for a process
from typing import Any

import pytest

from winlab import run


def test_programs_find_what_winlab_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def remember(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        seen.update(options["env"], words=words)
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(subprocess, "run", remember)
    monkeypatch.setattr(run.shutil, "which", lambda program, path: f"{path.split(':')[-1]}/{program}")
    monkeypatch.setenv("PATH", "/home/me/bin")
    run.run(["mke2fs"], env={"TMPDIR": "/work"})
    assert seen["words"] == ["/sbin/mke2fs"]
    assert seen["PATH"] == "/home/me/bin:/usr/local/sbin:/usr/sbin:/sbin"
    assert (seen["TMPDIR"], seen["LC_ALL"]) == ("/work", "C.UTF-8")
    run.run(["mke2fs"], env={"PATH": "/only"})
    assert seen["PATH"] == "/only"
