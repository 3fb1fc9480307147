"""A worker's life by winlab's own scripts: each step refuses before its turn, works once, and changes nothing again.

The tests come in the order of that life, on one machine.
"""

from __future__ import annotations

import time

import pytest
from powershell.cases import CNI, COMMAND, CONFIG, FEATURES, JOIN, PROXY, ROUTES, TOKEN, done, image, refused
from powershell.doubles.machine import Machine

from winlab.steps.windows import probe


@pytest.fixture(scope="module", autouse=True)
def _image(worker: Machine) -> None:
    image(worker.d / "images/pause.tar", "registry.k8s.io/pause:3.10")


def test_status_of_a_fresh_node(worker: Machine) -> None:
    facts = done(worker.run("status"), boot_id="17", build="20348.2762", pushed=[], features_set="")
    assert facts["containers_feature"] == "absent"
    assert not facts["kubelet"]["joined"]


def test_features_need_a_restart(worker: Machine) -> None:
    refused(worker.run("containerd", CONFIG), "features.ps1 comes first")
    done(worker.run("features", FEATURES), restart=True)
    refused(worker.run("containerd", CONFIG), "restarted first")
    worker.restart()
    done(worker.run("features", FEATURES), restart=False)
    refused(worker.run("features", {**FEATURES, "release": "2025"}), "Windows build 20348")


def test_containerd(worker: Machine) -> None:
    done(worker.run("containerd", CONFIG), changed=True)
    done(worker.run("containerd", CONFIG), changed=False)
    done(worker.run("load"), changed=False)


def test_binaries_and_kubelet(worker: Machine) -> None:
    refused(worker.run("kubelet", COMMAND), "binaries.ps1 comes first")
    done(worker.run("binaries"), changed=True)
    done(worker.run("binaries"), changed=False)
    done(worker.run("kubelet", COMMAND), changed=True)
    done(worker.run("kubelet", COMMAND), changed=False)
    refused(worker.run("cni", CNI), "join.ps1 comes first")


def test_join(worker: Machine) -> None:
    refused(worker.run("join", {**JOIN, "name": "node-2"}), "This is 'node-1'")
    told = worker.run("join", JOIN)
    done(told, joined=True, changed=True)
    assert not any(TOKEN in line for line in told.out)
    assert "<token>" in "\n".join(told.out)
    done(worker.run("join", JOIN), joined=True, changed=False)
    elsewhere = JOIN["configuration"].replace("0.10", "0.99")
    refused(worker.run("join", {**JOIN, "configuration": elsewhere}), "has joined the cluster at")


def test_pod_network(worker: Machine) -> None:
    haste, worker.haste = worker.haste, 1  # the script waits for another process, which is slow on a busy machine
    done(worker.run("cni", CNI), changed=True)
    worker.haste = haste
    done(worker.run("cni", CNI), changed=False)
    done(worker.run("proxy", PROXY), changed=True, service="running")
    assert "  sourceVip: 10.244.2.2\n" in (worker.c / "var/lib/kube-proxy/config.yaml").read_text()
    done(worker.run("proxy", PROXY), changed=False)
    done(worker.run("cni", {"files": {}, "network": None}), changed=True)
    assert not list((worker.c / "etc/cni/net.d").iterdir())
    refused(worker.run("cni", {"files": {"../x.conf": "{}"}, "network": None}), "no name of a CNI configuration")


def test_routes(worker: Machine) -> None:
    done(worker.run("routes", {"routes": ROUTES}), changed=True)
    assert "255.255.255.128" in worker.notes()
    done(worker.run("routes", {"routes": ROUTES}), changed=False)
    done(worker.run("routes", {"routes": []}), changed=True)
    assert not (worker.folder / "routes.txt").read_text()


def test_logs_are_utf_8(worker: Machine) -> None:
    folder = worker.c / "var/log/kubelet"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kubelet.log").write_text("one\ntwö\nthree\n", encoding="utf-8")
    assert done(worker.run("logs", {"lines": 2}))["logs"]["kubelet"] == "twö\nthree"
    refused(worker.run("logs", {"lines": 10001}), "not between 1 and 10000")


def test_the_probe(worker: Machine) -> None:
    """As winlab calls it: text beyond ASCII survives, and 150 KB arrive complete."""
    facts = done(
        worker.run("probe", {"text": probe.TEXT, "block": probe.BLOCK}),
        text=probe.TEXT,
        sha256=probe.DIGEST,
        elevated=True,
        language="FullLanguage",
    )
    assert abs(facts["clock"] / 1000 - time.time()) < 60


def test_push_and_restore(worker: Machine) -> None:
    worker.program(worker.d / "push/kubelet.exe", "# another")
    done(worker.run("push", {"program": "kubelet.exe", "restore": False}), changed=True)
    facts = done(worker.run("status"), pushed=["kubelet.exe"])
    assert facts["kubelet"]["joined"]
    done(worker.run("push", {"program": "kubelet.exe", "restore": True}), changed=True)
    done(worker.run("status"), pushed=[])


def test_updates(worker: Machine) -> None:
    state = worker.state()
    state["updates"] = ["Cumulative Update", "Defender"]
    worker.state(state)
    done(worker.run("updates"), installed=["Cumulative Update", "Defender"], failed=[], restart=True)
    assert not list((worker.c / "winlab").glob("updates.*"))
    state = worker.state()
    state["updates"] = []
    worker.state(state)
    done(worker.run("updates"), installed=[], failed=[], restart=False)


def test_sealing(worker: Machine) -> None:
    seal = {"generalize": "<unattend/>", "superseded": True, "begin": True}
    refused(worker.run("seal", seal), "has joined a cluster")
    (worker.c / "etc/kubernetes/kubelet.conf").unlink()
    refused(worker.run("seal", {**seal, "generalize": ""}), "generalize is empty")
    facts = {"restart": False, "build": "20348.2762", "rearms": 5, "evaluation_minutes": 259200}
    done(worker.run("seal", {**seal, "begin": False}), **facts)
    assert "sysprep" not in worker.notes()
    done(worker.run("seal", seal), **facts)
    assert "sysprep.exe /generalize /oobe /shutdown" in worker.notes()
    told = {"running": False, "state": "IMAGE_STATE_COMPLETE", "succeeded": False}
    done(worker.run("sealed"), **told, errors=[])
    sysprep = worker.c / "Windows/System32/Sysprep"
    (sysprep / "Panther/setuperr.log").write_text("an error\n")
    (sysprep / "Sysprep_succeeded.tag").touch()
    done(worker.run("sealed"), **{**told, "succeeded": True}, errors=["an error"])


def test_a_windows_whose_setup_is_not_complete_is_not_sealed(worker: Machine) -> None:
    (worker.c / "etc/kubernetes/kubelet.conf").unlink(missing_ok=True)
    state = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State"
    worker.registry(state, "ImageState", "IMAGE_STATE_UNDEPLOYABLE")
    refused(worker.run("seal", {"generalize": "<unattend/>", "begin": True}), "'IMAGE_STATE_UNDEPLOYABLE'")


def test_settings_that_are_not_json(worker: Machine) -> None:
    told = worker.run("containerd", stdin=b'{"config":')
    assert told.code == 1
    assert told.result is None


def test_a_missing_script(worker: Machine) -> None:
    assert worker.run(worker.d / "scripts/nothing.ps1").code not in (0, 1)
