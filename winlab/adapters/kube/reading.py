"""What a cluster answers about itself: its version, documents in ConfigMaps, and which network connects its pods."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

from winlab import documents
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design import cni
from winlab.design.cni.model import AllObjects, Answer, ConfigMapEntry, Question, Recognized, Unreadable
from winlab.errors import ClusterError

VERSION = re.compile(r"v1\.[0-9]+\.[0-9]+")


def version(kubectl: Kubectl) -> str:
    """The API server's version, with the suffix of its distribution: ``v1.36.1+rke2r1``.

    :raises ClusterError: it does not answer, or reports none.
    """
    try:
        answer = kubectl.run("version", "--output=json")
    except ClusterError as error:
        raise ClusterError(
            "The cluster does not answer.",
            why=error.why,
            cure="Check that this host reaches the server in the kubeconfig, and that its credentials are still valid.",
        ) from error
    try:
        full = str(documents.from_json(answer)["serverVersion"]["gitVersion"])
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterError("The API server does not report its version.", why=repr(error)) from error
    if VERSION.match(full) is None:
        raise ClusterError(
            "The API server reports a version that winlab can't parse.", why=f"It is '{full[:100]}', not like v1.36.3."
        )
    return full[:100]


def document(kubectl: Kubectl, place: ConfigMapEntry) -> dict[str, Any] | None:
    """A YAML document in a ConfigMap; None if there is none.

    :raises ClusterError: it can't be parsed.
    """
    words = ("get", "configmap", place.name, f"--namespace={place.namespace}", "--ignore-not-found", "--output=json")
    config_map = kubectl.run(*words).strip()
    try:
        found = documents.from_yaml(documents.from_json(config_map)["data"][place.key]) if config_map else None
    except (ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        where = f"'{place.name}' in {place.namespace}"
        raise ClusterError(f"The ConfigMap {where} can't be parsed.", why=repr(error)) from error
    return found if isinstance(found, dict) else None


def network(kubectl: Kubectl, rows: Iterable[dict[str, Any]]) -> Recognized:
    """Which of winlab's profiles matches the cluster's pod network, if any; what was seen, and what Windows lacks.

    :param rows: the cluster's DaemonSets.
    :raises ClusterError: it does not answer.
    """
    daemon_sets = {str(row["metadata"]["name"]): str(row["metadata"]["namespace"]) for row in rows}
    profiles = cni.profiles().values()
    questions = dict.fromkeys(question for profile in profiles for question in profile.questions(daemon_sets))
    answers = {question: _answer(kubectl, question) for question in questions}
    for profile in profiles:
        if (recognized := profile.recognize(daemon_sets, answers)) is not None:
            return recognized
    others = sorted(set(daemon_sets) - {"kube-proxy"})
    return Recognized(None, f"its DaemonSets are {', '.join(others)}" if others else "it has no DaemonSet of a CNI")


def _answer(kubectl: Kubectl, question: Question) -> Answer:
    try:
        if isinstance(question, AllObjects):
            return list(kubectl.get(question.resource)["items"])
        found = document(kubectl, question)
    except ClusterError as error:
        return Unreadable(error.why or error.what)
    return Unreadable(f"there is no '{question.name}' in {question.namespace}") if found is None else found
