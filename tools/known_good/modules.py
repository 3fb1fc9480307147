"""Asks Go for modules: which versions exist, and a release's own files, whose checksum Go has verified.

Go itself asks its module proxy and its checksum database, as its variables say (GOPROXY, GOSUMDB), and refuses modules
of more than 500 MiB (go.dev/ref/mod#zip-path-size-constraints).
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from winlab import run
from winlab.design.catalog.pins import ModulePin
from winlab.errors import HostError, TransferError
from winlab.events import Progress, Quiet
from winlab.supply.artifacts.build import go_module, toolchain
from winlab.supply.artifacts.build.go_module import KUBERNETES, GoModule

LIST_SECONDS, DOWNLOAD_SECONDS, RUN_SECONDS = 120.0, 600.0, 1800.0
LARGEST_FILE = 4 * 1024 * 1024  # bytes; those that are read here are far smaller
FIELDS = Path(__file__).resolve().parent / "fields" / "main.go"

Fields = dict[str, str]  # by kind, all paths of fields, separated by spaces


@dataclass(frozen=True)
class Module:
    """A release, with the folder that its files are in."""

    pin: ModulePin
    folder: Path

    def text(self, path: str) -> str:
        """One of its files.

        :raises TransferError: it has no such file, or it is unreasonably large.
        """
        file = self.folder / path
        try:
            if file.stat().st_size > LARGEST_FILE:
                raise TransferError(f"{path} of {self.pin.path} {self.pin.version} is too large.")
            return file.read_text(encoding="utf-8")
        except OSError as error:
            raise TransferError(
                f"{self.pin.path} {self.pin.version} has no readable {path}.", why=str(error.strerror)
            ) from error


class Modules(Protocol):
    """Where modules come from."""

    def versions(self, path: str) -> list[str]:
        """The stable versions that are published, the oldest first. :raises TransferError: Go can't find out."""

    def download(self, path: str, version: str) -> Module:
        """A release. :raises TransferError: there is none, or it can't be verified."""

    def fields(self, kubernetes: Module) -> Fields:
        """The fields of Kubernetes' configuration kinds, by its own Go types."""


class Go:
    """Asks the program ``go``; *progress* receives what takes long.

    :raises HostError: there is no Go, or its settings leave modules unverified.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._go = toolchain.find("1.21", Quiet()).program
        said = json.loads(self._run(["env", "-json", "GOSUMDB", "GONOSUMDB"], LIST_SECONDS))
        if said["GOSUMDB"] == "off" or said["GONOSUMDB"]:
            raise HostError(
                "Nothing would verify the modules' sums.",
                why=f"Go's settings are GOSUMDB={said['GOSUMDB']}, GONOSUMDB={said['GONOSUMDB'] or 'none'}.",
                cure="Unset GOSUMDB, GONOSUMDB and GOPRIVATE (also 'go env -u NAME').",
            )

    def versions(self, path: str) -> list[str]:
        """The stable versions that are published, the oldest first. :raises TransferError: Go can't find out."""
        try:
            answer: dict[str, Any] = json.loads(self._run(["list", "-m", "-versions", "-json", path], LIST_SECONDS))
        except run.CommandError as error:
            raise TransferError(f"The versions of the Go module {path} can't be fetched.", why=str(error)) from error
        return stable(answer.get("Versions") or [])

    def download(self, path: str, version: str) -> Module:
        """A release. :raises TransferError: there is none, or it can't be verified."""
        self._progress.say(f"fetching {path} {version}")
        try:
            answer = json.loads(self._run(["mod", "download", "-json", f"{path}@{version}"], DOWNLOAD_SECONDS))
        except run.CommandError as error:
            raise TransferError(f"The Go module {path} {version} can't be fetched.", why=str(error)) from error
        return Module(ModulePin(path=path, version=version, sum=answer["Sum"]), Path(answer["Dir"]))

    def fields(self, kubernetes: Module) -> Fields:
        """The fields of Kubernetes' configuration kinds, by its own Go types."""
        self._progress.say("compiling fields/main.go with the types of that release")
        pin = kubernetes.pin
        with tempfile.TemporaryDirectory(prefix="winlab-") as name:
            folder = Path(name)
            go_module.prepare(GoModule(KUBERNETES, pin.version, sum=pin.sum), folder, self._progress)
            shutil.copy(FIELDS, folder)
            fields: Fields = json.loads(self._run(["run", "-mod=mod", "."], RUN_SECONDS, folder))
            return fields

    def _run(self, words: list[str], seconds: float, folder: Path | None = None) -> str:
        environment = {**toolchain.LOCAL, "GO111MODULE": "on", "GOFLAGS": "-mod=mod", "GOWORK": "off"}
        with tempfile.TemporaryDirectory(prefix="winlab-") as empty:  # so that no local go.mod counts
            return run.run([self._go, *words], env=environment, timeout=seconds, cwd=folder or Path(empty)).stdout


def stable(versions: Iterable[str]) -> list[str]:
    """The versions that are releases, not release candidates, the oldest first."""
    return sorted((one for one in versions if re.fullmatch(r"v\d+\.\d+\.\d+", one)), key=number)


def number(version: str) -> tuple[int, ...]:
    """``v1.37.2``, ``3.7.0-0`` or ``1.37`` as numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def newest(versions: Iterable[str], minor: str) -> str | None:
    """The newest patch of *minor* (``1.37``), or None."""
    return max((one for one in versions if number(one)[:2] == number(minor)), key=number, default=None)
