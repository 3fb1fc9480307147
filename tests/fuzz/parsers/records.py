"""winlab's own files after a bad day: journals, records, credentials, manifests and notes that are damaged or cut."""

from __future__ import annotations

import json
from pathlib import Path

import mutation
import plans
from fuzzing import parser

from winlab import events
from winlab.adapters.kube import kubeconfig
from winlab.design import spec
from winlab.design.catalog.artifact import Program
from winlab.design.plan import credentials
from winlab.design.render import topology
from winlab.engine.durations import Durations
from winlab.events import Note, Quiet, StepDone
from winlab.host import changes, facts
from winlab.host.site import certificates, messages
from winlab.lab_folder import LabFolder
from winlab.operations import recorded
from winlab.operations.planning import Proposal
from winlab.supply.artifacts import store
from winlab.supply.images import cache, digests, golden, library

from .archives import DISK, answer, write

assert topology


def messages_of_hosts() -> list[bytes]:
    key = certificates.make_key()
    request = certificates.make_request("c2", key)
    candidate = messages.Candidate(request=request, address="198.51.100.2")
    asked = messages.Request(
        chassis="c2", request=request, tunnel_address="203.0.113.2", tunnel_mtu=1442, databases=candidate
    )
    return [asked.model_dump_json().encode()]


@parser("host-request", messages_of_hosts, mutation.JSON)
def host_request(content: bytes, folder: Path) -> None:
    messages.read(messages.Request, content.decode(errors="replace"), "h2")


def design() -> list[bytes]:
    wanted = spec.load("1-1-1", [])
    lab = LabFolder("seed")
    recorded.write(lab, Proposal(wanted, plans.make(plans.KVM), plans.stock(wanted)))
    return [lab.design.read_bytes()]


@parser("design-record", design, mutation.JSON)
def record(content: bytes, folder: Path) -> None:
    lab = LabFolder("lab")
    lab.make()
    lab.design.write_bytes(content)
    recorded.read(lab).restored_spec()


def secrets() -> list[bytes]:
    return [credentials.generate(plans.make(plans.KVM)).model_dump_json().encode()]


@parser("credentials", secrets, mutation.JSON)
def credential(content: bytes, folder: Path) -> None:
    lab = LabFolder("lab")
    lab.make()
    (lab.path / "credentials.json").write_bytes(content)
    plan = plans.make(plans.KVM)
    lab.has_credentials_for(plan)
    lab.credentials()


@parser(
    "journal",
    lambda: [b"".join(json.dumps(events.record(one)).encode() + b"\n" for one in (StepDone(step="a"), Note(text="x")))],
    mutation.JSON,
    0.5,
)
def journal(content: bytes, folder: Path) -> None:
    lab = LabFolder("lab")
    lab.make()
    lab.journal.write_bytes(content)
    assert lab.record(Note(text="after it")) == ""
    last = lab.journal.read_bytes().splitlines()[-1]
    assert json.loads(last)["text"] == "after it"
    lab.journal.unlink()


@parser("durations", lambda: [b'{"kvm": {"booted": {"debian-13": [10.0, 12.5]}}}'], mutation.JSON)
def durations(content: bytes, folder: Path) -> None:
    known = Durations("kvm")
    known._path.parent.mkdir(parents=True, exist_ok=True)
    known._path.write_bytes(content)
    usual = known.usual("booted", "debian-13")
    assert usual is None or 0 <= usual < 1e12
    known.learn("booted", "debian-13", 5.0)
    assert known.usual("booted", "debian-13") is not None


def image_manifest() -> list[bytes]:
    recipe = cache.recipes.get("debian-13")
    made = {
        "file": "image.qcow2",
        "sha256": "a" * 64,
        "size": len(DISK),
        "origin": "x",
        "made": "2026-01-01T00:00:00Z",
        "seconds": 1.0,
        "recipe": recipe.model_dump(mode="json"),
        "key": "0" * 64,
        "packages": {"apt": "3"},
    }
    facts_ = {
        "key": "0" * 16,
        "build": "1",
        "programs": "x",
        "inputs": {},
        "medium": None,
        "evaluation_ends": "2027-01-01T00:00:00+00:00",
    }
    return [json.dumps(made).encode(), json.dumps({**made, "golden": facts_}).encode()]


@parser("image-manifest", image_manifest, mutation.JSON)
def images(content: bytes, folder: Path) -> None:
    answer()
    place = cache._store().folder("images") / ("0" * 64)
    place.mkdir(exist_ok=True)
    write(place, "image.qcow2", DISK)
    write(place, "manifest.json", content)
    cache.entries()
    golden.entries()
    for one in library.items():
        assert one.name
    for image in cache.entries():
        cache.manifest(image)


@parser(
    "artifact-manifest",
    lambda: [
        json.dumps(
            {
                "file": "kubelet",
                "sha256": "a" * 64,
                "size": 3,
                "origin": "x",
                "made": "2026-01-01T00:00:00Z",
                "seconds": 1.0,
                "artifact": {"kind": "program", "name": "kubelet", "version": "v1", "os": "linux"},
            }
        ).encode()
    ],
    mutation.JSON,
)
def artifacts(content: bytes, folder: Path) -> None:
    place = store._store().folder("files") / ("0" * 64)
    place.mkdir(exist_ok=True)
    write(place, "kubelet", b"abc")
    write(place, "manifest.json", content)
    for entry in store.entries():
        assert str(entry.obtained.artifact)
    store.lookup("0" * 64)


@parser("digest-cache", lambda: [b'{"/x/y": [9000000, 1, 2, "' + b"a" * 64 + b'"]}'], mutation.JSON, 0.5)
def digest_cache(content: bytes, folder: Path) -> None:
    digests._file().parent.mkdir(parents=True, exist_ok=True)
    digests._file().write_bytes(content)
    digests.remembered(Path("/x/y"))
    path = folder / "large"
    with path.open("wb") as file:
        file.truncate(digests.SMALL + 1)
    digests.SMALL = 10
    path.write_bytes(b"x" * 100)
    digests.sha256(path, Quiet())


@parser("merged-note", lambda: [b'["/tmp/never/config"]'], mutation.JSON, 0.5)
def merged(content: bytes, folder: Path) -> None:
    lab = LabFolder("lab")
    lab.make()
    (lab.path / kubeconfig.MERGED).write_bytes(content)
    kubeconfig.forget("lab")


@parser(
    "host-changes",
    lambda: [changes.HEADER.encode() + b"modes: {/x: {uid: 0, gid: 0, mode: 420}}\n"],
    mutation.YAML,
    0.5,
)
def host_changes(content: bytes, folder: Path) -> None:
    changes.Record(write(folder, "changes", content))


@parser(
    "host-facts",
    lambda: [b"accelerator: kvm\ndatapath: system\nchassis: c\nemulator_version: 9.2.0\nresolvers: [192.0.2.1]\n"],
    mutation.YAML,
    0.5,
)
def host_facts(content: bytes, folder: Path) -> None:
    facts.read_facts(write(folder, "host.yaml", content))


assert Program
