#!/usr/bin/env python3
"""Finds new releases of Kubernetes and its parts, and makes them a known-good combination.

tools/new_kubernetes.py          shows what the catalog has, and what is newer
tools/new_kubernetes.py 1.37     adds the newest release of that minor, or takes it in place of an older patch: its
                                 row, its pins, and the fields of its configuration kinds; then runs the
                                 configuration tests

Asks Go's module proxy and checksum database through Go, with the settings of 'go env'. The versions that go together
are those that the releases' own files name. Ends with 0, with pytest's exit code, or with 2 and the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from known_good import edit, wanted  # noqa: E402
from known_good.modules import Go, Modules, newest, number  # noqa: E402
from known_good.published import lacking  # noqa: E402
from winlab.design import addon, cni  # noqa: E402
from winlab.design.catalog import versions  # noqa: E402
from winlab.design.catalog.versions import Versions  # noqa: E402
from winlab.errors import NotFoundError, WinlabError  # noqa: E402

CATALOG = ROOT / "images" / "kubernetes" / versions.FILE
FIELDS = ROOT / "tests" / "fakes" / "data" / "config-fields.json"
# what the real programs of a minor say to the configurations that winlab renders for them; they are built if necessary
TESTS = (
    "tests/unit/design",
    "tests/integration/test_rendered_configs.py",  # Linux
    "tests/integration/test_windows_programs.py",  # Windows, under Wine
)
ELSEWHERE = {  # not published as Go modules with releases
    "crictl": "https://github.com/kubernetes-sigs/cri-tools/releases",
    "calico": "https://github.com/projectcalico/calico/releases",
    "tigera_operator": "https://github.com/tigera/operator/releases",
}
MORE = {"flannel": "github.com/flannel-io/flannel", "metrics-server": "sigs.k8s.io/metrics-server"}


class Said:
    """Progress, line by line."""

    def say(self, text: str, fraction: float | None = None) -> None:  # noqa: ARG002
        """Print it."""
        print(text, file=sys.stderr)


def report(modules: Modules, catalog: Path = CATALOG) -> list[str]:
    """What each combination has, and what is newer, as lines."""
    known = versions.load(catalog)
    published = {name: modules.versions(path) for name, path in (wanted.BUILT | MORE).items()}
    lines = [f"{'PART':16}{'CATALOG':12}{'ITS NEWEST PATCH':18}NEWEST"]
    for row in sorted(known.combinations, key=lambda row: -row.minor):
        parts = {name: version for name, version in _parts(row).items() if name in published or name in ELSEWHERE}
        for name, version in parts.items():
            if name in ELSEWHERE:
                lines.append(f"{name:16}{version:12}see {ELSEWHERE[name]}")
                continue
            every = published[name]
            patch = newest(every, ".".join(map(str, number(version)[:2]))) or "-"
            lines.append(f"{name:16}{version:12}{patch:18}{every[-1] if every else '-'}")
        lines.append("")
    minors = {".".join(map(str, number(one)[:2])) for one in published["kubernetes"]}
    newer = [one for one in minors if number(one) > number(max((row.name for row in known.combinations), key=number))]
    lines += [f"Kubernetes {one} is new: tools/new_kubernetes.py {one}" for one in sorted(newer, key=number)]
    return lines


def _parts(row: Versions) -> dict[str, str]:
    parts = dict(row.by_name)
    extensions = [profile.known for profile in cni.profiles().values()]
    for one in [*extensions, *(each.load() for each in addon.registry().values())]:
        parts |= one.of(row.minor)
    return parts


def add(
    modules: Modules, minor: str, containerd: str | None = None, *, catalog: Path = CATALOG, fields: Path = FIELDS
) -> Versions:
    """Write the newest release of *minor* into the catalog, and its fields for the tests; returns the combination.

    :raises WinlabError: nothing was written; the message says why.
    """
    known = versions.load(catalog)
    row, kubernetes = wanted.combination(modules, minor, known.pins, containerd)
    held_now = [other.kubernetes for other in known.combinations if other.name == row.name]
    if any(number(version) > number(row.kubernetes) for version in held_now):
        raise NotFoundError(
            f"The newest release of Kubernetes {minor} that Go's module proxy has is {row.kubernetes}, and the catalog "
            f"has {held_now[0]}.",
            cure="Another proxy may have more (GOPROXY).",
        )
    others = [other for other in known.combinations if other.name != row.name]
    sums = wanted.sums(modules, [row, *others], known.pins)
    pins = lacking(row, known.pins).model_copy(update={"modules": tuple(sums)})
    why = [
        f"By {edit.TOOL}, {datetime.now(UTC):%Y-%m-%d}. From Kubernetes' {wanted.CONSTANTS}: etcd, coredns",
        "(or a newer patch whose image is pinned below), pause; its " + wanted.DEPENDENCIES + ": crictl, cni_plugins,",
        f"agnhost; containerd's {wanted.RELEASES}: containerd; its {wanted.RUNC}: runc.",
    ]
    text = edit.changed(catalog.read_text(encoding="utf-8"), row, pins, why)
    held = json.loads(fields.read_text(encoding="utf-8")) | {row.name: modules.fields(kubernetes)}
    names = sorted({row.name, *(other.name for other in others)}, key=number, reverse=True)
    catalog.write_text(text, encoding="utf-8")
    ordered = {name: held[name] for name in names}
    fields.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    return row


def left(row: Versions) -> list[str]:
    """What only a person can say about a combination."""
    lines = [
        f"{name}: on which Windows it works with Kubernetes {row.name} ({os.path.relpath(profile.pins, ROOT)})"
        for name, profile in cni.profiles().items()
        if profile.pins is not None and row.name not in profile.known.windows.get(name, {})
    ]
    if versions.load(CATALOG).default != row.name:
        place = os.path.relpath(CATALOG, ROOT)
        lines.append(f"whether it is the default, once 'winlab create --rehearse' is Ready with it ({place})")
    return lines


def main(words: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minor", nargs="?", help="a minor version of Kubernetes to add, such as 1.37")
    parser.add_argument("--containerd", metavar="MINOR", help="in place of what containerd's own table says: 2.4")
    parser.add_argument("--no-tests", action="store_true", help="write only, and name the tests")
    given = parser.parse_args(words)
    try:
        go = Go(Said())
        if given.minor is None:
            print("\n".join(report(go)))
            return 0
        row = add(go, given.minor, given.containerd)
    except WinlabError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{os.path.relpath(CATALOG, ROOT)} has {versions.summary(row)}. Only you can say:")
    print("\n".join(f"- {line}" for line in left(row)))
    print(f"The configuration tests: WINLAB_TEST_MINORS={row.name} pytest {' '.join(TESTS)} -k 'unit or {row.name}'")
    if given.no_tests:
        return 0
    import pytest

    os.environ["WINLAB_TEST_MINORS"] = row.name
    return int(pytest.main([*(str(ROOT / test) for test in TESTS), "-k", f"unit or {row.name}"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
