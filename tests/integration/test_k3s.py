"""What winlab adds to a cluster that k3s makes, in a real control plane with its flags. k3s itself is not run."""

from __future__ import annotations

from pathlib import Path

import flagged

from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.catalog import versions
from winlab.design.distribution.k3s import dns
from winlab.design.distribution.model import ClusterSettings

ADDRESS = "10.43.0.10"


def test_the_api_server_accepts_coredns(tmp_path: Path) -> None:
    settings = ClusterSettings(
        versions=versions.get("1.36"),
        endpoint="127.0.0.1:6443",
        names=(),
        pod_cidr=flagged.PODS,
        service_cidr=flagged.SERVICES,
        dns=ADDRESS,
    )
    with flagged.running(tmp_path, flagged.K3S) as made:
        kubectl = Kubectl(made.kubectl_program, made.admin)
        objects = dns.objects(settings)
        kubectl.apply(objects)
        assert kubectl.get("service", "kube-dns", "--namespace=kube-system")["spec"]["clusterIP"] == ADDRESS
        assert kubectl.same(objects)
        who = "--as=system:serviceaccount:kube-system:coredns"
        assert kubectl.run("auth", "can-i", "watch", "endpointslices", "--all-namespaces", who).strip() == "yes"
