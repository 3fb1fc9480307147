"""Simulates member.ps1, which makes the worker a node of an external cluster (see scripts.py)."""

from __future__ import annotations

import re
import shutil
import time
from typing import Any

from winlab_standin.guest.machine import Machine, Player, ScriptError, Settings
from winlab_standin.guest.players import joined, stop_running, wait_for_cri
from winlab_standin.guest.workerfiles import write

KUBECONFIG, CLIENT_CA = "etc/kubernetes/kubelet.conf", "etc/kubernetes/pki/ca.crt"
CONFIGURATION = "var/lib/kubelet/config.yaml"
OWN_CERTIFICATE = 900.0  # seconds


def server_of(kubeconfig: str) -> str:
    """The server of a kubeconfig; empty if it names none."""
    found = re.search(r"^\s*server:\s*[\"']?https://([^\s\"']+)", kubeconfig, re.MULTILINE)
    return found[1] if found else ""


def member(machine: Machine, given: Settings) -> dict[str, Any]:
    """member.ps1: kubelet.exe really starts with the credentials, and accepts them."""
    if machine.services.state("kubelet") == "absent":
        raise ScriptError("The kubelet is no service yet: kubelet.ps1 comes first.")
    if machine.services.state("containerd") != "running":
        raise ScriptError("containerd does not run: containerd.ps1 comes first.")
    kubeconfig, authority, configuration = (
        str(given.get(name, "")) for name in ("kubeconfig", "client_ca", "configuration")
    )
    server, name = server_of(kubeconfig), machine.world.name()
    if not server:
        raise ScriptError("settings.kubeconfig names no server.")
    if "BEGIN CERTIFICATE" not in authority:
        raise ScriptError("settings.client_ca is no certificate.")
    if not re.search(r"^kind:\s*KubeletConfiguration\s*$", configuration, re.MULTILINE):
        raise ScriptError("settings.configuration is no KubeletConfiguration.")
    if name.lower() != str(given.get("name", "")).lower():
        raise ScriptError(f"This is '{name}', not '{given.get('name', '')}'.")
    before, own = joined(machine), machine.c(KUBECONFIG)
    if before and (there := server_of(own.read_text())) != server:
        raise ScriptError(f"'{name}' is part of the cluster at '{there}' already, not of '{server}'.")
    texts = {machine.c(CLIENT_CA): authority, machine.c(CONFIGURATION): configuration}
    changed = not before or any(not path.is_file() or path.read_text() != text for path, text in texts.items())
    if changed:
        stop_running(machine, ["kubelet"])
    if not before:
        shutil.rmtree(machine.c("var/lib/kubelet/pki"), ignore_errors=True)
    for path, text in texts.items():
        write(path, text)
    if not before:
        own.unlink(missing_ok=True)
        own.touch(mode=0o600)
        own.write_text(kubeconfig, encoding="utf-8")
        wait_for_cri(machine)  # on Wine the first client of a pipe may be cut off, and the kubelet then ends
    if machine.services.state("kubelet") != "running":
        machine.services.start("kubelet")
    machine.tell("winlab: waiting for the kubelet to take its certificate")
    end = time.monotonic() + OWN_CERTIFICATE
    while not joined(machine):
        if time.monotonic() > end:
            raise ScriptError("The kubelet has not taken its certificate after 15 minutes: see its log.")
        time.sleep(1)
    return {"joined": True, "changed": changed}


PLAYERS: dict[str, Player] = {"member.ps1": member}
