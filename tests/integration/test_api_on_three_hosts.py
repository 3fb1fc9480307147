"""The API address of three controllers on three hosts: who answers while a host is gone.

The hosts are namespaces (tests/hosts), with OVN's databases on all three. A network namespace on each is in place of a
controller's machine. etcd and the API server in it are real, and talk through the tunnels between the hosts. The times
without an answer are printed; docs/hypervisors-reference.md has a table of them.
"""

from __future__ import annotations

import ipaddress
import subprocess  # noqa: TID251 - asks the API while something else happens
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import plans
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from flagged import Authority
from guests import plug, write
from hosts import MANAGEMENT, TUNNELS, Host, Hosts, install, one_site, within
from test_three_hosts import join

from winlab.design.catalog import versions
from winlab.design.catalog.artifact import Program
from winlab.design.plan.facts import HostFacts
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.events import Quiet
from winlab.supply.artifacts.build.source import BuildSource

pytestmark = pytest.mark.slow  # two minutes

LAB = "api"
LIMIT = 600  # seconds: only a hang exceeds it
IN_A_ROW = 30  # answers: if one of three servers is gone, and still gets its share, fewer are likely (0.0005 %)
FOLDER = "/var/lib/controller"
# Asks up to ten times a second, on a new connection each time, and prints what it was answered.
ASK = """
import http.client, ssl, sys, time
address, port, folder = sys.argv[1:]
context = ssl.create_default_context(cafile=folder + "/ca.crt")
context.load_cert_chain(folder + "/admin.crt", folder + "/admin.key")
while True:
    begun = time.time()
    connection = http.client.HTTPSConnection(address, int(port), timeout=2, context=context)
    try:
        connection.request("GET", "/api/v1/namespaces/default")
        said = str(connection.getresponse().status)
    except OSError as error:
        said = type(error).__name__
    connection.close()
    print(begun, said, flush=True)
    time.sleep(max(0, begun + 0.1 - time.time()))
"""


@dataclass
class Site:
    """Three hosts, and a controller on each."""

    hosts: Hosts
    plan: Plan
    programs: dict[str, Path]

    def start(self, host: Host, node: NodePlan) -> None:
        """Start a controller's etcd and API server on its host, where its namespace is plugged in."""
        plug(host, self.plan, node)
        inside = ("ip", "netns", "exec", f"{LAB}.{node.name}")
        host.run("ip", "-n", f"{LAB}.{node.name}", "link", "set", "lo", "up")
        for name, flags in (("etcd", self._etcd(node)), ("kube-apiserver", self._api_server(node))):
            words = ("setsid", *inside, str(self.programs[name]), *flags)
            host.run("sh", "-c", f'"$@" >{FOLDER}/{name}.log 2>&1 </dev/null &', "_", *words)

    def boot(self, number: int) -> None:
        """Power a host on, and have its controller run again."""
        host = self.hosts.all[number]
        host.on()
        host.winlab("host", "setup")
        self.start(host, self.plan.nodes[number])

    def _etcd(self, node: NodePlan) -> list[str]:
        members = ",".join(f"{one.name}=http://{one.address}:2380" for one in self.plan.nodes)
        peers, clients = f"http://{node.address}:2380", "http://127.0.0.1:2379"
        return [
            *(f"--name={node.name}", f"--data-dir={FOLDER}/etcd", f"--initial-cluster={members}"),
            *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
            *(f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}"),
        ]

    def _api_server(self, node: NodePlan) -> list[str]:
        return [
            *(f"--advertise-address={node.address}", "--secure-port=6443", "--etcd-servers=http://127.0.0.1:2379"),
            *("--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.43.0.0/16"),
            *(f"--client-ca-file={FOLDER}/ca.crt", f"--tls-cert-file={FOLDER}/kube-apiserver.crt"),
            f"--tls-private-key-file={FOLDER}/kube-apiserver.key",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            *(f"--service-account-key-file={FOLDER}/sa.pub", f"--service-account-signing-key-file={FOLDER}/sa.key"),
        ]

    @contextmanager
    def asking(self, where: Host) -> Iterator[Answers]:
        """Ask the API from a host for the length of a with-block."""
        address, _, port = self.plan.cluster.external.partition(":")
        words = where.words("python3", "-c", ASK, address, port, FOLDER)
        with tempfile.NamedTemporaryFile("w+") as said, subprocess.Popen(words, stdout=said) as process:
            yield Answers(Path(said.name))
            process.terminate()


@dataclass
class Answers:
    """What a host heard from the API."""

    path: Path

    def all(self) -> list[tuple[float, bool]]:
        """When it asked, and whether it was answered."""
        lines = [line.split() for line in self.path.read_text().splitlines()]
        return [(float(words[0]), words[1] == "200") for words in lines if len(words) == 2]

    def until_whole(self, after: float = 0) -> None:
        """Wait until many requests in a row are answered."""
        end = time.monotonic() + LIMIT
        while True:
            heard = [answered for when, answered in self.all() if when > after]
            if len(heard) >= IN_A_ROW and all(heard[-IN_A_ROW:]):
                return
            assert time.monotonic() < end, self.path.read_text()[-2000:]
            time.sleep(0.5)

    def report(self, since: float) -> str:
        """The longest time without an answer, and until when requests failed."""
        heard = [(when, answered) for when, answered in self.all() if when > since - 1]
        answered = [when for when, is_answered in heard if is_answered]
        failed = [when for when, is_answered in heard if not is_answered]
        longest = max(later - earlier for earlier, later in pairwise(answered))
        last = max(failed, default=since) - since
        return f"longest without an answer {longest:.1f} s, {len(failed)} requests failed, the last after {last:.1f} s"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    install()
    known = versions.get()
    wanted = [Program("kube-apiserver", known.kubernetes, "linux"), Program("etcd", known.etcd, "linux")]
    obtained = BuildSource(known.kubernetes).obtain_all(wanted, Quiet())
    programs = {item.artifact.name: item.path for item in obtained if isinstance(item.artifact, Program)}
    with Hosts("h1", "h2", "h3") as made:
        first, second, third = made.all
        one_site(first, second, third, user="ann")
        join(second)  # now that a third one waits, the databases are on all of them
        for host in (third, second, first):
            host.winlab("host", "setup")
        for host in (second, third):
            name, uri = f"hypervisor-{host.name[1:]}", f"qemu+ssh://root@{host.name}/system"
            first.winlab("hypervisor", "add", name, uri)
        facts = HostFacts.model_validate(yaml.safe_load(first.run("cat", "/etc/winlab/host.yaml").stdout))
        plan = plans.make(facts, "3-0-1", lab=LAB)
        nodes = [node.model_copy(update={"hypervisor": f"hypervisor-{i}"}) for i, node in enumerate(plan.nodes, 1)]
        site = Site(made, plan.model_copy(update={"nodes": tuple(nodes)}), programs)
        folder = tmp_path_factory.mktemp("pki")
        keys(folder, site.plan)
        write(first, site.plan)
        for host, node in zip(made.all, site.plan.nodes, strict=True):
            host.run("mkdir", FOLDER)
            for path in folder.iterdir():
                host.run("sh", "-c", f"cat >{FOLDER}/{path.name}", stdin=path.read_text())
            site.start(host, node)
        yield site
    assert made.left() == []


def keys(folder: Path, plan: Plan) -> None:
    """The certificates and keys of the API servers and of an administrator."""
    addresses = {node.address for node in plan.nodes}
    addresses |= {endpoint.partition(":")[0] for endpoint in (plan.cluster.endpoint, plan.cluster.external)}
    authority = Authority(folder, "ca")
    authority.sign("kube-apiserver", names=[x509.IPAddress(ipaddress.ip_address(one)) for one in sorted(addresses)])
    authority.sign("admin", "system:masters")
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "sa.key").write_bytes(private)
    (folder / "sa.pub").write_bytes(public)


def lose(site: Site, lost: int, asker: int, what: str, act: Callable[[], object], back: Callable[[], object]) -> None:
    """Have one host go and come back while another one asks the API; all requests are answered again each time."""
    with site.asking(site.hosts.all[asker]) as answers:
        answers.until_whole()
        for name, do in ((what, act), ("is back", back)):
            begun = time.time()
            do()
            time.sleep(8)  # it is noticed
            answers.until_whole(begun + 8)
            print(f"\nthe host of {site.plan.nodes[lost].name} {name}: {answers.report(begun)}", flush=True)


def test_the_api_answers_while_a_host_has_no_power(site: Site) -> None:
    lose(site, 2, 0, "loses power", site.hosts.all[2].off, lambda: site.boot(2))


def test_the_api_answers_while_a_host_is_cut_off(site: Site) -> None:
    second = site.hosts.all[1]
    cards = (MANAGEMENT, TUNNELS)
    cut, joined = (lambda: [second.cut(card) for card in cards]), (lambda: [second.join(card) for card in cards])
    lose(site, 1, 0, "is cut off", cut, joined)


def test_the_api_answers_while_the_first_host_has_no_power(site: Site) -> None:
    lose(site, 0, 1, "loses power", site.hosts.all[0].off, lambda: site.boot(0))


def test_all_three_servers_answer_in_the_end(site: Site) -> None:
    words = ("ovn-sbctl", "--no-leader-only", "--bare", "--columns=status", "list", "Service_Monitor")
    within(lambda: site.hosts.all[0].run(*words).stdout.split() == ["online"] * 3)
