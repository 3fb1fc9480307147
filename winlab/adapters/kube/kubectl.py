"""The adapter to the cluster's API server: kubectl of the lab's own version, with the lab's kubeconfig."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml

from winlab import run
from winlab.errors import ClusterError, NotFoundError
from winlab.lab_folder import LabFolder

LIMIT = 60  # seconds that the API server has for one request
CURE = "Check that the controllers run: 'winlab status'."


class Kubectl:
    """kubectl for one cluster."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self.program = program
        self.kubeconfig = kubeconfig

    @classmethod
    def of(cls, folder: LabFolder) -> Kubectl:
        """kubectl for a lab.

        :raises NotFoundError: the lab has no cluster, or was made from another account.
        """
        if not folder.kubeconfig.exists() or not folder.kubectl.exists():
            raise NotFoundError(
                f"The lab '{folder.lab}' has no cluster that this account can use.",
                why=f"'{folder.kubeconfig}' or '{folder.kubectl}' is missing.",
                cure="Run the lab's create command again (without --until guests).",
            )
        return cls(folder.kubectl, folder.kubeconfig)

    def arguments(self, words: Sequence[str]) -> list[str | Path]:
        """The command line for kubectl with *words*."""
        return [self.program, f"--kubeconfig={self.kubeconfig}", *words]

    def run(self, *words: str, stdin: str | None = None, limit: float = LIMIT) -> str:
        """Run kubectl; what it printed.

        :raises ClusterError: it failed, or did not end within twice *limit*.
        """
        command = [
            f"--request-timeout={limit:.0f}s",
            *words,
        ]  # first: after "exec ... --" it would belong to the command
        try:
            return run.run(self.arguments(command), stdin=stdin, timeout=limit * 2, env={"KUBECONFIG": ""}).stdout
        except run.CommandError as error:
            raise ClusterError(
                f"kubectl {' '.join(words[:3])} failed.",
                why=(error.result.stderr or error.result.stdout).strip()[-1500:],
                cure=CURE,
            ) from error
        except run.OverdueError as error:
            raise ClusterError(f"'kubectl {' '.join(words[:3])}' did not end.", why=error.what, cure=CURE) from error

    def replace_process(self, words: Sequence[str]) -> NoReturn:
        """Replace this process with kubectl, for a user at a terminal."""
        os.environ["KUBECONFIG"] = str(self.kubeconfig)  # a flag would not reach kubectl's plug-ins
        run.replace([self.program, *words])

    def get(self, *words: str) -> Any:
        """What ``kubectl get ... --output json`` returns.

        :raises ClusterError: it failed.
        """
        return json.loads(self.run("get", *words, "--output=json"))

    def apply(self, objects: Sequence[dict[str, Any]]) -> None:
        """Apply objects with server-side apply. Safe to repeat.

        :raises ClusterError: the API server refuses an object.
        """
        if objects:
            text = yaml.safe_dump_all(objects, sort_keys=False)
            self.run(
                "apply", "--server-side", "--force-conflicts", "--field-manager=winlab", "--filename=-", stdin=text
            )

    def same(self, objects: Sequence[dict[str, Any]]) -> bool:
        """Whether the API server has exactly these objects; also False if it can't be found out."""
        text = yaml.safe_dump_all(objects, sort_keys=False)
        try:
            self.run("diff", "--server-side", "--force-conflicts", "--field-manager=winlab", "--filename=-", stdin=text)
        except ClusterError:
            return False
        return True

    def answers(self) -> bool:
        """Whether the API server is ready."""
        return self.unready() is None

    def unready(self) -> frozenset[str] | None:
        """The API server's own health checks, one line each, while it is not ready; None if it is ready.

        Empty while it does not answer at all.
        """
        try:
            self.run("get", "--raw=/readyz", limit=10)
        except ClusterError as error:
            return frozenset(line for line in error.why.splitlines() if line.startswith(("[+]", "[-]")))
        return None
