"""Starting and stopping the daemons that labs need: libvirt, Open vSwitch and OVN, with systemd or without it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from winlab import files, settings
from winlab.errors import HostError
from winlab.events import Progress
from winlab.host import databases_program
from winlab.host import external_program as external
from winlab.host import relay_program as program
from winlab.host.changes import Changes, Record
from winlab.run import find, run

LIBVIRTD_CONF = settings.HOST_FILE.with_name("libvirtd.conf")
LIBVIRTD_PID = Path("/run/libvirtd.pid")
OVS_CTL = Path("/usr/share/openvswitch/scripts/ovs-ctl")
OVN_CTL = Path("/usr/share/ovn/scripts/ovn-ctl")
OVS_RUN = Path("/run/openvswitch")
OVN_RUN = Path("/run/ovn")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# ovsdb-server gives its sockets mode 0770 less the umask (bind_unix_socket in Open vSwitch's lib/socket-util-unix.c):
# under the usual umask 0022 the group could not write, so could not connect.
GROUP_UMASK = "0002"

# The first unit of a row that exists is used: Debian and Ubuntu first, then Fedora.
UNITS = {
    "libvirt": (("libvirtd.socket",), ("virtqemud.socket", "virtstoraged.socket", "virtnetworkd.socket")),
    "ovs": (("openvswitch-switch.service",), ("openvswitch.service",)),
    "ovn-central": (("ovn-central.service",), ("ovn-northd.service",)),
    "ovn-host": (("ovn-host.service",), ("ovn-controller.service",)),
    "relay": ((program.UNIT.name,),),
    "external": ((external.UNIT.name,),),
}

# The daemons of each service on a host without systemd, in the order of starting.
SERVICES = {
    "libvirt": ("virtlogd", "libvirtd"),
    "ovs": ("ovs",),
    "ovn-central": ("northd",),
    "ovn-host": ("controller",),
    "relay": ("relay",),
    "external": ("external",),
}

# Without systemd and D-Bus there is no polkit, so the socket's group decides, as it does for polkit's rule anyway.
LIBVIRTD_TEXT = f"""\
# Written by 'winlab host setup' for hosts without systemd; libvirtd is started with it as -f.
unix_sock_group = "{settings.GROUP}"
unix_sock_ro_perms = "0770"
unix_sock_rw_perms = "0770"
auth_unix_ro = "none"
auth_unix_rw = "none"
"""


def has_systemd() -> bool:
    """Whether systemd runs this host (man sd_booted)."""
    return Path("/run/systemd/system").is_dir()


def boot_id() -> str:
    """The id of this boot: a daemon started in another boot is gone."""
    return BOOT_ID.read_text(encoding="ascii").strip()


def running(pidfile: Path, name: str) -> int | None:
    """The process id in *pidfile*, if that process is alive and its program is called *name*."""
    try:
        pid = int(pidfile.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return pid if program_of(pid) == name[:15] else None


def program_of(pid: int) -> str:
    """The program name of process *pid*, cut to 15 characters by the kernel; empty if it has ended."""
    try:
        name, _, rest = (Path("/proc") / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")
    except OSError:
        return ""
    # A zombie has ended, although its exit code was not read yet (man proc_pid_stat).
    return "" if rest.split()[0] == "Z" else name.partition("(")[2]


@dataclass(frozen=True)
class Daemon:
    """How a daemon is started without systemd."""

    name: str
    needs: str  # the required program
    is_up: Callable[[], bool]
    start: tuple[str, ...]
    stop: tuple[str, ...] | None = None  # None: a signal to the process in ``pidfile``
    pidfile: Path | None = None
    program: str = ""


def _virtlogd_up() -> bool:
    return running(Path("/run/virtlogd.pid"), "virtlogd") is not None


def libvirt_up() -> bool:
    """Whether libvirtd answers."""
    if find("virsh") is None:
        return False
    return run(["virsh", "-c", "qemu:///system", "uri"], check=False, timeout=30).returncode == 0


def ovs_up() -> bool:
    """Whether both daemons of Open vSwitch run."""
    pids = [running(OVS_RUN / f"{name}.pid", name) for name in ("ovsdb-server", "ovs-vswitchd")]
    return all(pid is not None for pid in pids)


def northd_up() -> bool:
    """Whether OVN's two databases and northd run."""
    pids = [running(OVN_RUN / f"{name}.pid", "ovsdb-server") for name in ("ovnnb_db", "ovnsb_db")]
    return all(pid is not None for pid in [*pids, running(OVN_RUN / "ovn-northd.pid", "ovn-northd")])


def controller_up() -> bool:
    """Whether ovn-controller runs."""
    return running(OVN_RUN / "ovn-controller.pid", "ovn-controller") is not None


def relay_up() -> bool:
    """Whether the relay of OVN's southbound database runs (winlab.host.site.relay)."""
    if has_systemd():
        return _unit_state("is-active", program.UNIT.name)
    return relay_pid() > 0


def relay_pid() -> int:
    """The process id of the relay; 0 if it does not run."""
    if has_systemd():
        words = ["systemctl", "show", "--property=MainPID", "--value", program.UNIT.name]
        return int(run(words, check=False, timeout=60).stdout.strip() or 0)
    return running(program.PID, "ovsdb-server") or 0


def external_up() -> bool:
    """Whether the program runs that joins the external bridges of a site's hosts (winlab.host.external_program)."""
    if has_systemd():
        return _unit_state("is-active", external.UNIT.name)
    return running(external.PID, external.PROGRAM.name) is not None


# Databases on three hosts; northd then does not start them.
_CLUSTERED = (
    f"if [ -x {databases_program.PROGRAM} ]; then "
    f"for one in nb sb; do {databases_program.PROGRAM} $one --detach --monitor || exit; done; fi"
)

DAEMONS = {
    "virtlogd": Daemon(
        "virtlogd", "virtlogd", _virtlogd_up, ("virtlogd", "-d"), pidfile=Path("/run/virtlogd.pid"), program="virtlogd"
    ),
    "libvirtd": Daemon(
        "libvirtd",
        "libvirtd",
        libvirt_up,
        ("libvirtd", "-d", "-f", str(LIBVIRTD_CONF)),
        pidfile=LIBVIRTD_PID,
        program="libvirtd",
    ),
    # "random" means: made once, then kept in /etc/openvswitch/system-id.conf (man ovs-ctl).
    "ovs": Daemon(
        "ovs", str(OVS_CTL), ovs_up, (str(OVS_CTL), "start", "--system-id=random"), stop=(str(OVS_CTL), "stop")
    ),
    "northd": Daemon(
        "northd",
        str(OVN_CTL),
        northd_up,
        ("sh", "-c", f"umask {GROUP_UMASK} && {_CLUSTERED} && exec {OVN_CTL} start_northd"),
        stop=("sh", "-c", f"{OVN_CTL} stop_northd; {OVN_CTL} stop_ovsdb"),
    ),
    "controller": Daemon(
        "controller",
        str(OVN_CTL),
        controller_up,
        (str(OVN_CTL), "start_controller"),
        stop=(str(OVN_CTL), "stop_controller"),
    ),
    "relay": Daemon(
        "relay",
        str(OVN_CTL),
        relay_up,
        (*program.arguments(), "--detach", "--monitor", f"--pidfile={program.PID}"),
        pidfile=program.PID,
        program="ovsdb-server",
    ),
    "external": Daemon(
        "external",
        str(external.PROGRAM),
        external_up,
        ("sh", "-c", f"setsid {external.PROGRAM} follow </dev/null >/dev/null 2>&1 & echo $! >{external.PID}"),
        pidfile=external.PID,
        program=external.PROGRAM.name,
    ),
}


def _unit_state(verb: str, unit: str) -> bool:
    return run(["systemctl", verb, "--quiet", unit], check=False, timeout=60).returncode == 0


def pick_units(service: str, exists: Callable[[str], bool]) -> tuple[str, ...]:
    """The systemd units of *service* on this distribution; empty if none is installed."""
    return next((row for row in UNITS[service] if exists(row[0])), ())


def units_of(service: str) -> set[str]:
    """Every systemd unit that *service* may have, on any distribution."""
    return {unit for row in UNITS[service] for unit in row}


def is_up(service: str) -> bool:
    """Whether *service* runs and answers, with systemd or without it."""
    return DAEMONS[SERVICES[service][-1]].is_up()


def ensure(service: str, record: Record, progress: Progress, *, enable: bool = True) -> None:
    """Make sure that *service* runs; libvirt with its socket open to the group.

    :param enable: with systemd, also start it at every boot from now on.
    :raises HostError: it is not installed or does not start.
    """
    if service == "libvirt":
        _ensure_libvirt(record, progress, enable)
    else:
        _ensure_service(service, SERVICES[service][-1], record, progress, enable)


def _ensure_units(service: str, record: Record, progress: Progress, enable: bool) -> None:
    units = pick_units(service, lambda unit: _unit_state("cat", unit))
    if not units:
        raise HostError(
            f"systemd has no unit for {service}.",
            why=f"None of these is installed: {', '.join(row[0] for row in UNITS[service])}.",
            cure="Run 'sudo winlab host setup --install', or install the packages that 'winlab doctor' names.",
        )
    for unit in units:
        if enable and not _unit_state("is-enabled", unit):
            record.add("units_enabled", unit)
            run(["systemctl", "enable", unit], timeout=120)
        if not _unit_state("is-active", unit):
            progress.say(f"starting {unit}")
            record.add("units_started", unit)
            run(["systemctl", "start", unit], timeout=180, cure=f"See 'journalctl -u {unit}'.")


def _ensure_daemon(daemon: Daemon, record: Record, progress: Progress) -> None:
    if daemon.is_up():
        return
    progress.say(f"starting {daemon.name}")
    record.changes.daemons[daemon.name] = boot_id()
    record.save()
    run(daemon.start, timeout=120)
    if not wait_until(daemon.is_up, 30):
        raise HostError(
            f"{daemon.name} was started but does not answer.",
            why=f"It was started with: {' '.join(daemon.start)}",
            cure="See its log.",
            evidence="/var/log/libvirt, /var/log/openvswitch, /var/log/ovn; messages of libvirtd go to syslog",
        )


def wait_until(check: Callable[[], bool], seconds: float) -> bool:
    """Repeat *check* until it returns true; False if it didn't within *seconds*."""
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _ensure_libvirt(record: Record, progress: Progress, enable: bool) -> None:
    if libvirt_up():
        return
    if has_systemd():
        _ensure_units("libvirt", record, progress, enable)
        if not wait_until(libvirt_up, 60):
            raise HostError("libvirt was started but does not answer.", cure="See 'journalctl -u libvirtd'.")
        return
    if find("libvirtd") is None:
        raise HostError("libvirtd is not installed.", cure="Run 'sudo winlab host setup --install'.")
    record.add("files", str(LIBVIRTD_CONF))
    files.replace_text(LIBVIRTD_CONF, LIBVIRTD_TEXT)
    for name in SERVICES["libvirt"]:
        _ensure_daemon(DAEMONS[name], record, progress)


def _ensure_service(service: str, daemon: str, record: Record, progress: Progress, enable: bool) -> None:
    if DAEMONS[daemon].is_up():
        return
    if has_systemd():
        _ensure_units(service, record, progress, enable)
        if not wait_until(DAEMONS[daemon].is_up, 60):
            raise HostError(f"{service} was started but does not run.", cure=f"See 'systemctl status {service}'.")
        return
    if not Path(DAEMONS[daemon].needs).exists():
        raise HostError(f"'{DAEMONS[daemon].needs}' is missing.", cure="Run 'sudo winlab host setup --install'.")
    _ensure_daemon(DAEMONS[daemon], record, progress)


def reload_libvirt() -> None:
    """Have libvirt's daemon, if it runs, read its hooks and definitions again (SIGHUP). Machines keep running."""
    if has_systemd():
        for row in UNITS["libvirt"]:  # a host may have both, of which one runs
            service = row[0].replace(".socket", ".service")
            if _unit_state("is-active", service):
                run(["systemctl", "try-reload-or-restart", service], timeout=120)
    elif (pid := running(LIBVIRTD_PID, "libvirtd")) is not None:
        os.kill(pid, signal.SIGHUP)


def _stop_daemon(name: str, record: Record, progress: Progress) -> None:
    """Stop the daemon *name* if winlab started it in this boot, and remove it from the record."""
    started = record.changes.daemons.get(name)
    if started is None:
        return
    daemon = DAEMONS[name]
    if started == boot_id() and daemon.is_up():
        progress.say(f"stopping {name}")
        if daemon.stop is not None:
            run(daemon.stop, check=False, timeout=60)
        elif daemon.pidfile is not None and (pid := running(daemon.pidfile, daemon.program)) is not None:
            both = (pid, _monitor_of(pid, daemon.program))
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not any(map(program_of, both)), 15)
    del record.changes.daemons[name]
    record.save()


def _monitor_of(pid: int, program: str) -> int:
    """The process that restarts *pid* (``--monitor``, man ovsdb-server), which outlives it and writes to the same log.

    It is *pid* itself if there is none.
    """
    try:
        parent = int((Path("/proc") / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    except OSError:
        return pid
    return parent if program_of(parent) == program[:15] else pid


def halt(service: str, progress: Progress) -> None:
    """Stop a service, also one that setup did not start."""
    if has_systemd():
        _stop_units(list(pick_units(service, lambda unit: _unit_state("cat", unit))), progress)
    for name in reversed([] if has_systemd() else SERVICES[service]):
        if (stop := DAEMONS[name].stop) is not None:
            run(stop, check=False, timeout=60)


@contextmanager
def halted(service: str, record: Record, progress: Progress) -> Iterator[None]:
    """Stop a service for the length of a with-block. It runs afterwards, also if it did not before.

    :raises HostError: it does not start.
    """
    was, before = is_up(service), record.changes.model_copy(deep=True)
    halt(service, progress)
    try:
        yield
    finally:
        ensure(service, record, progress)
        if was:  # teardown treats it as before
            record.changes = before
            record.save()


def restart_northd() -> None:
    """Have ovn-northd read its arguments again, if it runs."""
    if has_systemd():
        run(["systemctl", "try-restart", "ovn-northd.service"], check=False, timeout=60)
    elif northd_up():
        run([str(OVN_CTL), "restart_northd"], timeout=60)


def _stop_units(units: list[str], progress: Progress) -> None:
    for unit in reversed(units):
        progress.say(f"stopping {unit}")
        run(["systemctl", "stop", unit], check=False, timeout=180)


def stop(service: str, record: Record, progress: Progress) -> None:
    """Stop what setup started of *service*, disable what it enabled, and remove both from the record."""
    changes, units = record.changes, units_of(service)
    for name in reversed(SERVICES[service]):
        _stop_daemon(name, record, progress)
    _stop_units([unit for unit in changes.units_started if unit in units], progress)
    for unit in reversed([unit for unit in changes.units_enabled if unit in units]):
        run(["systemctl", "disable", unit], check=False, timeout=120)
    _forget(service, record)


def stop_again(services: list[str], before: Changes, record: Record, progress: Progress) -> None:
    """Stop the just started *services* without disabling them, and restore the record to *before*."""
    for service in reversed(services):
        for name in reversed(SERVICES[service]):
            _stop_daemon(name, record, progress)
        units = units_of(service)
        _stop_units([unit for unit in record.changes.units_started if unit in units], progress)
    record.changes = before
    record.save()


def is_ours(service: str, record: Record) -> bool:
    """Whether setup started or enabled *service*."""
    known = {*record.changes.daemons, *record.changes.units_started, *record.changes.units_enabled}
    return bool(known & {*SERVICES[service], *units_of(service)})


def leave(service: str, record: Record) -> bool:
    """Remove *service* from the record, so that it keeps running; False if setup neither started nor enabled it."""
    ours = is_ours(service, record)
    _forget(service, record)
    return ours


def _forget(service: str, record: Record) -> None:
    changes, units = record.changes, units_of(service)
    for name in SERVICES[service]:
        changes.daemons.pop(name, None)
    changes.units_started = [unit for unit in changes.units_started if unit not in units]
    changes.units_enabled = [unit for unit in changes.units_enabled if unit not in units]
    record.save()
