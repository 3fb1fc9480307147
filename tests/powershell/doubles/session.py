"""One process of the engine that runs many scripts: session.ps1 says how."""

from __future__ import annotations

import json
import os
import selectors
import subprocess  # noqa: TID251 - runs the engine
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

HERE = Path(__file__).resolve().parent
# Windows' cmdlets, which the stand-in's scripts get, too
WINDOWS = HERE.parents[2] / "standin/winlab_standin/guest/doubles"
MARK = b"answer: "
KEPT: Session | None = None  # by a program that runs tests many times


class Session:
    """Started when it is first asked, and again after a script that did not end in time."""

    def __init__(self, engine: Path) -> None:
        self.engine = engine
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: BinaryIO

    def ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """The answer of the engine.

        :param limit: seconds.
        :raises TimeoutError: it has not answered by then; the process is gone with everything that it ran.
        """
        process = self._process or self._start()
        self._requests.write(json.dumps(request).encode() + b"\n")
        answer = self._answer(process, limit)
        if answer is None:
            self.close()
            raise TimeoutError(f"{request.get('script') or request.get('command')} has not ended after {limit} s")
        return answer

    def revive(self) -> None:
        """Start it again if a fork of this process has ended it."""
        if self._process and self._process.poll() is not None:
            self.close()

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._requests.close()
            self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if name != "WINLAB_PS_PRELUDE"}
        environment["WINLAB_WINDOWS"] = str(WINDOWS)
        reads, writes = os.pipe()
        self._requests = os.fdopen(writes, "wb", buffering=0)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [self.engine, "-NoProfile", "-NonInteractive", "-File", HERE / "session.ps1", f"/dev/fd/{reads}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            bufsize=0,
            pass_fds=(reads,),
        )
        os.close(reads)
        return self._process

    def _answer(self, process: subprocess.Popen[bytes], limit: float) -> dict[str, Any] | None:
        """The line with the answer, whatever else a program may have written; None if it takes too long."""
        assert process.stdout is not None
        said = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while selector.select(limit):
                part = os.read(process.stdout.fileno(), 1 << 20)
                said += part
                if not part:
                    self._errors.seek(0)
                    raise AssertionError(f"the session ended: {self._errors.read().decode(errors='replace')}")
                for line in said.split(b"\n")[:-1]:
                    if line.startswith(MARK):
                        return dict(json.loads(line.removeprefix(MARK)))
        return None
