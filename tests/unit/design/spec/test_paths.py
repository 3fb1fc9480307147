"""The paths that a spec's file may name on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from winlab.design import spec
from winlab.design.spec.model import Spec
from winlab.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a downloaded spec; beside it is a file of the host."""
    made = tmp_path / "spec"
    (made / "c-drive").mkdir(parents=True)
    (made / "first.ps1").touch()
    (tmp_path / "private").mkdir()
    (tmp_path / "private/key").write_text("hunter2")
    return made


def load(folder: Path, text: str, *changes: str, allow: tuple[Path, ...] = (), **environment: str) -> Spec:
    (folder / "lab.yaml").write_text(text)
    return spec.load(str(folder / "lab.yaml"), changes, allow=allow, environment=environment)


def test_a_spec_may_name_files_of_its_own_folder(folder: Path) -> None:
    (pool,) = load(folder, "workers:\n  files: ./c-drive\n  scripts: [c-drive/../first.ps1]\n").workers
    assert (pool.files, pool.scripts) == (folder / "c-drive", (folder / "first.ps1",))


@pytest.mark.parametrize("field", ["files", "template", "media", "drivers", "openssh", "scripts", "extra_drivers"])
@pytest.mark.parametrize("path", ["../private", "/etc/passwd", "~/.ssh", "/", "link", "link/key", "../spec-2/x"])
def test_files_outside_of_the_folder_are_refused_with_their_line(folder: Path, field: str, path: str) -> None:
    (folder / "link").symlink_to("../private")
    value = f"[{path}]" if field in ("scripts", "extra_drivers") else path
    with pytest.raises(UsageError) as caught:
        load(folder, f"controllers: {{}}\nworkers:\n  {field}: {value}\n")
    assert f"line 3: workers.{field}" in caught.value.what
    assert "outside the spec's own folder" in caught.value.what
    assert "--allow-path" in caught.value.cure


def test_outside_checkouts_and_paths_of_pools_are_refused_too(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"line 2: kubernetes\.source: '\.\./private' is outside"):
        load(folder, "kubernetes:\n  source: ../private\n")
    with pytest.raises(UsageError, match=r"line 4: workers\.win25\.files: '\.\./private' is outside"):
        load(folder, "workers:\n  - count: 1\n  - name: win25\n    files: ../private\n")


def test_a_path_that_can_not_be_followed_is_reported(folder: Path) -> None:
    (folder / "circle").symlink_to("circle")
    for path in ("circle/x", "~nobody-of-that-name/x"):
        with pytest.raises(UsageError, match=r"workers\.files"):
            load(folder, f"workers: {{files: {path}}}")


def test_the_user_may_name_anything(folder: Path) -> None:
    private = folder.parent / "private"
    assert load(folder, "{}", f"workers.files={private}").workers[0].files == private
    assert load(folder, "workers: {files: /}", "workers.files=../private").workers[0].files == private
    assert load(folder, "{}", WINLAB_WORKERS_FILES=str(private)).workers[0].files == private
    assert load(folder, "workers: {files: ../private}", allow=(private,)).workers[0].files == private
    with pytest.raises(UsageError, match="outside"):  # the change is of another pool
        load(folder, "workers: [{files: ../private}, {name: b}]", "workers.b.files=../private")


def test_a_shorthand_takes_the_user_s_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert spec.load("1-1-1", ["workers.files=../private"]).workers[0].files == folder.parent / "private"
    assert spec.load("1-1-1").roots == ()


KEY = "ABCDE-FGHIJ-KLMNO-PQRST-UVWXY"


def test_a_secret_comes_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text(f"{KEY}\n")
    assert spec.load("1-1-1", ["workers.product_key=@key"]).workers[0].product_key == KEY
    assert spec.load("1-1-1", ["workers.node.product_key=@key"]).workers[0].product_key == KEY
    assert spec.load("1-1-1", environment={"WINLAB_WORKERS_PRODUCT_KEY": "@key"}).workers[0].product_key == KEY
    with pytest.raises(UsageError, match=r"workers\.product_key=\.\.\.' can't be read from its file"):
        spec.load("1-1-1", ["workers.product_key=@none"])
    with pytest.raises(UsageError, match="not YAML"):  # others are values only
        spec.load("1-1-1", ["workers.time_zone=@key"])


@pytest.mark.parametrize(
    "change",
    [
        "workers.product_key=SECRET",
        "workers.product_key=[SECRET",
        "workers.product_key={a: SECRET}",
        "workers.node.product_key=SECRET",
        "workers.nowhere.product_key=SECRET",
        "workers.product_key.x=SECRET",
        "workers.productkey=SECRET",
        "workers.product_key:SECRET",
        "Workers.product_key=SECRET",
        "workers={product_key: SECRET}",
        "linux_workers.product_key=SECRET",
        "controllers={product_key: SECRET",
    ],
)
def test_no_error_repeats_a_secret(change: str) -> None:
    with pytest.raises(UsageError) as caught:
        spec.load("1-1-1", [change])
    error: BaseException | None = caught.value
    while error is not None:
        assert "SECRET" not in f"{error} {error!r}"
        error = None if error.__suppress_context__ and error.__cause__ is None else error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "text",
    [
        "workers: {product_key: SECRET}",
        "workers: {product_key: [SECRET]}",
        "workers: {os: debian-13, product_key: SECRET}",
        "workers: {product_key: SECRET",
        "workers:\n  product_key: SECRET: x\n",
        "workers:\n  product_key: @SECRET\n",
    ],
)
def test_no_error_of_a_file_repeats_a_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert "SECRET" not in f"{caught.value} {caught.value.__cause__}"
    assert "line" in str(caught.value) or "column" in str(caught.value)
