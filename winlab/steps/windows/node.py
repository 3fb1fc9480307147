"""Steps that turn a Windows guest into a node of the cluster; the guest itself shows whether each is done.

booted → features → restarted → containerd → binaries → kubelet service → joined by a token with
TLS bootstrap → CNI → kube-proxy. No administrator's credential ever reaches a worker: it joins with a token that
expires, and then has its own certificate. The scripts are unattend/windows/worker/*.ps1.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Literal, TypeVar

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import display, domains
from winlab.design import cni
from winlab.design.contract import on_windows
from winlab.design.contract.call import Call, R
from winlab.design.contract.on_both import Service
from winlab.design.contract.on_windows import WindowsFacts
from winlab.design.plan.node_plan import WindowsNode
from winlab.design.render import kube_proxy
from winlab.design.render.domain import serial_log
from winlab.design.render.windows import WindowsFiles
from winlab.engine import wait
from winlab.engine.run import Run
from winlab.engine.state import Kind, State
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, GuestCommandError, GuestError, StalledError, UnreachableError, logs
from winlab.events import Progress, report
from winlab.printable import printable
from winlab.steps import again, controllers, evidence, joining, pod_network
from winlab.steps.crashed import require_no_crash
from winlab.steps.distribution import known
from winlab.steps.interface import Condition
from winlab.steps.screens import Series
from winlab.steps.serial import SerialLog
from winlab.steps.states import (
    API,
    BINARIES,
    BOOTED,
    CNI,
    CONFIGURED,
    CONTAINERD,
    FEATURES,
    KUBELET,
    MEMBER,
    PAYLOAD_INSERTED,
    PODS_CONNECTED,
    PROXY,
    UPDATES,
)
from winlab.steps.unheard import Unheard
from winlab.steps.windows import probe, setup_logs

T = TypeVar("T")
SILENT_SECONDS = 900.0  # without an answer or anything written to the disk
FRESH = 90.0  # seconds for which an answer of the node serves later queries
ENDPOINT_POLL = 10.0  # seconds
ENDPOINT_SECONDS = 1200.0  # without news of the pods that make a node's network: their images have a gigabyte
# Of Windows' updates: how often each is installed if it comes back after a restart, and how many restarts there are
TRIES, MOST_RESTARTS = 2, 6
# Of shutdown.exe: Windows shuts down (ERROR_SHUTDOWN_IN_PROGRESS), or is about to (ERROR_SHUTDOWN_IS_SCHEDULED)
UNDER_WAY = (1115, 1190)
# Seconds by which only a start moves the boot time. Windows works it out from its clock, which a time server may
# correct meanwhile; but the probe has set the clock to within half a minute of the host's before the first restart. A
# Windows that wants a restart has been up for longer: bootstrap and features take minutes. Should a larger correction
# still come, the next script says that a restart is pending, and Windows is restarted again
MOVED = 120.0
CONFIG = r"C:\Program Files\containerd\config.toml"


def steps(run: Run, node: WindowsNode) -> list[Step]:
    """The steps from a Windows guest that answers and has the payload CD to a node with a network for its pods."""
    worker = _Worker(run, node)
    return [*_programs(worker), *_membership(worker)]


def programs(run: Run, node: WindowsNode) -> list[Step]:
    """The steps from a Windows guest that answers and has the payload CD to one that is ready to join."""
    return _programs(_Worker(run, node))


def _programs(worker: _Worker) -> list[Step]:
    given = [worker.at(BOOTED), worker.at(PAYLOAD_INSERTED)]
    return [
        worker.step(FEATURES, worker.features, worker.has_features, given, 60),
        worker.step(CONTAINERD, worker.containerd, worker.has_containerd, [worker.at(FEATURES)], 40),
        worker.step(BINARIES, worker.binaries, worker.has_binaries, [worker.at(CONTAINERD)], 20),
    ]


def _membership(worker: _Worker) -> list[Step]:
    """The steps from there to a member of the cluster with a network for its pods."""
    connected = [worker.at(PODS_CONNECTED)]
    return [
        worker.step(CONFIGURED, worker.configure, worker.is_configured, [worker.at(BINARIES)], 2),
        worker.step(KUBELET, worker.kubelet, worker.has_kubelet, [worker.at(CONFIGURED)], 5),
        worker.step(MEMBER, worker.join, worker.has_joined, [worker.at(KUBELET), API(worker.run.lab)], 60),
        worker.step(CNI, worker.cni, worker.has_cni, [worker.at(MEMBER)], 20),
        worker.step(PROXY, worker.proxy, worker.has_proxy, [worker.at(CNI)], 10, also=connected),
    ]


def updates_step(run: Run, node: WindowsNode) -> Step:
    """The step that installs Windows' own updates, with the restarts that these need."""
    worker = _Worker(run, node)
    after = [worker.at(BINARIES)] if node.is_member else [worker.at(BOOTED), worker.at(PAYLOAD_INSERTED)]
    return worker.step(UPDATES, worker.updates, lambda _facts: False, after, 3600)


def restart(run: Run, node: WindowsNode, there: NodeScripts, progress: Progress) -> None:
    """Restart Windows, and wait until it answers again."""
    there.tell = partial(report, progress)
    _Worker(run, node).restart(there, progress)


def condition(run: Run, node: WindowsNode) -> Condition:
    """What the node says of itself.

    :raises GuestError: it can't be asked.
    """
    with run.node(node) as there:
        facts = there.run(on_windows.WindowsStatus())
    services: dict[str, Service | Literal["stale"]] = {"containerd": facts.containerd.service}
    if facts.kubelet.joined:
        services["kubelet"] = facts.kubelet.service
        if node.os not in run.plan.cluster.proxies:
            stale = facts.proxy.stale and facts.proxy.service == "running"
            services["kube-proxy"] = "stale" if stale else facts.proxy.service
    changed = _Worker(run, node).changed(facts) if facts.kubelet.joined else {}
    return Condition(services, facts.kubelet.joined, changed)


def start(run: Run, node: WindowsNode, service: str, progress: Progress) -> None:
    """Run the script that set a service up again; it starts a service that does not run.

    :raises GuestError: it does not start.
    """
    worker = _Worker(run, node)
    act = {"containerd": worker.containerd, "kubelet": worker.kubelet, "kube-proxy": worker.proxy}[service]
    with run.node(node) as there:
        there.tell = partial(report, progress)
        act(there, progress)


class _Worker:
    def __init__(self, run: Run, node: WindowsNode) -> None:
        self.run = run
        self.node = node
        self.files = WindowsFiles(run.plan, node)
        self._told: tuple[float, WindowsFacts] | None = None  # when the node was last asked, and its answer

    def facts(self, there: NodeScripts) -> WindowsFacts:
        """What the node reports about itself. Its steps ask one after another, and each query starts a PowerShell. One
        answer therefore serves all of them, for :data:`FRESH` seconds or until one of them acts.
        """
        if self._told is None or time.monotonic() - self._told[0] > FRESH:
            self._told = time.monotonic(), there.run(on_windows.WindowsStatus())
        return self._told[1]

    def at(self, kind: Kind) -> State:
        """This node's state of this kind."""
        return kind(self.run.lab, self.node.name)

    def step(
        self,
        kind: Kind,
        act: Callable[[NodeScripts, Progress], None],
        done: Callable[[WindowsFacts], bool],
        after: Iterable[State],
        usual: float,
        also: Iterable[State] = (),
    ) -> Step:
        """The step that acts in the node, and is done when the node's status says so."""

        def perform(progress: Progress) -> None:
            try:
                with self.run.node(self.node) as there:
                    there.tell = partial(report, progress)
                    act(there, progress)
            except GuestError as error:
                evidence.name_cause(error)
                raise
            finally:
                self._told = None

        ask = self.run.asks(self.node, lambda there: done(self.facts(there)))
        return Step(self.at(kind), perform, ask, after, also, usual)

    def do(self, there: NodeScripts, call: Call[R], progress: Progress) -> R:
        """Run a script, and repeat it if the connection is lost."""
        return self.again(there, call.script, progress, lambda: there.run(call, progress.say))

    def again(self, there: NodeScripts, what: str, progress: Progress, act: Callable[[], T]) -> T:
        """Do something in the node, and repeat it if the connection is lost: see :func:`again.repeat`."""
        answers = partial(self._await, there, progress, "to answer again", lambda _facts: True)
        return again.repeat(there, what, progress, act, lambda _lost: answers())

    def features(self, there: NodeScripts, progress: Progress) -> None:
        self.again(there, "probe", progress, lambda: probe.check(there, progress))
        # some features need another run after the restart
        while self.do(there, self.files.features(), progress).restart:
            self.restart(there, progress)

    def updates(self, there: NodeScripts, progress: Progress) -> None:
        tried: Counter[str] = Counter()
        for restarts in itertools.count():
            without = [title for title, times in tried.items() if times >= TRIES]
            result = self.do(there, on_windows.Updates(without=without), progress)
            for title in result.failed:
                progress.say(f"not installed: {title}")
            if not result.restart:
                return
            latest = {*result.installed, *result.failed}
            if restarts == MOST_RESTARTS:
                last = "; ".join(sorted(latest)) or "none"
                progress.say(f"Windows wants another restart for its updates, and gets none after {restarts}: {last}")
                return
            tried.update(latest)  # also those that Windows takes back when it restarts
            self.restart(there, progress)

    def restart(self, there: NodeScripts, progress: Progress) -> None:
        before = self.do(there, on_windows.WindowsStatus(), progress)
        progress.say("restarting Windows")
        _ask_restart(there)
        there.disconnect()
        self._await(there, progress, "to restart", partial(_restarted, before))

    def has_features(self, facts: WindowsFacts) -> bool:
        # incomplete: a restart is pending, or the golden image was made for another profile
        whole = set(facts.features_set.split(",")).issuperset(cni.get(self.run.plan.cluster.profile).windows_features())
        return facts.containers_feature == "installed" and whole and not facts.restart_pending

    def containerd(self, there: NodeScripts, progress: Progress) -> None:
        call = self.files.containerd()
        if call.environment and self.facts(there).containerd.environment_sha256 is None:
            raise GuestError(
                f"'{self.node.name}' can't be given the proxy of network.proxy.",
                why="The scripts on its payload CD are of an earlier winlab, which had none.",
                cure=f"Make the node again with 'winlab node rebuild {self.node.name}', or leave network.proxy out.",
            )
        self.do(there, call, progress)

    def has_containerd(self, facts: WindowsFacts) -> bool:
        service, same = facts.containerd, self.has_config(facts) and self.has_environment(facts)
        imported = facts.images_from is None or facts.images_from == facts.cd
        return service.service == "running" and bool(service.sha256) and same and imported and not _outdated(facts)

    def has_config(self, facts: WindowsFacts) -> bool:
        """Whether containerd's configuration is as rendered."""
        there, wanted = facts.containerd.config_sha256, self.files.containerd().config
        return pod_network.same_files({"config": there}, {"config": wanted})

    def has_environment(self, facts: WindowsFacts) -> bool:
        """Whether containerd's service has the variables that winlab gives it, and no earlier ones of winlab."""
        there, wanted = facts.containerd.environment_sha256, "\n".join(self.files.containerd().environment)
        return (there or "") == (hashlib.sha256(wanted.encode()).hexdigest() if wanted else "")

    def binaries(self, there: NodeScripts, progress: Progress) -> None:
        self.do(there, on_windows.Binaries(), progress)

    def has_binaries(self, facts: WindowsFacts) -> bool:
        names = (*self.run.plan.cluster.membership.own_programs, "kubelet", "kube-proxy")
        all_there = facts.binaries.keys() >= {f"{name}.exe" for name in names}
        return all_there and facts.installed_from == facts.cd

    def configure(self, there: NodeScripts, progress: Progress) -> None:
        if self.facts(there).files is None:
            raise GuestError(
                f"'{self.node.name}' can't get the files and registry values of add-ons.",
                why="The scripts on its payload CD are of an earlier winlab, which had none.",
                cure=f"Make the node again with 'winlab node rebuild {self.node.name}', or leave the add-ons out.",
            )
        self.do(there, self.files.configure(), progress)

    def is_configured(self, facts: WindowsFacts) -> bool:
        return not self.unconfigured(facts)

    def unconfigured(self, facts: WindowsFacts) -> list[str]:
        """The files and registry values that add-ons give or gave the node and that differ from what they should be."""
        wanted = self.files.configure()
        digests = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in wanted.files.items()}
        values = {rf"{row.key}\{row.name}": f"{row.type} {row.data}" for row in wanted.registry}
        return [*_differing(digests, facts.files or {}), *_differing(values, facts.registry or {})]

    def changed(self, facts: WindowsFacts) -> dict[str, Kind]:
        """What differs on a member from what was rendered, with the step that writes it."""
        rows: dict[str, Kind] = dict.fromkeys(self.unconfigured(facts), CONFIGURED)
        if not self.has_config(facts):
            rows[CONFIG] = CONTAINERD
        if not self.has_environment(facts):
            rows["containerd's proxy"] = CONTAINERD
        return rows

    def kubelet(self, there: NodeScripts, progress: Progress) -> None:
        self.do(there, self.files.kubelet(), progress)

    def has_kubelet(self, facts: WindowsFacts) -> bool:
        return facts.kubelet.command == self.files.kubelet().command

    def join(self, there: NodeScripts, progress: Progress) -> None:
        known.membership(self.run).join_windows(self.node, lambda call: self.do(there, call, progress), progress)

    def has_joined(self, facts: WindowsFacts) -> bool:
        return facts.kubelet.joined

    def cni(self, there: NodeScripts, progress: Progress) -> None:
        own = pod_network.await_share(self.run, self.node, progress)
        self.do(there, self.files.cni(own), progress)

    def has_cni(self, facts: WindowsFacts) -> bool:
        own = pod_network.share(self.run, self.node)
        return pod_network.same_files(facts.cni, self.files.cni(own).files)

    def proxy(self, there: NodeScripts, progress: Progress) -> None:
        if self.is_proxied:
            return
        own = pod_network.await_share(self.run, self.node, progress)
        call = self.files.proxy(own, joining.proxy_kubeconfig(self.run, self.node))
        if call.source_endpoint:
            self._await_endpoint(there, call.source_endpoint, progress)
        self.do(there, call, progress)

    def _await_endpoint(self, there: NodeScripts, name: str, progress: Progress) -> None:
        """Wait until the CNI plug-in's agent has made an endpoint of HNS. winlab asks repeatedly, because the
        connection is cut just then.

        :raises StalledError: it has not, and nothing has changed for a long time.
        """
        limit = self.run.pace.silence(ENDPOINT_SECONDS)
        kubectl = Kubectl.of(self.run.folder)

        def look() -> Met[None] | Waiting:
            says = f"waiting for {self.node.name}'s network: its agent has not made the HNS endpoint '{name}'"
            pods = ""
            try:
                endpoints = there.run(on_windows.WindowsStatus()).endpoints
                if endpoints is None or name in endpoints:
                    return Met(None)
                pods = pod_network.waiting_pods(kubectl, self.node.name)
            except (UnreachableError, ClusterError) as error:
                there.disconnect()
                pods = error.what
            return Waiting(f"{says}; {pods}" if pods else says, pods)

        def give_up(seen: Waiting) -> StalledError:
            return StalledError(
                f"'{self.node.name}' has no network for its pods after {limit / 60:.0f} min.",
                why=seen.says,
                cure=f"Look at 'winlab kubectl --lab {self.run.lab} -- describe pods -A "
                f"--field-selector spec.nodeName={self.node.name}', then run the same command again.",
                evidence=logs(self.node.name, self.run.lab),
            )

        controllers.until(self.run, look, progress, give_up, stall=limit, poll=ENDPOINT_POLL)

    @property
    def is_proxied(self) -> bool:
        """Whether the external cluster itself runs kube-proxy on Windows nodes."""
        return self.node.os in self.run.plan.cluster.proxies

    def has_proxy(self, facts: WindowsFacts) -> bool:
        if self.is_proxied:
            return True
        command = kube_proxy.command(self.run.plan.cluster.versions)
        same = facts.proxy.command == command and not facts.proxy.stale
        return facts.proxy.service == "running" and same

    def _await(self, there: NodeScripts, progress: Progress, what: str, met: Callable[[WindowsFacts], bool]) -> None:
        """Wait until the guest answers and *met* holds; give up when it shows no activity for too long."""
        limit = self.run.pace.silence(SILENT_SECONDS)
        serial = SerialLog(self.run.on(self.node).pool, serial_log(self.run.lab, self.node.name))
        serial.read()  # what it reported before does not count
        serial.beacon = ""
        series, unheard = Series(self.run.folder, self.node.name), Unheard(self.run, self.node, progress)

        def look() -> Met[None] | Waiting:
            serial.read()
            says = f"waiting for {self.node.name} {what}"
            if serial.beacon:
                says += f"; it is up, and reports on its serial port: {printable(serial.beacon)}"
            try:
                if met(there.run(on_windows.WindowsStatus())):
                    return Met(None)
            except UnreachableError:
                require_no_crash(self.run.on(self.node).conn, self.run.lab, self.node, progress)
                if series.is_due:
                    series.add(display.look(self.run.on(self.node).conn, self.node))
                unheard.look(serial.beacon)
            except GuestError as error:  # services start one by one: WinRM may answer first
                says += f"; it says: {(error.why or error.what).splitlines()[0]}"
            there.disconnect()
            return Waiting(says, domains.written_bytes(self.run.on(self.node).conn, self.node))

        def give_up(_: Waiting) -> StalledError:
            up = f"It is up, and answers neither WinRM nor ssh: {printable(serial.beacon)}" if serial.beacon else ""
            stalled = StalledError(
                f"'{self.node.name}' has shown no sign of life for {limit / 60:.0f} min; winlab waits for it {what}.",
                why=up,
                cure=f"Look at its screen with 'winlab vnc {self.node.name}', then run the same command again.",
                evidence=f"winlab serial {self.node.name} --log",
            )
            evidence.keep(self.run, self.node, partial(setup_logs.read, self.run, self.node), stalled, progress)
            return stalled

        wait.until(look, progress, give_up, stall=limit)


def _differing(wanted: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    return sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))


def _outdated(facts: WindowsFacts) -> bool:
    """Whether the programs came from a CD other than the one in the drive: a golden image may be older."""
    return bool(facts.installed_from) and facts.installed_from != facts.cd


def _ask_restart(there: NodeScripts) -> None:
    """Ask Windows to restart. Whether it does shows only later: its answer may be cut off or come while it shuts down.

    /f: with Administrator logged on at the screen, Windows refuses (1191). /t 5: the answer comes first.

    :raises GuestCommandError: shutdown.exe refused.
    """
    try:
        there.execute(["shutdown.exe /r /f /t 5 /d p:4:1 /c winlab"])
    except GuestCommandError as error:
        if error.code not in UNDER_WAY:
            raise
    except GuestError:
        return


def _restarted(before: WindowsFacts, facts: WindowsFacts) -> bool:
    """Whether Windows has restarted: by its count of starts, or if its boot time moved by more than :data:`MOVED`."""
    counts = {before.boot_id, facts.boot_id}
    # where Windows counts no starts, status.ps1 gives the boot time as the number: then only the time shows it
    if len(counts) == 2 and all(count and _seconds(count) is None for count in counts):
        return True
    earlier, later = _seconds(before.boot_time), _seconds(facts.boot_time)
    return earlier is not None and later is not None and abs(later - earlier) > MOVED


def _seconds(text: str) -> float | None:
    """A time that a node reported, in seconds since 1970; None if it is not a time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
