"""Files and settings that made other tools fail, kept in tests/field; docs/field-reports.md says what users saw."""

from __future__ import annotations

import errno
import io
import json
import ssl
import struct
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
import httpcore
import httpx
import plans
import pytest
from isos import BOOT, make_server_medium, make_wim

from winlab import documents
from winlab.cli import main
from winlab.design.catalog import recipes, versions
from winlab.design.plan import advice
from winlab.design.render import answer, proxy
from winlab.design.render.templates import expand
from winlab.design.spec import Spec
from winlab.errors import HostError, UsageError
from winlab.events import Quiet
from winlab.host import facts, subnet
from winlab.operations import explain, load, lock_file
from winlab.supply import disk_format, download, http_client, proxies
from winlab.supply.artifacts.oci import archive
from winlab.supply.images import stock, windows_media
from winlab.supply.media import drivers, inspection, small_iso, windows_iso, windows_names

FIELD = Path(__file__).parents[1] / "field"


def rows(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = documents.from_yaml((FIELD / name).read_text(encoding="utf-8"))
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The proxies that requests went through, None for none; there are no variables."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    through: list[str | None] = []

    def handle(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        pool = transport._pool
        through.append(pool._proxy_url.host.decode() if hasattr(pool, "_proxy_url") else None)
        return httpx.Response(200)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", handle)
    return through


@pytest.mark.parametrize(
    "row", rows("proxies.yaml"), ids=lambda row: f"{row['report']} {row['variables']} {row['url']}"
)
def test_proxy_variables(row: dict[str, Any], asked: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in row["variables"].items():
        # each variable's proxy is identified by its host
        monkeypatch.setenv(name, value.replace("//p", f"//{name.replace('_', '-')}"))
    if "p:3128" in row["variables"].values():  # no scheme
        monkeypatch.setenv("HTTPS_PROXY", "HTTPS-PROXY:3128")
    with http_client.make(httpx.Timeout(1.0)) as client:
        if row["through"] == "refused":
            with pytest.raises(UsageError, match="ALL_PROXY"):
                client.get(row["url"])
            return
        client.get(row["url"])
    wanted = row["through"]
    assert asked == [wanted and wanted.lower().replace("_", "-")]
    if row["url"].startswith("http:"):  # requests to a proxy don't come from this host
        assert download.is_open_to_others(row["url"]) or wanted is None


@pytest.mark.parametrize("path", sorted((FIELD / "specs").glob("*.yaml")), ids=lambda path: path.stem)
def test_specs(path: Path) -> None:
    """The first line says what winlab does: ``REPORT: taken: FIELD=VALUE``, or ``REPORT: refused: WORDS``."""
    head, _, said = path.read_text(encoding="utf-8").partition("\n")[0].partition(": ")
    assert path.name.startswith(head.removeprefix("# ") + "-")
    verdict, _, what = said.partition(": ")
    if verdict == "refused":
        with pytest.raises(UsageError) as caught:
            Spec.load(str(path), environment={})
        assert what in str(caught.value)
        return
    spec: Any = Spec.load(str(path), environment={}).model_dump()
    name, _, wanted = what.partition("=")
    for part in name.split("."):
        spec = spec[int(part) if part.isdecimal() else part]
    assert str(spec) == wanted


@pytest.mark.parametrize("version", ["1.036", "1.3_6", "01.36", "1.36.01"])
def test_malformed_versions(version: str) -> None:
    asked = Spec.load(changes=[f"kubernetes.version={version}"], environment={}).kubernetes.version
    with pytest.raises(UsageError, match=f"'{version}' is not a version of Kubernetes"):
        versions.get(asked)


@pytest.mark.parametrize("path", sorted((FIELD / "answers").iterdir()), ids=lambda path: path.name)
def test_answer_files(path: Path) -> None:
    node = plans.make(plans.KVM, "1-1-1", f"workers.template={path}").node("node-1")
    assert "NODE-1" in answer.answer_xml(node, "a password", expand)


@pytest.mark.parametrize("boot", ["/EFI/MICROSOFT/BOOT", "/efi/Microsoft/Boot"])
def test_f23_names_on_media_are_found_in_any_case(tmp_path: Path, boot: str) -> None:
    path = make_server_medium(tmp_path / "w.iso", boot=boot, fix="BOOTFIX.BIN")
    assert inspection.inspect(path).starts_silently
    assert not windows_iso.must_have_a_key(path)
    (catalog, sector), (name, renamed) = windows_iso.no_prompt_patches(path)
    assert b"bootfix.off" in renamed
    with path.open("r+b") as file:
        for offset, content in ((catalog, sector), (name, renamed)):
            file.seek(offset)
            file.write(content)
    assert not windows_iso.asks_for_a_key(path)
    assert not inspection.inspect(path).has("/boot/bootfix.bin")


@pytest.mark.parametrize("change", [str.lower, str.upper])
def test_f23_drivers_are_found_in_any_case(tmp_path: Path, change: Callable[[str], str]) -> None:
    names = [f"{driver}/2k22/amd64/d.inf" for driver in ("vioscsi", "NetKVM")]
    small_iso.write(tmp_path / "v.iso", "V", {change(name): b"x" for name in (*names, drivers.GUEST_TOOLS)})
    staged = drivers.stage(tmp_path / "v.iso", "2022", "virtio-scsi", "virtio")
    found = drivers.SETUP.lower()
    assert sorted(name.lower() for name in staged) == [
        *(f"{found}/netkvm/d.inf", f"{found}/vioscsi/d.inf", f"winlab/{drivers.GUEST_TOOLS}")
    ]


def test_f24_a_wim_without_images(tmp_path: Path) -> None:
    path = make_server_medium(tmp_path / "w.iso", wim=make_wim([]))
    (problem,) = inspection.inspect(path).problems
    assert problem.what == "'/sources/install.wim' has no images: it was not finished."
    with pytest.raises(UsageError, match="it was not finished") as caught:
        windows_media.check_release(recipes.get("windows-2022"), path)
    assert "None" not in str(caught.value)


def test_f24_a_wim_with_two_releases(tmp_path: Path) -> None:
    names = ["Windows Server 2019 SERVERSTANDARD", "Windows Server 2022 SERVERSTANDARD"]
    path = make_server_medium(tmp_path / "w.iso", wim=make_wim(names))
    assert inspection.inspect(path).release == "2019, 2022"
    windows_media.check_release(recipes.get("windows-2022"), path)
    with pytest.raises(UsageError, match="Server 2019, 2022, not 2025") as caught:
        windows_media.check_release(recipes.get("windows-2025"), path)
    assert caught.value.cure == "Add it as windows-2019 or windows-2022."


@pytest.mark.parametrize("path", sorted((FIELD / "channels").iterdir()), ids=lambda path: path.name)
def test_f29_ei_cfg_as_users_write_it(tmp_path: Path, path: Path) -> None:
    medium = make_server_medium(tmp_path / "w.iso", files={"boot.wim": BOOT, "ei.cfg": path.read_bytes()})
    assert inspection.inspect(medium).channel == "volume"


def test_f29_product_keys_as_users_write_them(tmp_path: Path) -> None:
    key = "ABCDE-12345-ABCDE-12345-ABCDE"
    (tmp_path / "key.txt").write_bytes(b"\xef\xbb\xbf" + key.lower().encode() + b"\r\n")
    for given in (f"@{tmp_path / 'key.txt'}", key.lower()):
        made = Spec.load(changes=[f"workers.product_key={given}"], environment={})
        assert made.workers[0].product_key == key
    with pytest.raises(UsageError, match="should be written as AAAAA-BBBBB-CCCCC-DDDDD-EEEEE") as caught:
        Spec.load(changes=["workers.product_key=ABC-1"], environment={})
    assert "ABC-1" not in str(caught.value)


def test_m1_nodes_behind_a_company_s_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exceptions as companies hand them out, in all their forms."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    excepted = "localhost, 127.0.0.1, .corp.example, '*.lan.example', 10.1.0.0/16, 192.168.1.10, 'fd00::/8', '::1'"
    given = ("network.proxy.http=http://proxy.corp.example:3128", f"network.proxy.no_proxy=[{excepted}]")
    for name, value in proxy.environment(plans.make(plans.KVM, "1-1-1", *given)).items():
        monkeypatch.setenv(name, value)
    through = {host: proxies.of(f"https://{host}") for host in ("registry.example", "10.96.0.1", "git.corp.example")}
    assert [host for host, found in through.items() if found] == ["registry.example"]


@pytest.mark.parametrize(("at", "size"), [(132, 3 << 30), (156 + 10, 3 << 30)])
def test_n7_a_sparse_medium_takes_no_memory(tmp_path: Path, at: int, size: int) -> None:
    """The size of the path table, and of the root's folder."""
    path = tmp_path / "w.iso"
    small_iso.write(path, "X", {"a": b"b"})
    with path.open("r+b") as file:
        file.truncate(4 << 30)
        file.seek(16 * 2048 + at)
        file.write(struct.pack("<I", size) + struct.pack(">I", size))

    def stage(path: Path) -> object:
        return drivers.stage(path, "2022", "sata", "e1000e")

    for read in (inspection.inspect, windows_iso.no_prompt_patches, stage):
        with pytest.raises(UsageError, match="is not a readable ISO image") as caught:
            read(path)
        assert "512 MiB" in caught.value.why


NAMES = {
    "F11": ["a:b.txt", "con", "nul.txt", "COM1", "x.", "x ", "a*b", "a?b", "a\\b", "a\nb", "folder:/a"],
    "F12": ["\u6587" * 22, "\u00fc" * 33],
    "F13": ["bad\udcff"],
}


def test_names_that_windows_can_t_have_are_refused_at_once(tmp_path: Path) -> None:
    taken = ["README", "Temp/a", "con\u00fc", "com10", ".x", "\u00fc" * 32]
    for name in (*(one for some in NAMES.values() for one in some), *taken, "readme", "temp/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match="Windows can't have files that the spec names") as caught:
        stock.take(Spec.load(changes=[f"workers.files={tmp_path}"], environment={}))
    told = caught.value.why.splitlines()
    assert len(told) == 16
    for words in ("'a:b.txt' has ':' in it", "'con' is the name of a device", "'bad\\\\xff' is not UTF-8", "'x.' ends"):
        assert f"workers.files of node: {words}" in caught.value.why
    for pair in ("'readme' and 'README'", "'temp' and 'Temp'"):
        assert f"{pair} are one name to Windows." in caught.value.why
    caught.value.why.encode()


def test_names_that_windows_can_have(tmp_path: Path) -> None:
    names = ["README", "con\u00fc", "com10", ".x", "\u00fc" * 32, "a b", "a/README"]
    small_iso.write(tmp_path / "o.iso", "X", dict.fromkeys(names, b""))
    windows_names.check([("workers.files", names)])


@pytest.mark.parametrize("row", rows("image-names.yaml"), ids=lambda row: f"{row['report']} {row['name']!r}")
def test_names_of_images(row: dict[str, Any], tmp_path: Path) -> None:
    if row["full"] is not None:
        assert archive.full_name(row["name"]) == row["full"]
        assert archive.full_name(row["full"]) == row["full"]
        return
    with pytest.raises(UsageError, match="is not a name of a container image"):
        load.prepare(str(tmp_path / "not-looked-for.tar"), tmp_path, name=row["name"], progress=Quiet())


def test_f19_an_endless_name() -> None:
    assert archive.full_name("a" * 247 + ":1").endswith("a:1")
    for name in ("a" * 248, "a" * 1_000_000, "a-" * 500_000 + "_"):
        with pytest.raises(UsageError):
            archive.full_name(name)


@pytest.mark.parametrize("mirror", ["https://m.example/pub?sig=s3cret", "https://m.example/pub#s3cret"])
def test_f27_mirrors_with_a_query_are_refused(mirror: str) -> None:
    with pytest.raises(UsageError, match=r"'m\.example' can't be used with a query or fragment") as caught:
        download.rewrite("https://publisher.example/x", mirror)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("mirror", ["https:/m.example", "https://", "http:m.example", "https://:443/x"])
def test_f27_mirrors_without_a_host_are_refused(mirror: str) -> None:
    with pytest.raises(UsageError, match="has no host"):
        download.rewrite("https://publisher.example/x", mirror)


def test_f27_a_folder_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "a?b#c").mkdir()
    assert download.rewrite("https://publisher.example/x", str(tmp_path / "a?b#c")) == tmp_path / "a?b#c" / "x"


def test_n12_an_endless_lock_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "winlab.lock"
    with path.open("w") as file:
        file.truncate(40 << 30)
    with pytest.raises(UsageError, match=f"has more than {4 << 20:,} bytes"):
        lock_file.read(path)


class Drip(httpcore.NetworkStream):
    """A server that sends one byte after the other, each after some seconds."""

    def __init__(self, clock: list[float], seconds: float, size: int = 1) -> None:
        self.clock, self.seconds, self.size = clock, seconds, size

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self.clock[0] += self.seconds
        return b"a" * self.size

    def write(self, buffer: bytes, timeout: float | None = None) -> None: ...

    def start_tls(self, *_: Any) -> httpcore.NetworkStream:
        return self


@pytest.mark.parametrize(("seconds", "size", "ends"), [(2, 1, True), (50, 4096, True), (2, 4096, False)])
def test_n24_an_answer_has_a_minimum_rate(
    seconds: float, size: int, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("winlab.supply.http_client.time.monotonic", lambda: clock[0])
    stream = http_client._PacedStream(Drip(clock, seconds, size)).start_tls(ssl.create_default_context())
    for _ in range(3):  # each question starts from scratch
        stream.write(b"GET")
        for _ in range(int(250 / seconds)):
            stream.read(1)
    if not ends:
        for _ in range(1000):
            stream.read(1)
        return
    with pytest.raises(http_client.TooSlowError, match=r"less than 1,024 bytes a second"):
        list(iter(lambda: stream.read(1), None))
    assert clock[0] < 3 * 250 + 400


def test_n24_every_download_has_it(asked: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://p:3128")
    with http_client.make(httpx.Timeout(1.0)) as client:
        for scheme in ("http", "https"):
            client.get(f"{scheme}://m.example")
        ways = client._transport._inner._ways.values()  # type: ignore[attr-defined]
        assert asked == [None, "p"]
        assert [type(way._pool._network_backend) for way in ways] == [http_client._Paced] * 2


@pytest.mark.parametrize("content", [bytes(4096), bytes(300 << 10), b"CD001" + bytes(3000)])
def test_f32_zeros_are_not_a_log(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plain.iso"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a text file"):
        explain.explain_file(path)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ascii", "utf-8"])
def test_f26_text_in_other_scripts_on_stdout(encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_server_medium(tmp_path / "\u6587\udcff.iso")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    assert commands.run(monkeypatch, "iso", "inspect", str(path)) == 0
    sys.stdout.flush()
    shown = written.getvalue().decode(encoding).replace("\n", "").replace(" ", "")
    assert ("\u6587" if encoding == "utf-8" else r"\u6587") in shown
    sys.stdout.close()


@pytest.mark.parametrize("more", [[], ["--output", "json"]])
def test_f26_a_full_disk_is_an_error_of_its_own(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_server_medium(tmp_path / "w.iso")
    full = [True]

    class Disk(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, content: Any) -> int:
            if full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return len(content)

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(Disk())))
    monkeypatch.setattr(main, "drop_output", full.clear)
    assert commands.run(monkeypatch, "iso", "inspect", str(path), *more) == HostError.exit_code
    said = capsys.readouterr().err
    assert said.count("The output can't be written") == 1
    assert "unexpected" not in said


def test_n14_load_checks_for_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def full(folder: Path, needed: int) -> None:
        asked.append(needed)
        raise HostError("full")

    layer = b"l" * 5000
    config = json.dumps({"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": ["x", "y"]}}).encode()
    manifest = json.dumps([{"Config": "c.json", "Layers": ["l.tar", "l.tar"], "RepoTags": ["<none>:<none>", "app"]}])
    with tarfile.open(tmp_path / "app.tar", "w") as made:
        for name, content in {"c.json": config, "l.tar": layer, "manifest.json": manifest.encode()}.items():
            row = tarfile.TarInfo(name)
            row.size = len(content)
            made.addfile(row, io.BytesIO(content))
    (found,) = archive.inspect(tmp_path / "app.tar")
    assert found.references == ("docker.io/library/app:latest",)
    monkeypatch.setattr(archive, "check_space", full)
    with pytest.raises(HostError):
        archive.convert(tmp_path / "app.tar", tmp_path / "o.tar", "linux", work=tmp_path)
    assert asked == [2 * (len(layer) + len(config))]


@pytest.mark.parametrize("head", [b"#\nversion=1\n", b"# x\n\n \r\n#\nversion=3\r\n", b"version=2\n"])
def test_n22_a_raw_image_that_qemu_mistakes_for_vmdk(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "x.raw"
    path.write_bytes(head + b'RW 2048 FLAT "secret" 0\n' + bytes(4096))
    with pytest.raises(UsageError, match="is refused") as caught:
        disk_format.check(path, "raw", "the file")
    assert "begins like vmdk" in caught.value.why
    path.write_bytes(b"#!/bin/sh\necho version=1\n" + bytes(4096))
    disk_format.check(path, "raw", "the file")


@pytest.mark.parametrize("row", rows("networks.yaml"), ids=lambda row: f"{row['report']} {row['field']}={row['value']}")
def test_networks(row: dict[str, Any]) -> None:
    if row["field"] == "external":
        if row["kept"] == "refused":
            with pytest.raises(UsageError, match="can't be the external subnet"):
                subnet.choose(row["value"], None, [])
            return
        assert subnet.choose(row["value"], None, []) == row["kept"]
        return
    change = f"{row['field']}={row['value']}"
    if row["kept"] == "refused":
        with pytest.raises(UsageError) as caught:
            Spec.load("1-1-1", [change])
        assert f"{row['value']} should be a private IPv4 network" in caught.value.why
        return
    made = plans.make(plans.KVM, "1-1-1", change)
    networks = {
        "network.cidr": made.network.cidr,
        "kubernetes.pod_cidr": made.cluster.pod_cidr,
        "kubernetes.service_cidr": made.cluster.service_cidr,
    }
    assert networks[row["field"]] == row["kept"]
    usual = plans.make(plans.KVM, "1-1-1", f"{row['field']}={row['kept']}")
    assert made.digest == usual.digest


@pytest.mark.parametrize(
    ("resolvers", "kept"),
    [
        ("nameserver 127.0.0.53\nnameserver 0.0.0.0\n", []),
        ("nameserver 224.0.0.251\nnameserver 255.255.255.255\nnameserver 192.0.2.53\n", ["192.0.2.53"]),
        # a cloud's: router and firewall let name servers pass (test_topology.py, test_host_parts.py)
        ("nameserver 169.254.169.254\n", ["169.254.169.254"]),
    ],
)
def test_f9_resolvers_of_the_host(resolvers: str, kept: list[str]) -> None:
    assert facts.parse_resolvers(resolvers) == kept


@pytest.mark.parametrize(
    ("server", "change", "why"),
    [
        ("127.0.0.53", "network.reach=all", "127.0.0.53 is not the address of another machine."),
        ("0.0.0.0", "network.reach=all", "0.0.0.0 is not the address of another machine."),
        ("255.255.255.255", "network.reach=all", "255.255.255.255 is not the address of another machine."),
        ("10.96.0.53", "network.reach=all", "10.96.0.53 is in the network of the services, 10.96.0.0/16."),
        ("10.244.1.53", "network.reach=all", "10.244.1.53 is in the network of the pods, 10.244.0.0/16."),
        ("10.77.0.101", "network.reach=all", "10.77.0.101 is in the network of the nodes, 10.77.0.0/24."),
        ("192.168.1.1", "network.cidr=192.168.1.0/24", "192.168.1.1 is in the network of the nodes, 192.168.1.0/24."),
    ],
)
def test_f10_resolvers_that_nodes_can_not_reach(server: str, change: str, why: str) -> None:
    with pytest.raises(UsageError, match="Nodes can't reach the name server") as caught:
        plans.make(plans.KVM, "1-1-1", change, f"network.dns=[192.0.2.1, {server}]")
    assert caught.value.why == why
    alone = plans.KVM.model_copy(update={"resolvers": [server]})
    with pytest.raises(UsageError, match="Nodes can't reach the name server"):
        plans.make(alone, "1-1-1", change)
    one_of_two = plans.KVM.model_copy(update={"resolvers": [server, "192.0.2.53"]})
    made = plans.make(one_of_two, "1-1-1", change)
    assert made.network.resolvers == ("192.0.2.53",)
    (said,) = [one for one in advice.advice(made) if "name server" in one]
    assert f"this host's name server {server}, which they can't reach. {why}" in said


@pytest.mark.parametrize(
    ("keyboard", "taken"),
    [
        ("0407:00000407", True),
        ("de-DE", True),
        ("0407:00000407;0409:00000409", True),
        ("de-DE;0409:00000409;sr-Latn-RS", True),
        ("0411:{03B5835F-F03C-411B-9CE2-AA23E1171E36}{A76C93D9-5523-4E90-AAFA-4DB112F9AC76}", True),
        ("0407:00000407;", False),
        (";0407:00000407", False),
        ("0407:00000407,0409:00000409", False),
        ("0407:407", False),
        ("German", False),
        ("de-DE;" * 10 + "de-DE", False),
        ("0411:{03B5835F-F03C-411B-9CE2-AA23E1171E36}", False),
        ("de-DE</InputLocale>", False),
    ],
)
def test_m5_keyboards(keyboard: str, taken: bool) -> None:
    """hashicorp/packer#5418."""
    changes = ["workers.os=windows-2022", f"workers.keyboard='{keyboard}'"]
    if not taken:
        with pytest.raises(UsageError, match="not valid") as caught:
            Spec.load("1-1-1", changes)
        assert "0407:00000407" in caught.value.why  # the example
        return
    made = plans.make(plans.KVM, "1-1-1", *changes)
    (node,) = made.windows_nodes()
    assert f"<InputLocale>{keyboard}</InputLocale>" in answer.answer_xml(node, "a password", expand)
