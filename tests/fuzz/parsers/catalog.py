"""The catalog's files, and those of packages of other authors: recipes, known-good versions, releases and pins."""

from __future__ import annotations

from pathlib import Path

import mutation
from fuzzing import parser

from winlab import data
from winlab.design.catalog import recipes, releases, versions

from .archives import write

FOLDER = data.folder("images")


@parser("recipe", lambda: [path.read_bytes() for path in sorted(FOLDER.glob("*.yaml"))[:1]] or [b""], mutation.YAML)
def recipe(content: bytes, folder: Path) -> None:
    recipes.load(write(folder, sorted(FOLDER.glob("*.yaml"))[0].name, content))


@parser("known-good", lambda: [(FOLDER / "kubernetes" / versions.FILE).read_bytes()], mutation.YAML, 0.5)
def known_good(content: bytes, folder: Path) -> None:
    versions.load(write(folder, "known-good.yaml", content))


RELEASES = b"""versions: {"1.36": {calico: v3.32.1}}
pins:
  programs:
  - {name: kubelet, version: v1, os: linux, url: "https://x/y", sha256: "%s"}
  images:
  - {reference: "r.io/x:1", os: windows, digest: "sha256:%s", os_build: "10.0.20348"}
""" % (b"a" * 64, b"b" * 64)


@parser("pins", lambda: [RELEASES], mutation.YAML)
def pins(content: bytes, folder: Path) -> None:
    releases.read.cache_clear()
    releases.read(write(folder, "pins.yaml", content), releases.Releases)
