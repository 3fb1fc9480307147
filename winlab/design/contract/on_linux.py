"""Calls for Linux nodes alone, with their results: verbs of unattend/linux/winlab_node."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.design.contract.call import LINUX, QUESTION, Call, CallResult
from winlab.design.contract.on_both import Changed, ServiceFacts, Sha256ByName


class FileFacts(CallResult):
    """A file of a Linux node."""

    sha256: str
    mode: str  # octal, of four digits
    owner: str  # the user and the group by name, with a colon in between


class LinuxFacts(CallResult):
    """What a Linux node has so far."""

    boot_time: str
    boot_id: str
    programs: Sha256ByName
    pushed: list[str]
    prepared: bool  # the programs that ``prepare`` installed are unchanged, and no service still has to be restarted
    files: dict[str, FileFacts]  # of the requested files, those that exist
    left_over: list[str]  # files that ``prepare`` wrote before, but that are not requested
    differing: list[str]  # the kernel's settings that are not as ``prepare`` sets them
    containerd: ServiceFacts
    kubelet: ServiceFacts
    joined: bool
    started: bool  # an init or join began and did not succeed
    cni: Sha256ByName


@dataclass(frozen=True)
class LinuxStatus(Call[LinuxFacts]):
    """What a Linux node has so far."""

    script, on = "status", LINUX
    quiet = QUESTION
    settled: bool = False  # whether to wait until no other script changes the node
    files: tuple[str, ...] = ()  # absolute paths of the files to compare


@dataclass(frozen=True)
class NodeFile:
    """A text file for a Linux node; its mode in octal. Its owner: ``user:group``, or empty for root as it is made."""

    content: str
    mode: str = "0644"
    owner: str = ""


@dataclass(frozen=True, kw_only=True)
class Prepare(Call[Changed]):
    """Install everything that a node needs before it joins."""

    script, on = "prepare", LINUX
    files: dict[str, NodeFile]  # by absolute paths
    services: list[str]
    images: list[str] | None = None  # None: all

    def texts(self) -> dict[str, str]:
        """The files by their paths."""
        return {path.lstrip("/"): file.content for path, file in self.files.items()}


@dataclass(frozen=True, kw_only=True)
class ForgetMember(Call[Changed]):
    """Remove another controller, by its address, from etcd's members."""

    script, on = "forget-member", LINUX
    address: str
