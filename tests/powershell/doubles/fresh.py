"""The content of a fresh fake Windows node: programs of Windows and of the payload CD, and Windows' own state."""

from __future__ import annotations

from typing import Any

COMPLETE = "IMAGE_STATE_COMPLETE"  # Microsoft, Windows Setup States
# Programs of Windows, and how they answer here. Each notes what it was called with
NATIVE = {
    "netsh.exe": "",
    "icacls.exe": "",
    "pnputil.exe": "",
    "msiexec.exe": "",
    "taskkill.exe": 'for last; do :; done; kill -9 "$last"',
    "logoff.exe": "",
    "tar.exe": 'exec tar "$@"',
    "route.exe": """
        if [ "$1" = print ]; then echo "Persistent Routes:"; cat "$WINLAB_MACHINE/routes.txt"; exit; fi
        case $2 in
        ADD) bits=$(echo $5 | awk -F. '{n=0; for(i=1;i<=4;i++){b=$i; while(b>0){n+=b%2; b=int(b/2)}} print n}')
            echo "$3/$bits $6" >>"$WINLAB_MACHINE/routes.txt" ;;
        DELETE) sed -i "\\|^$3/.* $6$|d" "$WINLAB_MACHINE/routes.txt" ;;
        esac
        echo " OK!" """,
}
NATIVE |= {
    f"{name}.exe": f'exec python3 -IS "$WINLAB_DOUBLES/programs.py" {name} "$@"'
    for name in (
        "sc",
        "dism",
        "w32tm",
        "wevtutil",
        "ipconfig",
        "netstat",
        "shutdown",
        "tzutil",
        "cscript",
        "hostname",
        "whoami",
    )
}
# Programs of the payload CD
PROGRAMS = {
    "containerd.exe": """
        test "$1" = --register-service || exit 0
        exec python3 -IS "$WINLAB_DOUBLES/programs.py" register "$@" """,
    "runhcs.exe": "",
    "kubelet.exe": "",
    "kube-proxy.exe": "",
    "kube-log-runner.exe": "",
    "kubectl.exe": "",
    "ctr.exe": """
        images="$WINLAB_MACHINE/images.txt"
        case "$*" in
        version) echo "Client: double" ;;
        *"containers ls") echo "CONTAINER IMAGE RUNTIME"; echo "c1 registry.test/a:1 io.containerd.runhcs.v1" ;;
        *"tasks ls") echo "TASK PID STATUS"; echo "c1 4711 RUNNING" ;;
        *"images ls") touch "$images"; echo "REF TYPE DIGEST SIZE PLATFORMS LABELS"; cat "$images" ;;
        *"leases ls -q") echo 1763-one ;;
        *"images rm --sync "*) shift 5
            for name; do grep -v "^$name " "$images" >"$images.new"; mv "$images.new" "$images"; done ;;
        *"images import"*) for last; do :; done
            tar -xOf "$last" index.json | python3 -ISc 'import json,sys
for m in json.load(sys.stdin)["manifests"]:
    print(m["annotations"]["io.containerd.image.name"], "type", m["digest"], "1.0 MiB", "windows/amd64", "-")
' >>"$images" ;;
        esac""",
    "kubeadm.exe": """
        echo "[preflight] Running pre-flight checks" >&2
        echo "token abcdef.0123456789abcdef is used"
        mkdir -p "$WINLAB_MACHINE/c/etc/kubernetes" "$WINLAB_MACHINE/c/var/lib/kubelet/pki"
        echo "    server: https://10.77.0.10:6443" >"$WINLAB_MACHINE/c/etc/kubernetes/kubelet.conf"
        echo "-----BEGIN CERTIFICATE-----" >"$WINLAB_MACHINE/c/var/lib/kubelet/pki/kubelet-client-current.pem"
        python3 -IS - <<'P'
import json, os
p = os.environ["WINLAB_MACHINE"] + "/state.json"; s = json.load(open(p))
s["services"]["kubelet"]["status"] = "Running"; json.dump(s, open(p, "w"))
P
        echo "This node has joined the cluster" """,
}
PLUGINS = {"win-bridge.exe": "", "win-overlay.exe": "", "host-local.exe": ""}

# What else a fresh node knows; a test changes it by state()
FRESH: dict[str, Any] = {
    "booted": "2026-11-21T10:00:00Z",
    "logged_on": [],  # users with a session on the screen: shutdown.exe then needs /f
    "events": [
        {
            "log": "System",
            "id": 6005,
            "level": 4,
            "provider": "EventLog",
            "time": "2026-11-21T10:00:10Z",
            "message": "The Event log service was started.",
        },
        {
            "log": "System",
            "id": 7036,
            "level": 4,
            "provider": "Service Control Manager",
            "time": "2026-11-21T10:00:20Z",
            "message": "The WinRM service entered the running state.",
        },
        {
            "log": "System",
            "id": 7000,
            "level": 2,
            "provider": "Service Control Manager",
            "time": "2026-11-21T10:00:30Z",
            "message": "The hns service failed to start.",
        },
    ],
    "hotfixes": [{"id": "KB5030216", "description": "Security Update", "on": "2026-11-20"}],
    "packages": ["Package_for_RollupFix~31bf3856ad364e35~amd64~~20348.2762.1.5"],
    "volumes": [
        {"letter": "C", "fs": "NTFS", "size": 42000000000, "free": 25000000000, "label": "", "type": 3},
        {"letter": "D", "fs": "UDF", "size": 1500000000, "free": 0, "label": "WINLAB", "type": 5},
    ],
    "disks": [{"number": 0, "size": 42949672960, "style": "GPT"}],
    "partitions": [
        {"disk": 0, "number": 1, "letter": "", "size": 104857600, "type": "System"},
        {"disk": 0, "number": 2, "letter": "C", "size": 42000000000, "type": "Basic"},
    ],
    "devices": [
        {
            "name": "Red Hat VirtIO Ethernet Adapter",
            "class": "Net",
            "id": "PCI\\VEN_1AF4&DEV_1041",
            "status": "OK",
            "version": "100.95.104.26200",
            "maker": "Red Hat, Inc.",
            "inf": "oem3.inf",
        },
        {
            "name": "Red Hat VirtIO SCSI controller",
            "class": "SCSIAdapter",
            "id": "PCI\\VEN_1AF4&DEV_1042",
            "status": "OK",
            "version": "100.95.104.26200",
            "maker": "Red Hat, Inc.",
            "inf": "oem2.inf",
        },
    ],
    "connections": [
        {"local": "0.0.0.0", "port": 22, "remote": "0.0.0.0", "remote_port": 0, "state": "Listen", "process": 1204},
        {"local": "0.0.0.0", "port": 5986, "remote": "0.0.0.0", "remote_port": 0, "state": "Listen", "process": 4},
        {
            "local": "10.77.0.12",
            "port": 22,
            "remote": "10.77.0.1",
            "remote_port": 50122,
            "state": "Established",
            "process": 1204,
        },
    ],
    "dns": {"node-1": "10.77.0.12", "registry.k8s.io": "10.77.0.1"},
    "reachable": ["10.77.0.1", "10.77.0.10", "10.77.0.10:6443"],
    "time_source": "10.77.0.1,0x8",
    "timezone": "UTC",
    "shutdown": None,
    "integrity": "S-1-16-12288",
    "profiles": [{"ifIndex": 4, "category": "Public"}],
    "unguarded": [],  # the firewall's profiles that are off
    "defender": True,
    # on a Desktop: {name, framework, signature, stays: why it can't be removed, users: what each has of it}, or a text
    # with which Appx refuses to answer
    "apps": None,
    "provisioned": [],
    "offline": 0,  # how many times Windows Update can't be reached
    "features_refused": False,
    "cim": {},  # the codes that methods return
    "task_states": [],  # a task's next states, one per query, or {state, does}: what happens just before
    "dead_tasks": [],  # those that end at once and leave nothing
    "hns_busy": 0,  # how many times HNS gives no answer
    "hns_errors": {},  # by request: a text; or {text, code, bare: the code alone, times: how often}
    "language": "en-US",  # of Windows
    "hns_gone": 0,  # how many objects were deleted
    "policies": [],
}
