"""Data from guests: results of scripts, logs, the serial port, screens, tags."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mutation
import plans
from fuzzing import parser
from lxml import etree

from winlab import documents
from winlab.adapters.guests.scripts import Lines
from winlab.adapters.vm import screen
from winlab.design.cause.reading import explain, log_of
from winlab.design.contract import on_linux, on_windows  # noqa: F401 - have calls
from winlab.design.contract.call import Call
from winlab.design.distribution import known  # noqa: F401 - has calls, too
from winlab.design.plan import tags
from winlab.errors import GuestError
from winlab.events import Note, record
from winlab.operations.explain import explain_file
from winlab.printable import printable
from winlab.steps.linux.system import LinuxSteps
from winlab.steps.serial import SerialLog

CALLS = Call.__subclasses__()


def results() -> list[bytes]:
    """A result of each script, with the fields that its contract names."""
    return [json.dumps(example(one.result)).encode() for one in CALLS]


def example(model: Any) -> dict[str, Any]:
    """An object that a model takes, made from its schema."""
    schema = model.model_json_schema()

    def of(row: dict[str, Any]) -> Any:
        if "$ref" in row:
            return of(schema["$defs"][row["$ref"].rpartition("/")[2]])
        if "anyOf" in row:
            return of(row["anyOf"][0])
        if "enum" in row:
            return row["enum"][0]
        if "const" in row:
            return row["const"]
        match row.get("type"):
            case "object" if isinstance(row.get("additionalProperties"), dict):
                return {"a": of(row["additionalProperties"])}
            case "object":
                return {name: of(field) for name, field in row.get("properties", {}).items()}
            case "array":
                return [of(row["items"])] if "items" in row else []
            case "integer":
                return 5
            case "number":
                return 1.5
            case "boolean":
                return True
            case _:
                return "text"

    made: dict[str, Any] = of(schema)
    return made


@parser("script-result", results, mutation.JSON)
def script_result(content: bytes, folder: Path) -> None:
    try:
        told = documents.from_json(content)
    except ValueError:  # adapters.guests.scripts reports it
        return
    for call in CALLS:
        if isinstance(told, dict):
            try:
                call.read(SimpleNamespace(result=call.result, script=call.script), told, "node-1", "lab")  # type: ignore[arg-type]
            except GuestError as error:
                assert error.why


SERIAL = (
    b'BdsDxe: starting Boot0001 "UEFI QEMU DVD-ROM QM00001 "\r\n[ 0.1] Linux\r\nwinlab: phase=setup \r\nwinlab: error=no disk\r\n',
    b"[ 1.0] BUG: unable to handle\r\n---[ end Kernel panic - not syncing: x ]---\r\n",
)


@parser("serial-log", lambda: SERIAL, mutation.TEXT)
def serial_log(content: bytes, folder: Path) -> None:
    log = SerialLog(SimpleNamespace(), "x")  # type: ignore[arg-type]
    for begin in range(0, len(content), 97):
        log._take(content[begin : begin + 97])
    assert isinstance(log.panic or log.oops or log.failure or log.phase, str)


@parser("streamed-lines", lambda: (b"one\ntwo\r\n{}\n", b"\xff" * 100), mutation.TEXT, 0.5)
def streamed(content: bytes, folder: Path) -> None:
    heard: list[str] = []
    lines = Lines(heard.append)
    for begin in range(0, len(content), 7):
        lines(content[begin : begin + 7])
    lines.end()
    for line in heard:
        assert "\x1b" not in printable(line)
        json.dumps(record(Note(text=line))).encode()


@parser("screen", lambda: (b"P6\n640 480\n255\n" + bytes(640 * 480 * 3), b"P6 1 1 255\nabc"), mutation.BYTES)
def ppm(content: bytes, folder: Path) -> None:
    made = screen.signature(content)
    assert len(made) in (0, screen.COLUMNS * screen.ROWS)
    screen.differs(made, screen.signature(b""))


def domain() -> bytes:
    plan = plans.make(plans.KVM)
    root = etree.Element("domain")
    for node in plan.nodes[:1]:
        etree.SubElement(root, "metadata").append(tags.element(plan, node))
    return etree.tostring(root)


def attributes(rng: mutation.random.Random, content: bytes) -> bytes:
    """libvirt writes well-formed XML, with any values and elements that users put into a domain's metadata."""
    try:
        root = etree.fromstring(content)
    except etree.XMLSyntaxError:
        return content
    element = rng.choice([one for one in root.iter() if isinstance(one.tag, str)])
    words = "".join(letter for letter in rng.choice(mutation.TEXTS) if letter.isprintable() and letter != "\ud800")
    match rng.randrange(5):
        case 0 if element.attrib:
            element.set(rng.choice(list(element.attrib)), words)
        case 1 if element.attrib:
            del element.attrib[rng.choice(list(element.attrib))]
        case 2:
            element.append(etree.Comment("x"))
        case 3:
            element.insert(0, etree.fromstring(etree.tostring(element)))
        case _:
            element.tag = rng.choice(("metadata", "x", f"{{{tags.XMLNS}}}node", "{urn:winlab:domain:9}node"))
    return etree.tostring(root)


@parser("domain-tag", lambda: [domain()], (attributes,))
def domain_tag(content: bytes, folder: Path) -> None:
    tag = tags.read(content.decode())
    tags.lab_of(content.decode())
    if tag is not None:
        assert tag.system


@parser("cloud-init-result", lambda: [b'{"v1": {"datasource": "x", "errors": []}}'], mutation.JSON)
def cloud_init(content: bytes, folder: Path) -> None:
    system = LinuxSteps.__new__(LinuxSteps)
    system._node = SimpleNamespace(name="node-1")  # type: ignore[assignment]
    system.check_first_boot(content.decode("utf-8", "replace"))


RECORDED = Path(__file__).parents[2] / "unit/design/cause/logs"


def recorded() -> list[bytes]:
    """Logs that known causes explain, also as Windows writes them."""
    logs = [path.read_bytes() for path in sorted(RECORDED.glob("*.*")) if path.suffix != ".md"]
    return [*logs, *(log.decode().encode("utf-16") for log in logs[::7])]


@parser("log-to-explain", recorded, mutation.TEXT)
def log_to_explain(content: bytes, folder: Path) -> None:
    for name in ("serial.log", "journal.jsonl"):
        for shown in explain([log_of(name, content)]):
            assert 0 < len(shown.evidence) <= shown.lines
            assert all(line.text == printable(line.text) for line in shown.evidence)


def archives() -> list[bytes]:
    """Archives of the same logs, packed and not."""
    made = []
    for mode in ("w:gz", "w"):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
            for number, content in enumerate(recorded()[:12]):
                row = tarfile.TarInfo(f"winlab-support-lab/nodes/node-{number}/{'x' * 20 * number}serial.log")
                row.size = len(content)
                archive.addfile(row, io.BytesIO(content))
        made.append(file.getvalue())
    return made


@parser("archive-to-explain", archives, mutation.BYTES)
def archive_to_explain(content: bytes, folder: Path) -> None:
    (folder / "it").write_bytes(content)
    json.dumps(explain_file(folder / "it").document()).encode()
