"""The adapter to the cluster's API server: the lab's kubectl, with the lab's kubeconfig."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from winlab import documents, run
from winlab.adapters.kube import kubeconfig as kubeconfigs
from winlab.adapters.kube import shape
from winlab.errors import ClusterError, NotFoundError
from winlab.lab_folder import LabFolder
from winlab.printable import printable

LIMIT = 60  # seconds that the API server has for one request
DELETION = 120  # seconds until an object must be gone
CURE = "Check that the controllers run: 'winlab status'."
UNDERSTAND = "Check its API server with 'kubectl get nodes --output json'."
DAMAGED = "Is the disk failing? 'winlab repair' fetches this program again."


# What kubectl says if the API server, or etcd behind it, did not complete a request in time, or was restarting
BUSY = re.compile(
    r"\((Timeout|ServiceUnavailable|TooManyRequests|InternalError)\)|context deadline exceeded|Client\.Timeout"
    r"|did not end|etcdserver: |connection refused|connection reset|TLS handshake timeout|i/o timeout|unexpected EOF"
    r"|http2: |no route to host|network is unreachable"
)


def is_busy(error: ClusterError) -> bool:
    """Whether a request failed because the API server was busy or starting, so that the same request may succeed."""
    return BUSY.search(f"{error.what} {error.why}") is not None


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
        if not folder.has(folder.kubeconfig) or not folder.has(folder.kubectl):
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
        """Run kubectl; returns its output.

        :raises ClusterError: it failed, can't be run, or did not end within twice *limit*.
        """
        command = [
            f"--request-timeout={limit:.0f}s",
            *words,
        ]  # first: after "exec ... --" it would belong to the command
        try:
            return self.watch(command, stdin=stdin, timeout=limit * 2)
        except run.CommandError as error:
            raise ClusterError(
                f"kubectl {' '.join(words[:3])} failed.",
                why=(error.result.stderr or error.result.stdout).strip()[-1500:],
                cure=CURE,
            ) from error
        except run.DamagedError as error:
            raise ClusterError(error.what, why=error.why, cure=DAMAGED) from error
        except run.OverdueError as error:
            raise ClusterError(f"'kubectl {' '.join(words[:3])}' did not end.", why=error.what, cure=CURE) from error
        except run.FloodError as error:
            raise ClusterError(f"'kubectl {' '.join(words[:3])}' printed too much.", why=error.what) from error

    def watch(self, words: Sequence[str], *, stdin: str | None = None, timeout: float) -> str:
        """Run kubectl with these words, without a limit for requests; returns its output.

        :param timeout: seconds after which it is ended.
        :raises CommandError: it failed.
        :raises HostError: it took too long, or printed too much.
        """
        env = {"KUBECONFIG": "", **self.environment()}
        return run.watched(self.arguments(words), stdin=stdin, timeout=timeout, env=env).stdout

    def environment(self) -> dict[str, str]:
        """Variables for kubectl: the cluster of a lab on this host is never reached through the user's proxy."""
        direct = kubeconfigs.direct(self.kubeconfig)
        if not direct:
            return {}
        theirs = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
        # Go reads either spelling, and knows networks: golang.org/x/net/http/httpproxy
        both = ",".join(filter(None, (theirs, *direct)))
        return {"NO_PROXY": both, "no_proxy": both}

    def replace_process(self, words: Sequence[str]) -> NoReturn:
        """Replace this process with kubectl, for a user at a terminal."""
        os.environ["KUBECONFIG"] = str(self.kubeconfig)  # a flag would not reach kubectl's plug-ins
        os.environ.update(self.environment())
        run.replace([self.program, *words])

    def get(self, *words: str, limit: float = LIMIT) -> Any:
        """What ``kubectl get ... --output json`` returns: an object, or without a name a list (``items``).

        :raises ClusterError: it failed, or what the API server sent is not what was asked for.
        """
        return _read(self.run("get", *words, "--output=json", limit=limit), words)

    def find(self, *words: str) -> dict[str, Any] | None:
        """One object; None if there is none.

        :raises ClusterError: as :meth:`get`.
        """
        text = self.run("get", *words, "--ignore-not-found", "--output=json").strip()
        return _read(text, words) if text else None

    def apply(self, objects: Sequence[dict[str, Any]]) -> None:
        """Apply objects with server-side apply. Safe to repeat.

        :raises ClusterError: the API server refuses an object.
        """
        if objects:
            text = _documents(objects)
            self.run(
                "apply", "--server-side", "--force-conflicts", "--field-manager=winlab", "--filename=-", stdin=text
            )

    def same(self, objects: Sequence[dict[str, Any]]) -> bool:
        """Whether the API server has exactly these objects; also False if it can't be found out."""
        text = _documents(objects)
        try:
            self.run("diff", "--server-side", "--force-conflicts", "--field-manager=winlab", "--filename=-", stdin=text)
        except ClusterError:
            return False
        return True

    def delete(self, objects: Sequence[dict[str, Any]]) -> None:
        """Delete objects, the last one first; a missing one is not an error.

        :raises ClusterError: the API server refuses.
        """
        for item in reversed(objects):
            try:
                self.run("delete", "--ignore-not-found", "--filename=-", stdin=_documents([item]), limit=DELETION)
            except ClusterError as error:
                if "no matches for kind" not in error.why:  # its definition was among the objects, and is gone
                    raise

    def has_any(self, objects: Sequence[dict[str, Any]]) -> bool:
        """Whether the API server has one of these objects.

        :raises ClusterError: it does not answer, or no longer knows one of their kinds.
        """
        return len(self.missing(objects)) < len(objects)

    def missing(self, objects: Sequence[dict[str, Any]]) -> list[str]:
        """Those of the objects that the API server does not have, such as ``daemonset.apps/kube-flannel-ds``.

        :raises ClusterError: it does not answer, or no longer knows one of their kinds.
        """
        if not objects:
            return []
        words = ("get", "--ignore-not-found", "--output=name", "--filename=-")
        there = self.run(*words, stdin=_documents(objects)).split()
        return [name for name in map(_name, objects) if name not in there]

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


def _documents(objects: Sequence[dict[str, Any]]) -> str:
    """Objects for kubectl, in JSON: it would read an unquoted label ``y`` or ``1e3`` of YAML as something else."""
    return "".join(f"---\n{json.dumps(item)}\n" for item in objects)


def _name(item: dict[str, Any]) -> str:
    """An object's name as kubectl prints it."""
    group = item["apiVersion"].rpartition("/")[0]
    return f"{item['kind'].lower()}{group and f'.{group}'}/{item['metadata']['name']}"


def _read(text: str, words: Sequence[str]) -> dict[str, Any]:
    names = [word for word in words if not word.startswith("-")]
    try:
        return shape.check(documents.from_json(text), names[0] if names else "", many=len(names) == 1)
    except ValueError as error:
        raise ClusterError(
            f"What the API server sent for 'kubectl get {' '.join(words)}' is not a Kubernetes object.",
            why=printable(str(error))[:500],
            cure="Run it again. If it stays so, something other than the lab's API server answers.",
        ) from error


@contextmanager
def understood(what: str, cure: str = UNDERSTAND) -> Iterator[None]:
    """Wraps code that reads documents from an external cluster, which may contain anything.

    :param what: what they are, for the message; *cure*: the same.
    :raises ClusterError: they don't have the shape that Kubernetes gives them.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise ClusterError(
            f"{what} can't be understood.",
            why=printable(repr(error))[:500],
            cure=cure,
        ) from error
