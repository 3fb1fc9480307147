"""Which add-ons a cluster has: a ConfigMap in it, because winlab has no database."""

from __future__ import annotations

import json
from typing import Any

from winlab import documents
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.addon import Object, registry
from winlab.design.plan.model import Plan
from winlab.errors import ClusterError

NAME, NAMESPACE = "winlab-addons", "kube-system"


def written(plan: Plan) -> Object:
    """The ConfigMap of a plan's cluster: the settings of each add-on as JSON."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "data": {row.name: json.dumps(row.settings, sort_keys=True) for row in plan.addons},
    }


def read(kubectl: Kubectl) -> dict[str, Any]:
    """The settings of a cluster's add-ons, by name, as their own models.

    :raises ClusterError: the API server does not answer; the cluster has an add-on that is not installed here; or its
        settings are from another release.
    """
    words = ("get", "configmap", NAME, f"--namespace={NAMESPACE}", "--ignore-not-found", "--output=json")
    config_map = kubectl.run(*words).strip()
    try:
        data = dict(documents.from_json(config_map).get("data") or {}) if config_map else {}
    except (AttributeError, TypeError, ValueError) as error:
        raise ClusterError(
            f"The cluster's record of its add-ons, the ConfigMap '{NAME}' in {NAMESPACE}, can't be read.",
            why=str(error),
            cure="Run the lab's create command again: it writes it again.",
        ) from error
    return {name: _settings(name, str(text)) for name, text in data.items()}


def _settings(name: str, text: str) -> Any:
    if name not in registry():
        raise ClusterError(
            f"The cluster has the add-on '{name}', which is not installed here.",
            cure="Install the package that provides it.",
        )
    try:
        return registry()[name].Settings.model_validate_json(text)
    except ValueError as error:
        raise ClusterError(
            f"The settings of the cluster's add-on '{name}' can't be read.",
            why=str(error),
            cure="Install the release of the package that it was made with.",
        ) from error
