"""The configuration of Calico and flannel, and their artifacts."""

import json

import pytest
import yaml
from cni_networks import ENDPOINT, LINUX, NODES, VERSIONS, WINDOWS, make

from winlab.design import cni
from winlab.design.catalog.artifact import ContainerImage, Manifest, Program
from winlab.design.cni import flannel
from winlab.design.cni.model import Endpoint

# --- Calico


def test_an_installation_for_windows():
    network = make("calico-vxlan", mtu=1600)
    endpoint, installation = cni.get("calico-vxlan").manifests(network, NODES, ENDPOINT, VERSIONS)
    # the operator refuses an Installation for Windows before it has this
    assert endpoint["metadata"] == {"name": "kubernetes-services-endpoint", "namespace": "tigera-operator"}
    assert endpoint["data"] == {"KUBERNETES_SERVICE_HOST": "10.77.0.11", "KUBERNETES_SERVICE_PORT": "6443"}
    spec = installation["spec"]
    assert spec["serviceCIDRs"] == ["10.96.0.0/16"]
    assert spec["windowsNodes"]["cniBinDir"] == "/opt/cni/bin"
    assert spec["windowsNodes"]["cniConfigDir"] == "/etc/cni/net.d"
    calico_network = spec["calicoNetwork"]
    assert (calico_network["bgp"], calico_network["windowsDataplane"]) == ("Disabled", "HNS")
    assert calico_network["mtu"] == 1550
    (pool,) = calico_network["ipPools"]
    assert (pool["cidr"], pool["encapsulation"]) == ("10.244.0.0/16", "VXLAN")


def test_bgp_encapsulates_nothing():
    _, installation = cni.get("calico-bgp").manifests(make("calico-bgp"), NODES, ENDPOINT, VERSIONS)
    calico_network = installation["spec"]["calicoNetwork"]
    assert (calico_network["bgp"], calico_network["mtu"]) == ("Enabled", 1500)
    assert calico_network["ipPools"][0]["encapsulation"] == "None"


@pytest.mark.parametrize("name", ["calico-vxlan", "calico-bgp"])
def test_without_windows_nothing_mentions_windows(name):
    profile = cni.get(name)
    _, installation = profile.manifests(make(name), [LINUX], ENDPOINT, VERSIONS)
    assert "windowsNodes" not in installation["spec"]  # the operator refuses it without the data plane
    assert "windowsDataplane" not in installation["spec"]["calicoNetwork"]
    assert profile.patches([LINUX]) == []
    (patch,) = profile.patches(NODES)
    assert (patch.resource, patch.name) == ("ipamconfigs.crd.projectcalico.org", "default")
    assert patch.body == {"spec": {"strictAffinity": True}}


def test_artifacts_of_calico():
    profile = cni.get("calico-vxlan")
    assert profile.published(VERSIONS) == [
        Manifest("calico", "v3.32.1", "v1_crd_projectcalico_org.yaml"),
        Manifest("calico", "v3.32.1", "tigera-operator.yaml"),
    ]
    images = profile.images(VERSIONS)
    assert ContainerImage("quay.io/calico/node-windows:v3.32.1", "windows") in images
    assert ContainerImage("quay.io/calico/node:v3.32.1", "linux") in images
    assert ContainerImage("quay.io/tigera/operator:v1.42.3", "linux") in images
    assert profile.programs(VERSIONS) == []
    assert profile.linux_files(make("calico-vxlan"), LINUX) == {}
    assert profile.windows_files(make("calico-vxlan"), WINDOWS) == {}


# --- flannel


def by_kind(objects):
    return {(entry["kind"], entry["metadata"]["name"]): entry for entry in objects}


def test_flannel_has_one_configuration_for_both_systems():
    network = make("flannel-vxlan")
    objects = by_kind(cni.get("flannel-vxlan").manifests(network, NODES, ENDPOINT, VERSIONS))
    configuration = json.loads(objects["ConfigMap", flannel.CONFIG]["data"]["net-conf.json"])
    assert configuration["Network"] == network.pod_cidr
    # what vxlan_windows.go refuses: a VNI below 4096, another port, DirectRouting, GBP
    assert configuration["Backend"] == {"Type": "vxlan", "VNI": 4096, "Port": 4789}
    linux = objects["DaemonSet", "kube-flannel-ds"]["spec"]["template"]["spec"]
    windows = objects["DaemonSet", "kube-flannel-ds-windows"]["spec"]["template"]["spec"]
    for pod, os in ((linux, "linux"), (windows, "windows")):
        assert pod["nodeSelector"] == {"kubernetes.io/os": os}
        assert pod["hostNetwork"]
        (container,) = pod["containers"]
        assert {"name": "KUBERNETES_SERVICE_HOST", "value": "10.77.0.11"} in container["env"]
        assert {"name": "flannel-cfg", "mountPath": "/etc/kube-flannel/"} in container["volumeMounts"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert "--ip-masq" in linux["containers"][0]["args"]
    assert linux["containers"][0]["image"] == "ghcr.io/flannel-io/flannel:v0.28.10"
    assert windows["securityContext"]["windowsOptions"]["hostProcess"]
    assert windows["containers"][0]["command"] == [r"C:\opt\cni\bin\flanneld.exe"]


def test_flannels_daemon_sets_select_their_own_pods():
    objects = cni.get("flannel-vxlan").manifests(make("flannel-vxlan"), NODES, ENDPOINT, VERSIONS)
    sets = [entry["spec"] for entry in objects if entry["kind"] == "DaemonSet"]
    selectors = [entry["selector"]["matchLabels"]["app"] for entry in sets]
    assert len(set(selectors)) == 2
    for spec in sets:
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_flannel_without_windows_and_its_artifacts():
    profile = cni.get("flannel-vxlan")
    objects = by_kind(profile.manifests(make("flannel-vxlan"), [LINUX], ENDPOINT, VERSIONS))
    assert ("DaemonSet", "kube-flannel-ds-windows") not in objects
    assert Program("flanneld", "v0.28.10", "windows") in profile.programs(VERSIONS)
    named = {image.reference for image in profile.images(VERSIONS)}
    used = {
        container["image"]
        for entry in profile.manifests(make("flannel-vxlan"), NODES, ENDPOINT, VERSIONS)
        if entry["kind"] == "DaemonSet"
        for container in entry["spec"]["template"]["spec"]["containers"]
    }
    assert named == used


def test_the_windows_half_of_flannel_for_an_external_cluster():
    network = make("flannel-vxlan", pod_cidr="10.42.0.0/16")
    half = cni.get("flannel-vxlan").windows_half(network, Endpoint("192.0.2.10", 6443, "kubernetes.default.svc"))
    objects = by_kind(half)
    name = flannel.HALF_NAME
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet")
    assert list(objects) == [(kind, name) for kind in kinds]
    assert {row["metadata"].get("namespace", "") for row in half} == {"", "kube-system"}
    files = objects["ConfigMap", name]["data"]
    settings = json.loads(files["net-conf.json"])
    assert settings["Network"] == "10.42.0.0/16"
    assert settings["Backend"] == {"Type": "vxlan", "VNI": 4096, "Port": 4789}
    pod = objects["DaemonSet", name]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (pod["nodeSelector"], pod["serviceAccountName"]) == ({"kubernetes.io/os": "windows"}, name)
    assert pod["volumes"] == [{"name": "flannel-cfg", "configMap": {"name": name}}]
    assert "--kubeconfig-file=C:/etc/kube-flannel/kubeconfig" in container["args"]
    assert {row["name"] for row in container["env"]} == {"NODE_NAME", "NODE_ADDRESS"}  # the kubeconfig has the address
    (cluster,) = yaml.safe_load(files["kubeconfig"])["clusters"]
    assert cluster["cluster"]["server"] == "https://192.0.2.10:6443"
    assert cluster["cluster"]["tls-server-name"] == "kubernetes.default.svc"
    (user,) = yaml.safe_load(files["kubeconfig"])["users"]
    # with a drive, or client-go takes them for relative to the kubeconfig's folder
    for path in (cluster["cluster"]["certificate-authority"], user["user"]["tokenFile"]):
        assert path.startswith("C:/")


def test_only_flannel_can_be_completed_by_winlab():
    assert [name for name, profile in cni.profiles().items() if profile.has_half] == ["flannel-vxlan"]
    for profile in cni.profiles().values():
        assert bool(profile.windows_half(make(profile.name), ENDPOINT)) == profile.has_half
