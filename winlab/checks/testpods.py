"""The smoke test's pods, and the requests that rows make to them.

Requests go through the API server, which forwards HTTP to pods (``kubectl get --raw .../pods/NAME:80/proxy/...``). A
row therefore needs neither exec nor a program in the image, and does not involve the kubelet. ``netexec`` has
``/dial``, with which a pod asks another address over HTTP and reports the answer. Source:
test/images/agnhost/netexec in k8s.io/kubernetes.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from winlab import documents
from winlab.checks import pods
from winlab.checks.access import Access
from winlab.checks.model import CheckFailed, is_standin, said
from winlab.checks.objects import Object, Objects, pod_problem
from winlab.checks.pods import NAMESPACE, PORT, Seat
from winlab.design.plan import tags
from winlab.design.plan.tags import Tag
from winlab.design.system import LINUX, WINDOWS
from winlab.engine import wait
from winlab.engine.wait import Met, Waiting
from winlab.errors import WinlabError
from winlab.events import Quiet

PAUSE = 2.0  # seconds on hardware between attempts
SILENCE = 30.0  # seconds on hardware in which attempts fail in the same way; one may take 10
PASSING = re.compile(r"\w*\d\w*")  # in errors: ports, times and identifiers, which differ each time
LIMIT = 60.0  # seconds for one request; the API server itself tries to reach a pod for 30 s
DOMAIN = "cluster.local"
OUTSIDE = ("registry.k8s.io", 443)  # where a cluster with internet access pulls images
CHUNK, CHUNKS = 120_000, 9  # 1.03 MiB in one answer; one argument of a process has at most 128 KiB on Linux
T = TypeVar("T")


class TestPods:
    """A lab with the smoke test's pods in it."""

    def __init__(self, lab: str, nodes: Sequence[Tag], access: Access, cluster: Objects) -> None:
        self.lab = lab
        self.tags = tuple(nodes)
        self.access = access
        self.cluster = cluster  # nodes and runtime classes, as they were at the start
        self.seats = {seat.pod: seat for seat in pods.seats(nodes)}
        self.own = Objects([])  # pods, services and events of the namespace, as they were last seen
        self.asked_for: frozenset[str] = frozenset()  # the rows that the user named
        self._lock = threading.Lock()
        self._kept: dict[str, str | CheckFailed] = {}
        self._has_outside: bool | None = None

    def look(self) -> None:
        """Read the namespace's objects."""
        self.own = Objects.look(self.access.kubectl, ("pods", "services", "events"), NAMESPACE)

    @property
    def linux(self) -> list[Tag]:
        """The Linux nodes."""
        return tags.running(LINUX, self.tags)

    @property
    def windows(self) -> list[Tag]:
        """The Windows nodes."""
        return tags.running(WINDOWS, self.tags)

    @property
    def standin(self) -> bool:
        """Whether the Windows nodes are the stand-ins of a rehearsal."""
        return any(is_standin(tag) for tag in self.windows)

    @property
    def has_outside(self) -> bool:
        """Whether this host has internet access, so that pods should have it, too."""
        with self._lock:
            if self._has_outside is None:
                self._has_outside = self.access.reaches(*OUTSIDE)
            return self._has_outside

    def node(self, tag: Tag) -> Object:
        """A node's object.

        :raises CheckFailed: the cluster does not have it.
        """
        node = self.cluster.named("Node", tag.node)
        if node is None:
            raise CheckFailed(f"the cluster has no node '{tag.node}'")
        return node

    def seat(self, pod: str) -> Seat:
        """Where a pod runs."""
        return self.seats[pod]

    def ip(self, pod: str) -> str:
        """The address of a running pod.

        :raises CheckFailed: it does not run; the text says why.
        """
        pod_object = self.own.named("Pod", pod)
        if pod_object is None:
            raise CheckFailed(f"the pod {pod} was not created")
        problem = pod_problem(pod_object)
        if problem:
            raise CheckFailed(f"the pod {pod} on {self.seat(pod).node} does not run: {self.cause(pod, problem)}")
        return str(pod_object["status"]["podIP"])

    def cause(self, pod: str, problem: str) -> str:
        """What is wrong with a pod, with its last warning event."""
        warnings = self.own.warnings("Pod", pod)
        if not warnings:
            return problem
        message = said(Exception(str(warnings[-1].get("message", ""))))
        return problem if message in problem else f"{problem} ({warnings[-1].get('reason')}: {message})"

    def vip(self, pod: str) -> str:
        """The address of a pod's service."""
        return str(self._service(pod)["spec"]["clusterIP"])

    def node_port(self, pod: str) -> int:
        """The port on which every node offers a pod's service."""
        return int(self._service(pod)["spec"]["ports"][0]["nodePort"])

    def fqdn(self, pod: str) -> str:
        """The full name of a pod's service."""
        return f"{pod}.{NAMESPACE}.svc.{DOMAIN}"

    def ask(self, source: str, host: str, expected: str) -> str:
        """Make a pod ask an address for its host name, which must be the pod *expected*; returns what was seen.

        :raises CheckFailed: there was no answer, or another pod answered.
        """
        self.ip(source)
        self.ip(expected)
        answer = self.persist(lambda: self._dial(source, host, "hostname"))
        return self.named(answer, expected, f"{host}:{PORT}")

    def named(self, answer: str, expected: str, where: str) -> str:
        """What was seen, if the pod *expected* answered.

        :raises CheckFailed: another pod answered.
        """
        # Windows may change the case of its name
        if answer.strip().lower() != expected:
            raise CheckFailed(f"{where} answered '{answer.strip()[:80]}' instead of '{expected}'")
        return f"{where} answered"

    def get(self, pod: str, path: str) -> str:
        """A pod's answer to the API server, and thus to a controller's node.

        :raises CheckFailed: it does not answer, or answers with an error.
        """
        url = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:{PORT}/proxy/{path}"
        return self._kubectl("get", f"--raw={url}")

    def logs(self, pod: str) -> str:
        """A pod's log.

        :raises CheckFailed: the log can't be read.
        """
        return self._kubectl("logs", pod, f"--namespace={NAMESPACE}")

    def execute(self, pod: str, *words: str) -> str:
        """Run agnhost in a pod, beside its server.

        :raises CheckFailed: it can't be run, or fails.
        """
        return self.access.in_pod(NAMESPACE, pod, ["/agnhost", *words])

    def transfer(self, source: str, target: str) -> int:
        """Make a pod fetch more than a mebibyte from another, over one TCP connection; returns the number of bytes.

        The other pod has no answer that large, so it asks itself for a piece (``/echo``) several times, and returns
        all answers as one. (``/upload`` and ``/shell`` need a folder and a shell in the image, and a client that can
        send.)

        :raises CheckFailed: nothing arrived, or the bytes were damaged or incomplete.
        """
        self.ip(source)
        address = self.ip(target)
        piece = _piece()
        again = _dial_path("127.0.0.1", "echo?" + urlencode({"msg": piece}), CHUNKS)
        answer = self.persist(lambda: self._dial(source, address, again))
        try:
            came = documents.from_json(answer).get("responses", [])
        except ValueError as error:
            raise CheckFailed(f"only {len(answer)} of {CHUNK * CHUNKS} bytes arrived") from error
        if len(came) != CHUNKS:
            raise CheckFailed(f"only {len(came)} of {CHUNKS} pieces of {CHUNK} bytes arrived")
        if any(part != piece for part in came):
            raise CheckFailed(f"{sum(part != piece for part in came)} of {CHUNKS} pieces are damaged")
        return len(answer)

    def connect_outside(self, pod: str) -> str:
        """Make a pod open a TCP connection to the internet, by name; done once for all rows.

        :raises CheckFailed: it fails; the text is agnhost's: ``DNS: ...``, ``TIMEOUT``, ``REFUSED``, ``OTHER: ...``.
        """
        where = f"{OUTSIDE[0]}:{OUTSIDE[1]}"

        def connect() -> str:
            self.persist(lambda: self.execute(pod, "connect", where, "--timeout=10s"))
            return f"connected to {where}"

        return self._once(f"outside {pod}", connect)

    def persist(self, action: Callable[[], T]) -> T:
        """Try repeatedly: a service's rules are set up some time after its pod.

        A new kind of failure is progress: the name is resolved, but nothing answers yet.

        :raises CheckFailed: all attempts failed; the text is from the last.
        """

        def attempt() -> Met[T] | Waiting:
            try:
                return Met(action())
            except CheckFailed as failed:
                return Waiting(str(failed), PASSING.sub("", str(failed)))

        def give_up(last: Waiting) -> CheckFailed:
            return CheckFailed(last.says)

        scale = self.access.scale
        return wait.until(attempt, Quiet(), give_up, stall=SILENCE * scale, poll=PAUSE * scale)

    def _once(self, key: str, action: Callable[[], str]) -> str:
        with self._lock:
            if key not in self._kept:
                try:
                    self._kept[key] = action()
                except CheckFailed as failed:
                    self._kept[key] = failed
            kept = self._kept[key]
        if isinstance(kept, CheckFailed):
            raise CheckFailed(str(kept))
        return kept

    def _service(self, pod: str) -> Object:
        service = self.own.named("Service", pod)
        if service is None:
            raise CheckFailed(f"the service {pod} was not created")
        return service

    def _dial(self, source: str, host: str, request: str) -> str:
        try:
            answer = self.get(source, _dial_path(host, request))
        except CheckFailed as failed:
            # agnhost answers 400 for a name that it can't resolve; kubectl does not show the text
            if "BadRequest" in str(failed):
                raise CheckFailed(f"{source} can't resolve {host}") from failed
            raise
        try:
            result = documents.from_json(answer)
        except ValueError as error:
            raise CheckFailed(f"{source} did not answer like agnhost: {answer[:80]}") from error
        if result.get("errors") or not result.get("responses"):
            raise CheckFailed(f"{host}:{PORT} from {source}: {'; '.join(result.get('errors', [])) or 'no answer'}")
        return str(result["responses"][0])

    def _kubectl(self, *words: str) -> str:
        try:
            return self.access.kubectl.run(*words, limit=LIMIT)
        except WinlabError as error:
            raise CheckFailed(said(error)) from error


def _dial_path(host: str, request: str, tries: int = 1) -> str:
    return "dial?" + urlencode({"protocol": "http", "host": host, "port": PORT, "tries": tries, "request": request})


def _piece() -> str:
    """Text that no link compresses or changes: digits without a pattern, always the same."""
    blocks = (hashlib.sha256(str(number).encode()).hexdigest() for number in range(CHUNK // 64 + 1))
    return "".join(blocks)[:CHUNK]
