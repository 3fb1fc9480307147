"""Whether winlab's firewall table is there and as setup writes it, for root and for others; and who restores it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from winlab.design.plan.facts import HostFacts
from winlab.errors import HostError
from winlab.events import Progress, Quiet
from winlab.host import bridges, changes, check, checks_services, fabric, facts, firewall, subnet
from winlab.run import Result

CIDR = "10.9.0.0/20"
OTHER = "has other rules than setup writes"
GONE = "is missing or out of date"


class Host:
    """Its table, as nft(8) lists it to root; empty without one."""

    def __init__(self) -> None:
        self.table = ""
        self.readable = True
        self.uplinks: list[str] = []
        self.loaded = 0

    def run(self, args: list[str], *, stdin: str | None = None, **_: object) -> Result:
        if args == ["nft", "-f", "-"]:
            assert stdin is not None
            self.table = listed(stdin)
            self.loaded += 1
            return Result((), 0, "", "", 0.0)
        assert args == ["nft", "list", "table", "inet", "winlab"]
        if self.readable and self.table:
            return Result((), 0, self.table, "", 0.0)
        error = "No such file or directory" if self.readable else "Operation not permitted (you must be root)"
        return Result((), 1, "", error, 0.0)

    def trouble(self, cidr: str = CIDR, datapath: str = "system") -> str:
        return firewall.table_trouble(HostFacts(external_cidr=cidr, datapath=datapath))


class Probe:
    """A socket of this host, which refuses to send where a table's rule forbids it."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None: ...

    def sendto(self, data: bytes, address: tuple[str, int]) -> None:
        assert data == b""
        if f"ip daddr {address[0]} udp dport {address[1]} " in self._host.table:
            raise PermissionError


def listed(rules: str) -> str:
    """Rules as the kernel lists them: some packets were counted, and names of protocols may be missing."""
    text = rules[rules.index("table inet winlab {") :].replace("{ icmp, ipv6-icmp }", "{ 1, 58 }")
    return text.replace("counter ", "counter packets 7 bytes 588 ")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    made = Host()
    made.table = listed(firewall.ruleset(CIDR, "system"))
    forward = tmp_path / "ip_forward"
    forward.write_text("1")
    monkeypatch.setattr(firewall, "FORWARD", forward)
    monkeypatch.setattr(firewall, "run", made.run)
    monkeypatch.setattr(firewall.socket, "socket", lambda *_: Probe(made))
    monkeypatch.setattr(firewall, "found_firewalls", list)
    monkeypatch.setattr(firewall, "Record", lambda: changes.Record(tmp_path / "changes"))
    monkeypatch.setattr(firewall, "alone", lambda _progress: nullcontext())
    monkeypatch.setattr(bridges, "leading_on", lambda: made.uplinks)
    monkeypatch.setattr(facts, "read_facts", lambda: HostFacts(recorded=True, external_cidr=CIDR))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return made


def test_a_table_as_setup_writes_it(host: Host) -> None:
    assert host.trouble() == ""
    host.table = listed(firewall.ruleset(CIDR, "netdev", ["br-lan"]))
    host.uplinks = ["br-lan"]
    assert host.trouble(datapath="netdev") == ""


def test_a_table_for_another_host(host: Host) -> None:
    assert host.trouble("10.8.0.0/20") == OTHER
    assert host.trouble(datapath="netdev") == OTHER
    host.uplinks = ["br-lan"]
    assert host.trouble() == OTHER
    host.table, host.uplinks = listed(firewall.ruleset(CIDR, "system", ["br-lan"])), []
    assert host.trouble() == OTHER  # an exception that holds no longer


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (' comment "labs reach no service of this host"', ""),
        ('drop comment "labs reach no service', 'accept comment "labs reach no service'),
        ('\t\tiifname "br-winlab" jump guests\n', ""),
        ('iifname "br-winlab" jump guests', 'iifname "br-other" jump guests'),
        ("dport 53", "dport 22"),
        ('oifname != "br-winlab"', 'oifname "br-winlab"'),
        ("ct status dnat", "ct status snat"),
        ("established,related", "established,related,new"),
        ("169.254.0.0/16", "169.254.0.0/24"),
        ("52:54:01:00:00:00", "52:54:00:00:00:00"),
        ("hook input", "hook output"),
        ("policy accept", "policy drop"),
        ("\tchain guests {\n", '\tchain guests {\n\t\tiifname "br-winlab" accept\n'),
    ],
)
def test_a_changed_rule(host: Host, old: str, new: str) -> None:
    assert old in host.table
    host.table = host.table.replace(old, new)
    assert host.trouble() == OTHER


def test_a_flushed_table_is_seen_by_any_user(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.readable = False
    assert host.trouble() == ""
    host.table = ""
    assert host.trouble() == GONE
    host.readable = True
    assert host.trouble() == GONE


def test_other_causes_that_keep_the_probe_from_being_sent(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another firewall that drops it hides nothing from root. A loopback device that is down shows others nothing."""

    def fail(error: type[OSError]) -> None:
        def sendto(*_: object) -> None:
            raise error

        monkeypatch.setattr(Probe, "sendto", sendto)

    host.table = ""
    fail(PermissionError)
    assert host.trouble() == GONE
    firewall.require(Quiet())
    assert host.loaded == 1
    host.readable = False
    fail(OSError)
    assert host.trouble() == GONE


def test_the_firewall_of_another_host_is_not_checked(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.table = ""
    assert firewall.trouble() == GONE
    monkeypatch.setenv("WINLAB_OVN_NB", "tcp:192.0.2.1:6641")
    assert firewall.trouble() == ""
    firewall.require(Quiet())
    assert host.loaded == 0


@pytest.mark.parametrize("broken", ["", "table inet winlab {\n}\n"])
def test_root_restores_the_table_as_setup_does(host: Host, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    locked: list[Progress] = []

    def alone(progress: Progress) -> nullcontext[None]:
        locked.append(progress)
        return nullcontext()

    monkeypatch.setattr(firewall, "alone", alone)
    firewall.require(Quiet())
    assert (host.loaded, len(locked)) == (0, 0)
    host.table = broken
    firewall.require(Quiet())
    assert (host.loaded, len(locked)) == (1, 1)
    assert firewall.trouble() == ""
    assert firewall.Record().changes.table  # teardown removes it


def test_another_user_is_refused(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    host.readable = False
    firewall.require(Quiet())
    host.table = ""
    with pytest.raises(HostError, match=r"inet winlab.*is missing") as caught:
        firewall.require(Quiet())
    assert "systemctl reload nftables" in caught.value.why
    assert "'sudo winlab host setup'" in caught.value.cure
    assert host.loaded == 0


@pytest.mark.parametrize("user", [0, 1000])
def test_doctor(host: Host, monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    def asked() -> check.Requirement:
        return checks_services.bridge(check.Host(HostFacts(recorded=True, external_cidr=CIDR)))[-1]

    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setattr(fabric, "bridge_trouble", lambda *_: "")
    monkeypatch.setattr(subnet, "used_here", lambda _bridge: [])
    monkeypatch.setattr(checks_services, "run", lambda *_, **__: Result((), 0, "", "", 0.0))
    host.readable = user == 0
    assert asked().state is check.Status.OK
    assert ("not known without root: 'sudo winlab doctor'" in asked().detail) == (user != 0)
    host.table = ""
    assert (asked().state, asked().cure) == (check.Status.FAIL, check.SETUP)
    assert "guests reach the services of this host" in asked().why
