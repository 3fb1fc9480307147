"""Export of a medium of real size, compared with a mere copy, and with genisoimage."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.framework import Reading, Readings, measurement
from bench.record import Missing
from bench.stage import Stage
from winlab import NotFoundError, run
from winlab.design.catalog import recipes
from winlab.supply.images import cache
from winlab.supply.media import inspection
from winlab_standin.builder import iso

SIZE = 5_000_000_000  # bytes of install.wim
OWN = ("/README.TXT", "/boot.cat")  # the writer adds them
EXPORT = ("iso", "build", "--os", "windows-2022", "--name", "bench", "--set", "workers.bus=sata")


@measurement(3)
def export(stage: Stage, times: int) -> Readings:
    """``iso build`` of a 5 GB medium; each reading includes that its file is on the disk."""
    stage.idle()
    stage.winlab("image", "build", "windows-rehearsal", "--medium")
    with tempfile.TemporaryDirectory(dir=stage.folder) as name:
        folder = Path(name)
        tree, large = folder / "tree", folder / "large.iso"
        _unpack(tree)
        iso.write(large, {f"/{path.relative_to(tree)}": path for path in tree.rglob("*") if path.is_file()})
        for number in range(times):
            target = folder / f"target-{number}.iso"  # beside it, its credentials stay
            ran = stage.winlab(*EXPORT, "--iso", str(large), "--to", str(target))
            yield Reading("export: winlab", ran.seconds + _flushed(target))
            target.unlink()
            stage.settle()
            yield Reading("export: cp", _run(["cp", "--reflink=never", "--sparse=never", large, target], target))
            stage.settle()
            if run.find("genisoimage") is not None:
                words: list[str | Path] = ["genisoimage"]
                words += ["-quiet", "-udf", "-iso-level", "3", "-allow-limited-size", "-o", target, tree]
                yield Reading("export: genisoimage", _run(words, target))
                stage.settle()
    if run.find("genisoimage") is None:
        yield Missing("export: genisoimage", "it is not installed")


def _unpack(tree: Path) -> None:
    """The files of the stand-in's medium, with an install.wim that ends in zeros."""
    image = cache.lookup(recipes.get("windows-rehearsal"))
    if image is None:
        raise NotFoundError("The stand-in's medium is not in the cache.")
    with image.path.open("rb") as source:
        for one in inspection.inspect(image.path).files:
            if one.path not in OWN:
                path = tree / one.path.lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                source.seek(one.begin or 0)
                path.write_bytes(source.read(one.size))
    with (tree / "sources/install.wim").open("r+b") as file:
        file.truncate(SIZE)


def _run(words: list[str | Path], target: Path) -> float:
    seconds = run.run(words).seconds + _flushed(target)
    target.unlink()
    return seconds


def _flushed(target: Path) -> float:
    """How long it takes until the rest of a file is on the disk."""
    return run.run(["sync", target]).seconds
