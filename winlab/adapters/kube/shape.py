"""Compares what an API server sends with Kubernetes' own types before anything reads it: an external cluster may send
anything. Only the fields that winlab reads are compared; the rest is left unchanged.

Types: https://kubernetes.io/docs/reference/kubernetes-api/ (ObjectMeta, Node, Pod, Event).
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class _Part(BaseModel):
    """Some fields of a type. Optional fields are left out if they are empty, and are never null."""

    model_config = ConfigDict(strict=True, extra="ignore", alias_generator=to_camel)


class _Meta(_Part):
    name: str
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Named(_Part):
    metadata: _Meta


class _Object(_Named):
    """One of any kind."""

    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class _Taint(_Part):
    key: str


class _NodeSpec(_Part):
    taints: list[_Taint] = []


class _Address(_Part):
    type: str
    address: str


class _Image(_Part):
    names: list[str] | None = None  # kubelets before 1.24 send null


class _NodeStatus(_Part):
    addresses: list[_Address] = []
    images: list[_Image] = []
    node_info: dict[str, Any] = {}


class _Node(_Named):
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class _Container(_Part):
    name: str
    state: dict[str, dict[str, Any]] = {}


class _PodStatus(_Part):
    phase: str = ""
    init_container_statuses: list[_Container] = []
    container_statuses: list[_Container] = []


class _Pod(_Named):
    status: _PodStatus = _PodStatus()


class _Event(_Named):
    involved_object: dict[str, Any] = {}
    series: dict[str, Any] | None = None


KINDS: dict[str, type[_Named]] = {"Node": _Node, "Pod": _Pod, "Event": _Event}
RESOURCES = {"node": "Node", "nodes": "Node", "pod": "Pod", "pods": "Pod", "events": "Event"}


def check(answer: Any, asked: str, *, many: bool) -> dict[str, Any]:
    """The answer of ``kubectl get``, if it has the shape of what was asked for.

    :param asked: the resources, as given to kubectl: ``nodes``, or several: ``pods,services``.
    :param many: a list was asked for.
    :raises ValueError: it does not; the text says where.
    """
    if not isinstance(answer, dict):
        raise ValueError(f"It is a {type(answer).__name__}.")
    items = answer.get("items") if many else [answer]
    if not isinstance(items, list):
        raise ValueError("It is not a list of objects.")
    for item in items:
        kind = RESOURCES.get(asked) or (item.get("kind") if isinstance(item, dict) else None)
        KINDS.get(str(kind), _Object).model_validate(item)
    return answer
