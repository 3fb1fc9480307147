"""The lab's kubeconfig, and merging it into a user's."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import certificates
import pytest
import yaml

from winlab.adapters.kube import kubeconfig, reduced
from winlab.errors import AccessError, ConflictError, NotFoundError, UsageError
from winlab.lab_folder import LabFolder

IDENTITY = reduced.identity(certificates.admin(), "controller-1")
NETWORK = "192.0.2.0/24"
OWN = kubeconfig.for_lab(IDENTITY, "lab", "192.0.2.1:6443", NETWORK)
PERSONS = """# my clusters
apiVersion: v1
kind: Config
preferences: {}
clusters:
# at work
- cluster:
    server: https://work.example:443
  name: work  # careful

users:
- name: me
  user:
    token: abc
contexts:
- context:
    cluster: work
    user: me
  name: work
# the end of them
current-context: work  # as it should be
"""
# the same without comments and blank lines
BARE = "".join(f"{kept}\n" for line in PERSONS.splitlines() if (kept := line.partition("#")[0].rstrip()))
# what readers of YAML differ about; each is a text for kubectl
ODD = ["12:34", '"1e5"', "'007'", "2026-01-31", "2026-01-31T10:00:00Z", '"y"', '"0o17"', "é"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
def folder(file: Path) -> LabFolder:
    made = LabFolder("lab")
    made.write(made.kubeconfig, OWN)
    return made


def names(path: Path, key: str) -> list[str]:
    return [row["name"] for row in yaml.safe_load(path.read_text())[key] or []]


def test_for_lab_names_everything_after_the_lab() -> None:
    made = yaml.safe_load(OWN)
    assert made["clusters"][0] == {
        "name": "winlab-lab",
        "cluster": {
            "server": "https://192.0.2.1:6443",
            "tls-server-name": "kubernetes.default.svc",
            "certificate-authority-data": IDENTITY.authority,
            "extensions": [{"name": "winlab.internal/direct", "extension": [NETWORK, "192.0.2.1"]}],
        },
    }
    assert made["users"] == [
        {
            "name": "winlab-lab",
            "user": {"client-certificate-data": IDENTITY.certificate, "client-key-data": IDENTITY.key},
        }
    ]
    assert made["contexts"] == [{"name": "winlab-lab", "context": {"cluster": "winlab-lab", "user": "winlab-lab"}}]
    assert made["current-context"] == "winlab-lab"


def test_merge_keeps_everything_but_comments_and_the_current_context(file: Path) -> None:
    file.write_text(PERSONS)
    file.chmod(0o644)
    kubeconfig.merge(file, OWN, "lab", use=False)
    text, made = file.read_text(), yaml.safe_load(file.read_text())
    assert made["current-context"] == "work"
    assert names(file, "contexts") == ["work", "winlab-lab"]
    assert made["clusters"][1]["cluster"]["server"] == "https://192.0.2.1:6443"
    added = [line for line in text.splitlines() if line not in BARE.splitlines()]
    assert [line for line in BARE.splitlines() if line not in text.splitlines()] == []
    assert any("client-key-data" in line for line in added)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.with_name("config.lock").exists()


def test_merge_and_unmerge_leave_the_file_without_comments(file: Path) -> None:
    file.write_text(PERSONS)
    kubeconfig.merge(file, OWN, "lab", use=False)
    assert kubeconfig.unmerge(file, "lab")
    assert file.read_text() == BARE
    assert not kubeconfig.unmerge(file, "lab")


def test_merge_again_changes_nothing_and_a_new_one_replaces(file: Path) -> None:
    file.write_text(PERSONS)
    kubeconfig.merge(file, OWN, "lab", use=False)
    before = (file.read_text(), file.stat().st_ino)
    kubeconfig.merge(file, OWN, "lab", use=False)
    assert (file.read_text(), file.stat().st_ino) == before
    kubeconfig.merge(file, kubeconfig.for_lab(IDENTITY, "lab", "192.0.2.9:6443", NETWORK), "lab", use=False)
    assert names(file, "clusters") == ["work", "winlab-lab"]
    assert "192.0.2.9" in file.read_text()
    assert "192.0.2.1:" not in file.read_text()


def test_a_namespace_that_the_user_chose_stays(file: Path) -> None:
    kubeconfig.merge(file, OWN, "lab", use=False)
    text = file.read_text().replace("    user: winlab-lab\n", "    user: winlab-lab\n    namespace: shop\n")
    file.write_text(text)
    kubeconfig.merge(file, kubeconfig.for_lab(IDENTITY, "lab", "192.0.2.9:6443", NETWORK), "lab", use=False)
    made = yaml.safe_load(file.read_text())
    assert made["contexts"][0]["context"] == {"cluster": "winlab-lab", "user": "winlab-lab", "namespace": "shop"}


def test_labs_do_not_touch_each_other(file: Path) -> None:
    kubeconfig.merge(file, OWN, "lab", use=False)
    kubeconfig.merge(file, kubeconfig.for_lab(IDENTITY, "lab-2", "192.0.2.2:6443", NETWORK), "lab-2", use=False)
    assert kubeconfig.unmerge(file, "lab")
    assert names(file, "contexts") == ["winlab-lab-2"]


def test_use_makes_it_current_and_unmerge_leaves_none(file: Path) -> None:
    file.write_text(PERSONS)
    kubeconfig.merge(file, OWN, "lab", use=True)
    assert yaml.safe_load(file.read_text())["current-context"] == "winlab-lab"
    kubeconfig.unmerge(file, "lab")
    assert yaml.safe_load(file.read_text())["current-context"] == ""


def test_without_use_an_empty_file_has_no_current_context(file: Path) -> None:
    kubeconfig.merge(file, OWN, "lab", use=False)
    made = yaml.safe_load(file.read_text())
    assert "current-context" not in made
    assert (made["apiVersion"], made["kind"]) == ("v1", "Config")


@pytest.mark.parametrize(
    "text",
    [
        '{"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "work", "cluster": {}}], "contexts": null}',
        "clusters: []\ncontexts: null\nusers:\n",
        "clusters:\n  - name: work\n    cluster: {}\n",
        "clusters:\n-\n  name: work\n  cluster: {}\n",
        "clusters: [{name: work, cluster: {}}]\ncurrent-context:\n",
        "a: &x [1]\nextensions: *x\n",
        "clusters:\n- name: work\n  note: |\n    text\n    # no comment\n",
        "clusters:\n- {name: work,\n   cluster: {}}\n- name: two\n  x: 'a\n\n    b'\n",
        "users: &x\n- &u {name: a, user: {token: t}}\n- {<<: *u, name: b}\nclusters: *x\nmine: !!binary YQ==\n",
    ],
)
def test_every_layout_loses_nothing_but_comments(file: Path, text: str) -> None:
    before = yaml.safe_load(text)
    file.write_text(text)
    kubeconfig.merge(file, OWN, "lab", use=True)
    made = yaml.safe_load(file.read_text())
    for key, value in before.items():
        if key in kubeconfig.LISTS:
            assert made[key][: len(value or [])] == (value or [])
        elif key != "current-context":
            assert made[key] == value
    assert names(file, "contexts")[-1] == "winlab-lab"
    assert made["current-context"] == "winlab-lab"


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "kube"
    real.parent.mkdir()
    real.write_text(PERSONS)
    file.symlink_to(real)
    kubeconfig.merge(file, OWN, "lab", use=False)
    assert file.is_symlink()
    assert names(real, "contexts") == ["work", "winlab-lab"]


@pytest.mark.parametrize("text", ["- a\n", "clusters: {a: b}\n", "clusters: [x]\n", "kind: Pod\n", "a: [\n", "\tx"])
def test_a_file_that_is_not_a_kubeconfig_stays(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match="was not changed"):
        kubeconfig.merge(file, OWN, "lab", use=True)
    with pytest.raises(UsageError, match="was not changed"):
        kubeconfig.unmerge(file, "lab")
    assert file.read_text() == text


def test_another_context_of_that_name_is_refused_and_kept(file: Path) -> None:
    text = "contexts:\n- name: winlab-lab\n  context: {cluster: mine, user: me}\n"
    file.write_text(text)
    with pytest.raises(ConflictError, match="did not make"):
        kubeconfig.merge(file, OWN, "lab", use=False)
    assert not kubeconfig.unmerge(file, "lab")
    assert file.read_text() == text


def test_kubectls_own_lock_is_respected(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfig, "PATIENCE", 0.0)
    lock = file.with_name("config.lock")
    lock.touch()
    with pytest.raises(ConflictError, match="Another program") as caught:
        kubeconfig.merge(file, OWN, "lab", use=False)
    assert str(lock) in caught.value.why
    assert lock.exists()
    assert not file.exists()


def test_the_lock_of_a_killed_winlab_is_removed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel releases it with the process; one that is still held is respected."""
    monkeypatch.setattr(kubeconfig, "PATIENCE", 0.0)
    lock = file.with_name("config.lock")
    lock.write_bytes(kubeconfig.SIGNATURE)
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConflictError):
            kubeconfig.merge(file, OWN, "lab", use=False)
    kubeconfig.merge(file, OWN, "lab", use=False)
    assert not lock.exists()


def test_no_lock_is_left_after_an_interrupt(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        assert file.with_name("config.lock").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(kubeconfig, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kubeconfig.merge(file, OWN, "lab", use=False)
    assert not file.with_name("config.lock").exists()


def test_remaining_entries_keep_their_spelling(file: Path) -> None:
    rows = "".join(f"- name: u{n}\n  user:\n    password: {word}\n" for n, word in enumerate(ODD))
    file.write_text(f"users:\n{rows}current-context: '1'\n")
    kubeconfig.merge(file, OWN, "lab", use=False)
    assert file.read_text().startswith(f"users:\n{rows}- name: winlab-lab\n")
    assert "\ncurrent-context: '1'\n" in file.read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("users: [{name: a, user: {token: one}}]\nusers: [{name: b, user: {token: two}}]\n", "'users' is there twice"),
        ("users:\n- name: a\n  user: {token: one}\n  user: {token: two}\n", "'user' is there twice"),
        ("users: [{name: a, user: {token: one, 'token': two}}]\n", "'token' is there twice"),
        ("a: &a {users: [{name: a}]}\n<<: *a\n", "each written once"),
        ("1: a\n", "each written once"),
        ("users: [{name: a}]\n---\nusers: [{name: b}]\n", "single document"),
    ],
)
def test_a_file_that_a_rewrite_would_not_preserve_is_refused(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    for change in (lambda: kubeconfig.merge(file, OWN, "lab", use=True), lambda: kubeconfig.unmerge(file, "lab")):
        with pytest.raises(UsageError, match="was not changed") as caught:
            change()
        assert says in caught.value.why
    assert file.read_text() == text


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize("make", [device, os.mkfifo, os.mkdir])
def test_special_files_are_never_replaced(
    make: Callable[[Path], None], folder: LabFolder, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(file)
    before = file.lstat()
    with pytest.raises(UsageError, match="not a regular file"):
        kubeconfig.publish("lab", use=True)
    assert not kubeconfig.forget("lab")
    monkeypatch.setenv("KUBECONFIG", f"{file}:{tmp_path / 'mine'}:{file}")  # it counts as an empty one
    (tmp_path / "mine").touch()
    assert kubeconfig.publish("lab", use=True) == tmp_path / "mine"
    assert (file.lstat().st_mode, file.lstat().st_ino) == (before.st_mode, before.st_ino)
    assert not file.with_name("config.lock").exists()


def test_a_file_that_is_not_writable_is_not_replaced(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(PERSONS)
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (file, os.W_OK))  # root may write to all
    with pytest.raises(AccessError, match="can't be written"):
        kubeconfig.merge(file, OWN, "lab", use=False)
    assert file.read_text() == PERSONS


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes owners")
def test_roots_winlab_leaves_the_file_to_its_owner(file: Path) -> None:
    file.write_text(PERSONS)
    os.chown(file, 1234, 1235)
    kubeconfig.merge(file, OWN, "lab", use=False)
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 1235)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_folder_that_cannot_be_written(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with pytest.raises(AccessError, match="can't be written"):
        kubeconfig.merge(tmp_path / "plain" / "config", OWN, "lab", use=False)


def test_the_target_is_kubectls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert kubeconfig.target() == Path.home() / ".kube/config"
    first, second, third = (tmp_path / name for name in "abc")
    monkeypatch.setenv("KUBECONFIG", f"{first}::{second}:{third}")
    assert kubeconfig.target() == third
    second.touch()
    assert kubeconfig.target() == second


def test_circular_links_and_an_endless_name(
    file: Path, folder: LabFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for odd in (loop, tmp_path / ("a" * 300)):
        monkeypatch.setenv("KUBECONFIG", str(odd))
        with pytest.raises(AccessError, match="can't be written"):
            kubeconfig.publish("lab", use=True)
    assert not list(tmp_path.glob("*.lock"))


def test_publish_and_forget(folder: LabFolder, file: Path) -> None:
    file.write_text(PERSONS)
    assert kubeconfig.publish("lab") == file
    assert kubeconfig.publish("lab") == file
    assert names(file, "contexts") == ["work", "winlab-lab"]
    assert kubeconfig.forget("lab")
    assert file.read_text() == BARE
    assert not kubeconfig.forget("lab")


def test_forget_finds_the_file_even_if_the_variable_changed(
    folder: LabFolder, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubeconfig.publish("lab")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "other"))
    assert kubeconfig.forget("lab")
    assert names(file, "contexts") == []


def test_use_works_if_another_file_names_the_current_context(
    folder: LabFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("apiVersion: v1\nkind: Config\n")
    second.write_text(PERSONS)
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}")
    assert kubeconfig.publish("lab", use=True) == first
    assert names(first, "contexts") == ["winlab-lab"]
    assert names(second, "contexts") == ["work"]
    assert yaml.safe_load(second.read_text())["current-context"] == "winlab-lab"
    assert kubeconfig.forget("lab")
    assert yaml.safe_load(second.read_text())["current-context"] == ""


def test_forget_continues_after_a_broken_file(
    folder: LabFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / name))
        kubeconfig.publish("lab")
    (tmp_path / "one").write_text("- no\n")
    with pytest.raises(UsageError, match="one"):
        kubeconfig.forget("lab")
    assert names(tmp_path / "two", "contexts") == []
    (tmp_path / "one").unlink()
    assert not kubeconfig.forget("lab")


def test_forget_of_a_lab_that_never_was() -> None:
    assert not kubeconfig.forget("nothing")
    assert not LabFolder("nothing").path.exists()


def test_a_lab_without_a_cluster_has_none(file: Path) -> None:
    with pytest.raises(NotFoundError, match="no kubeconfig"):
        kubeconfig.publish("other")
    assert not file.exists()


def test_secrets_stay_private(folder: LabFolder, file: Path) -> None:
    kubeconfig.publish("lab")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.kubeconfig.stat().st_mode) == 0o600
