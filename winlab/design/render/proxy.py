"""The proxy by which a lab's nodes reach the internet, as each program reads it. Pure.

Neither the kubelet nor what makes the cluster needs one: containerd pulls for them. What makes the cluster might even
write the variables into the control plane's pods. An address may have a password. So it is only in files and registry
keys that are closed to others, in no process's arguments, and in no unit of systemd, whose settings every user can
query.

Sources: golang.org/x/net/http/httpproxy; systemd.exec(5), EnvironmentFile; apt-transport-http(1); Microsoft, netsh
winhttp and WinHTTP's WINHTTP_PROXY_INFO.
"""

from __future__ import annotations

from ipaddress import ip_address

from winlab.design.contract import on_linux
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import LinuxNode
from winlab.design.spec.proxy import Proxy

UNIT = "/etc/systemd/system/containerd.service.d/winlab-proxy.conf"
ENVIRONMENT = "/etc/containerd/proxy.env"
APT = "/etc/apt/apt.conf.d/90winlab-proxy"
PROFILE = "/etc/profile.d/winlab-proxy.sh"


def no_proxy(plan: Plan) -> tuple[str, ...]:
    """What a lab's nodes reach directly: the node itself, the lab, its cluster, and what the spec names.

    Some programs know no networks, so the API server is there by its address, too.
    """
    network = plan.network
    every = ["localhost", "127.0.0.1", network.cidr, network.external_cidr, network.domain]
    every += [node.name for node in plan.nodes]
    if plan.kubernetes is not None:
        cluster = plan.cluster
        every += [cluster.pod_cidr, cluster.service_cidr, cluster.domain]
        every += [where.rpartition(":")[0] for where in (cluster.endpoint, cluster.external)]
    return tuple(dict.fromkeys((*every, *_of(plan).no_proxy)))


def environment(plan: Plan) -> dict[str, str]:
    """The variables for containerd; none without a proxy, and in golden images, which keep no password."""
    proxy = _of(plan)
    if plan.golden is not None or not proxy.secure:
        return {}
    given = {"HTTP_PROXY": proxy.http, "HTTPS_PROXY": proxy.secure, "NO_PROXY": ",".join(no_proxy(plan))}
    return {name: value for name, value in given.items() if value}


def containerd_files(plan: Plan) -> dict[str, on_linux.NodeFile]:
    """The files by which containerd has the variables on Linux; none without a proxy."""
    if not (variables := environment(plan)):
        return {}
    lines = "".join(f'{name}="{value}"\n' for name, value in variables.items())
    return {
        UNIT: on_linux.NodeFile(f"[Service]\nEnvironmentFile={ENVIRONMENT}\n"),
        ENVIRONMENT: on_linux.NodeFile(lines, "0600", "root:root"),
    }


def login_files(plan: Plan, node: LinuxNode) -> dict[str, on_linux.NodeFile]:
    """The files for apt and for login shells on Linux, for the node's user; none without a proxy."""
    variables, owner = environment(plan), f"root:{node.user}"
    if not variables:
        return {}
    lower = {name.lower(): value for name, value in variables.items()}
    profile = "".join(f"export {name}='{value}'\n" for name, value in (lower | variables).items())
    return {
        APT: on_linux.NodeFile(_apt(plan), "0640", owner),
        PROFILE: on_linux.NodeFile(profile, "0640", owner),
    }


def winhttp(plan: Plan) -> dict[str, str]:
    """The server and the exceptions for WinHTTP, by which Windows Update goes; empty without a proxy.

    WinHTTP takes no name and password. Of the exceptions it knows names and addresses, and no networks.
    """
    proxy = _of(plan)
    servers = {"http": proxy.http, "https": proxy.secure}
    server = ";".join(f"{name}={_server(address)}" for name, address in servers.items() if address)
    names = (one.removeprefix("*").removeprefix(".") for one in proxy.no_proxy if not {"/", ":"} & set(one))
    patterns = (pattern for name in names for pattern in ((name,) if _is_address(name) else (name, f"*.{name}")))
    return {"server": server, "bypass": ";".join(("<local>", *patterns))} if server else {}


def _apt(plan: Plan) -> str:
    """apt's configuration. It knows exceptions only by the whole names of servers, and by their addresses."""
    proxy = _of(plan)
    direct = [one for one in no_proxy(plan) if not {"/", ":", "*"} & set(one) and not one.startswith(".")]
    lines: list[str] = []
    for scheme, address in (("http", proxy.http), ("https", proxy.secure)):
        if address:
            lines.append(f'Acquire::{scheme}::Proxy "{address}";\n')
            lines += [f'Acquire::{scheme}::Proxy::{name} "DIRECT";\n' for name in direct]
    return "".join(lines)


def _of(plan: Plan) -> Proxy:
    return plan.network.proxy or Proxy()


def _server(address: str) -> str:
    return address.rpartition("/")[2].rpartition("@")[2]


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
