"""The files that guests and libvirt would get, one folder per node, with placeholders for secrets."""

from __future__ import annotations

import dataclasses
import json

import yaml

from winlab.design.plan import addons, credentials
from winlab.design.plan.model import Plan
from winlab.design.render import domain, kubernetes, systems
from winlab.design.render.templates import Expand
from winlab.design.render.topology import topology


def files(plan: Plan, expand: Expand) -> dict[str, bytes]:
    """All files by path.

    ``<node>/domain.xml``, ``<node>/seed/...``, ``<node>/answer/...``, ``network.json``, ``cluster/addons/...``, and
    those of :func:`winlab.design.render.kubernetes.files`.

    :param expand: makes the texts of users' own templates.
    :raises UsageError: such a template can't be used.
    """
    plan = plan.without_secrets()
    return {**_machines(plan, expand), **kubernetes.files(plan)}


def _machines(plan: Plan, expand: Expand) -> dict[str, bytes]:
    masked = credentials.masked(plan)
    rows = dataclasses.asdict(topology(plan))
    for name in ("spread", "untranslated", "acls"):  # most labs have none
        if not rows[name]:
            del rows[name]
    contents = {"network.json": (json.dumps(rows, indent=2) + "\n").encode()}
    for node in plan.nodes:
        contents[f"{node.name}/domain.xml"] = domain.domain_xml(
            plan, node, masked.nodes[node.name].vnc_password
        ).encode()
        given = systems.of(plan, node)
        inner = given.first_boot(masked, expand).items()
        contents.update({f"{node.name}/{given.folder}/{name}": content for name, content in inner})
    for row in plan.addons:
        text = yaml.safe_dump_all(addons.manifests(row, plan), sort_keys=False)
        contents[f"cluster/addons/{row.name}.yaml"] = text.encode()
    for builder in plan.builders:  # the machines in which golden images are made
        name = builder.nodes[0].name
        place = name if len(plan.builders) == 1 else builder.lab
        inner = _machines(builder, expand).items()
        contents.update({f"{place}/{path.removeprefix(f'{name}/')}": content for path, content in inner})
    return contents
