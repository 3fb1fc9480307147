"""Specs: YAML, --set, variables, templates, and the lock file beside them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import mutation
import plans
from fuzzing import TooSlowError, parser

from winlab import data
from winlab.design import spec
from winlab.design.plan import make as making
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Template
from winlab.design.render import answer, templates
from winlab.errors import UsageError
from winlab.events import Quiet
from winlab.operations import lock_file
from winlab.supply.images import stock

from .archives import write

loading = importlib.import_module("winlab.design.spec.load")  # the package has a function of that name

WORKERS = b"""controllers: {count: 1, memory: 4GiB}
workers:
- name: node
  count: 2
  os: windows-2022
  cpus: 2
  memory: 6GiB
  disk: 60GiB
  computer_name: auto
  scripts: [a.ps1]
  files: files
network:
  cidr: 10.77.0.0/24
  mtu: 1400
kubernetes:
  version: v1.36
cni: calico-vxlan
"""


def spec_files() -> list[bytes]:
    rows = [loading.path_of(name).read_bytes() for name in loading.names()]
    return [*rows, b"controllers: {count: 1}\nworkers: {count: 1}\n"]


@parser("spec", spec_files, mutation.YAML, 3)
def spec_file(content: bytes, folder: Path) -> None:
    path = write(folder, "lab.yaml", content)
    wanted = spec.load(str(path), [])
    taken = stock.take(wanted, Quiet())
    making.make(wanted, "lab", plans.KVM, taken)


SETS = (
    b"workers.cpus=4",
    b"workers.memory=8GiB",
    b"network.cidr=10.1.0.0/24",
    b"network.cni=calico-vxlan",
    b"addons.metrics-server={}",
    b"workers=[{name: a, count: 1}]",
    b"controllers={count: 3}",
)


@parser("set", lambda: SETS, (*mutation.TEXT, mutation.token), 2)
def set_value(content: bytes, folder: Path) -> None:
    change = content.decode("utf-8", "replace")
    wanted = spec.load("1-1-1", [change])
    making.make(wanted, "lab", plans.KVM, stock.take(wanted, Quiet()))


@parser(
    "variables",
    lambda: (b"WORKERS_MEMORY=8GiB", b"WORKERS_CPUS=4", b"NETWORK_CIDR=10.1.0.0/24", b"WORKERS_SCRIPTS=[]"),
    mutation.TEXT,
)
def variable(content: bytes, folder: Path) -> None:
    name, _, text = content.decode("utf-8", "replace").partition("=")
    spec.load("1-1-1", [], environment={f"WINLAB_{name}": text})


@parser("shorthand", lambda: (b"1-1-1", b"3-2-1", b"1-2-1"), (*mutation.TEXT, mutation.words), 0.5)
def shorthand(content: bytes, folder: Path) -> None:
    text = content.decode("utf-8", "replace")
    if "/" not in text:
        spec.load(text, [])


TEMPLATES = (
    b'{% extends "winlab/Autounattend.xml.j2" %}{% block specialize %}<c><n>{{ computer_name }}</n></c>{% endblock %}',
    b"{% macro m(a) %}{{ a }}{% endmacro %}{% for x in 'abc' %}{{ m(x) ~ loop.index }}{% endfor %}",
    b"{% set x = 'a' %}{% if x == 'a' %}{{ x | upper }}{% endif %}{{ [1, 2] | join(',') }}{{ 'x' * 3 }}",
    b"{% include 'own.j2' ignore missing %}{{ administrator_password | unattend_password('Password') }}",
    b"{% set ns = namespace(s='x') %}{% for n in range(9) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s | length }}",
)
PARTS = (  # none takes long: the kernel ends the child that renders templates, and nothing ends it here
    "{{ 'a' * 10 ** 9 }}",
    "{{ 10 ** 10 ** 8 }}",
    "{{ [0] * 10 ** 9 }}",
    "{{ 'a' | center(10 ** 9) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ 'a'.ljust(10 ** 9) }}",
    "{{ ('a' * 999999).replace('a', 'b' * 999999) }}",
    "{{ ('a' * 999999) | replace('a', 'b' * 999999) }}",
    "{{ range(99999) | list | length }}",
    "{{ 'a' | indent(10 ** 9) }}",
    "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% include 'own.j2' %}{% include 'own.j2' %}",
    "{% set s = 'x' * 9999 %}{% for n in range(40) %}{% set s = s ~ s %}{% endfor %}",
    "{% set ns = namespace(s='x') %}{% for n in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "{% set ns = namespace(s='x') %}{% for n in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% set ns = namespace(s=[1]) %}{% for n in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% set ns = namespace(s='x') %}{% for n in range(40) %}{% set v %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = v %}{% endfor %}",
    "{% filter center(10 ** 9) %}x{% endfilter %}",
    "{{ [1, 2] | batch(10 ** 9, 'x') | list }}",
    "{{ 'a'.join('b' * 999999) }}",
    "{{ ('a' * 99999) | wordwrap(1) | length }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ self }}",
    "{{ loop }}",
    "{{ cycler(1).next() }}",
    "{{ ('a\\t' * 9999).expandtabs(10 ** 8) }}",
    "{{ '1'.zfill(10 ** 9) }}",
    "{{ joiner() }}",
    "{{ 1 / 0 }}",
    "{{ 'a' | int(base=99) }}",
    "{{ x.y.z }}",
    "{{ ('9' * 9999) | int }}",
    "{{ 1e308 * 1e308 | int }}",
    "{{ 'a' * -1 }}",
    "{{ {} | tojson }}",
    "{{ '(' * 900 }}",
    "{% import 'own.j2' as o %}{{ o }}",
)


def parts(rng: mutation.random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content) + 1)
    part = rng.choice(PARTS)
    if rng.random() < 0.5:  # at the beginning of a complete template
        return part.encode() + content
    return content[:at] + part.encode() + content[at:]


VALUES = {
    "install": True,
    "firmware": "uefi",
    "language": "en-US",
    "locale_name": "en-US",
    "keyboard": "0409:00000409",
    "image_name": "x",
    "image_key": "/IMAGE/NAME",
    "product_key": None,
    "computer_name": "NODE-1",
    "time_zone": "UTC",
    "administrator_password": "secret",
}


def expand(texts: Mapping[str, str], name: str, values: Mapping[str, object]) -> str:
    """A template's text, made in this process, which has limits of its own; an input that takes too long is refused."""
    try:
        made = templates.expand(texts, name, values)
    except (Exception, TooSlowError) as error:
        raise answer.unusable(name, f"{type(error).__name__}: {error}") from error
    assert len(made) <= templates.LONGEST
    return made


@parser("template", lambda: TEMPLATES, (parts, parts, parts, *mutation.TEXT), 2)
def template(content: bytes, folder: Path) -> None:
    path = write(folder, "own.j2", content)
    own = stock.own_template(path)
    with suppress(UsageError):  # a seed includes itself
        expand(templates.for_own("windows", own.texts), own.name, VALUES)


def plan_of_template(folder: Path) -> Plan:
    return plans.make(plans.KVM, "1-1-1", f"workers.template={folder / 'own.j2'}")


@parser("answer-file", lambda: TEMPLATES[:1], (parts, *mutation.TEXT), 0.5)
def answer_file(content: bytes, folder: Path) -> None:
    node = plans.make(plans.KVM, "1-1-1").node("node-1")
    own = Template(name="own.j2", texts={"own.j2": content.decode("utf-8", "replace")})
    answer.answer_xml(
        node.model_copy(update={"windows": node.windows.model_copy(update={"template": own})}), "secret", expand
    )


def lock() -> bytes:
    plan = plans.make(plans.KVM)
    rows = lock_file.collect(
        plan,
        [],
        spec="1-1-1",
        images=[lock_file.LockedImage(name="debian-13", key="b" * 64, packages={"apt": "3"})],
        media=[lock_file.LockedMedium(name="m", file="s.iso", sha256="a" * 64)],
    )
    return (lock_file.HEAD + lock_file._dump(rows)).encode()


@parser("lock-file", lambda: [lock()], mutation.YAML)
def locked(content: bytes, folder: Path) -> None:
    path = write(folder, "winlab.lock", content)
    lock_file.replaced(path)
    made = lock_file.read(path)
    lock_file.require(made, made, path)
    lock_file.write(path, made)
    assert lock_file.compare(lock_file.read(path), made) == []


__all__ = ["data"]
