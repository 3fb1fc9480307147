"""The contract between winlab and its scripts in nodes: each script's name, settings and result.

A call is a value: ``there.run(contract.Push(program="kubelet", restore=False))`` gives a :class:`Pushed`. On Linux the
scripts are the verbs of unattend/linux/winlab_node, on Windows unattend/windows/worker/*.ps1; docs/worker-scripts.md
explains what they do. Calls of a distribution's own scripts are in winlab/design/distribution/. The unit tests check
the scripts, the stand-in and that document against all of them.

Settings are winlab's own, so types are enough. Results come from outside: each is validated on arrival.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from winlab.design.cni.model import HnsNetwork, Masquerade
from winlab.design.system import SystemName
from winlab.errors import GuestError, logs

Service = Literal["running", "stopped", "absent"]
Sha256ByName = dict[str, str]
LINUX: tuple[SystemName, ...] = ("linux",)
WINDOWS: tuple[SystemName, ...] = ("windows",)
BOTH: tuple[SystemName, ...] = ("linux", "windows")
# For how many seconds on hardware a script may be silent before it counts as hung. A script that
# works for long reports that before
WORK = 1800.0
QUESTION = 300.0  # for queries: an emulated node may take two minutes after its start to start PowerShell
LINUX_ONLY, WINDOWS_ONLY = {"on": "linux"}, {"on": "windows"}  # a setting that the other system's script does not have


class CallResult(BaseModel):
    """What a script returns. Unknown fields are ignored: a newer winlab may have written the CD."""

    model_config = ConfigDict(frozen=True, strict=True)


R = TypeVar("R", bound=CallResult)


class Call(Generic[R]):
    """A script with its settings. Subclasses are frozen dataclasses; their fields are the settings."""

    script: ClassVar[str]
    on: ClassVar[tuple[SystemName, ...]]
    result: ClassVar[type[CallResult]]
    quiet: ClassVar[float] = WORK

    def __init_subclass__(cls) -> None:
        (cls.result,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]

    @property
    def silence(self) -> float:
        """For how many seconds on hardware it may be silent."""
        return self.quiet

    def settings(self, system: str) -> dict[str, Any]:
        """The settings for this system's script."""
        assert system in self.on, f"there is no script '{self.script}' on {system}"
        known = self.known(system)
        return {name: value for name, value in asdict(self).items() if name in known}  # type: ignore[call-overload]

    @classmethod
    def known(cls, system: str) -> set[str]:
        """The names of the settings that this system's script has."""
        settings = fields(cls)  # type: ignore[arg-type]
        return {setting.name for setting in settings if setting.metadata.get("on", system) == system}

    def texts(self) -> dict[str, str]:
        """The files among the settings, by the names that ``winlab plan --render`` gives them."""
        return {}

    def read(self, output: dict[str, Any], node: str, lab: str) -> R:
        """The result, from the script's output.

        :raises GuestError: a field is missing or has the wrong type.
        """
        try:
            return self.result.model_validate(output)  # type: ignore[return-value]
        except ValidationError as error:
            wrong = {
                ".".join(map(str, row["loc"])) or "the whole": row["msg"] for row in error.errors(include_input=False)
            }
            raise GuestError(
                f"'{self.script}' in '{node}' gave a result with missing or wrong fields: {', '.join(wrong)}.",
                why="\n".join(f"{name}: {message}" for name, message in wrong.items()),
                cure="Run the same command again. If that does not help, its scripts are of another version of winlab.",
                evidence=logs(node, lab),
            ) from error


# -- results


class Changed(CallResult):
    """Whether anything had to be done."""

    changed: bool


class Pushed(Changed):
    """The program that is installed now."""

    sha256: str


class LogTexts(CallResult):
    """The ends of logs, by name."""

    logs: dict[str, str]


class ServiceFacts(CallResult):
    """A service of the node."""

    service: Service


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


class ContainerdFacts(ServiceFacts):
    """containerd on Windows; a digest is empty where the file is missing."""

    sha256: str
    config_sha256: str
    # Of its service's variables, as text of lines; empty without any, None: the scripts on an older winlab's CD
    environment_sha256: str | None = None


class KubeletFacts(ServiceFacts):
    """The kubelet on Windows."""

    command: str
    joined: bool  # kubelet.conf and the client certificate exist


class ProxyFacts(ServiceFacts):
    """kube-proxy on Windows."""

    command: str
    stale: bool = False  # its HNS network was recreated since winlab started it; an older winlab's CD does not say


class WindowsFacts(CallResult):
    """What a Windows node has so far."""

    boot_time: str  # by Windows' clock, which time synchronization may correct
    boot_id: str  # counts starts; the boot time where Windows does not
    build: str
    containers_feature: Literal["installed", "pending", "absent"]
    features_set: str = ""  # names separated by commas; the scripts on an older winlab's CD don't report it
    restart_pending: bool  # features.ps1 needs a restart that has not happened yet
    containerd: ContainerdFacts
    # The SHA-256 of the payload.json whose images containerd has completely; None: the scripts on an older winlab's CD
    images_from: str | None = None
    binaries: Sha256ByName
    installed_from: str  # the SHA-256 of the payload.json that binaries.ps1 used
    cd: str  # that of the CD's payload.json
    pushed: list[str]
    kubelet: KubeletFacts
    cni: Sha256ByName
    # What configure.ps1 wrote, as it is now: by path, and by key and name; None: the scripts on an older winlab's CD
    files: Sha256ByName | None = None
    registry: dict[str, str] | None = None  # the type, a space, and the data as in a RegistrySetting
    proxy: ProxyFacts
    endpoints: list[str] | None = None  # of HNS, by name; the scripts on an older winlab's CD don't report them


class Probed(CallResult):
    """What all scripts rely on, as found in a Windows node."""

    text: str  # the settings' text
    sha256: str  # of the settings' block
    elevated: bool
    language: str  # PowerShell's language mode
    version: str  # PowerShell's
    clock: int  # milliseconds since 1970


class Restart(CallResult):
    """Whether Windows must be restarted and the script run again."""

    restart: bool


class Updated(Restart):
    """Titles of Windows' updates."""

    installed: list[str]
    failed: list[str]


class Sealing(Restart):
    """What is known about Windows before sysprep; if a restart is needed first, nothing else is reported."""

    build: str = ""
    evaluation_minutes: int | None = None  # None: not an evaluation
    rearms: int = 0

    @model_validator(mode="after")
    def _is_whole(self) -> Sealing:
        missing = type(self).model_fields.keys() - self.model_fields_set
        if missing and not self.restart:
            raise ValueError(f"without a restart these are told, too: {', '.join(sorted(missing))}")
        return self


class Sysprep(CallResult):
    """How sysprep is doing."""

    running: bool
    state: str  # Windows' ImageState
    succeeded: bool  # whether it says so itself, by a file
    errors: list[str]  # the end of its log; successful runs have some, too

    @property
    def done(self) -> bool:
        """Whether Windows is generalized. Source: Microsoft, Windows Setup States."""
        return self.succeeded or self.state == "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE"


class Joined(Changed):
    """The node is part of the cluster."""

    joined: Literal[True]


class ProxyState(Changed):
    """kube-proxy's service, after the script started it."""

    service: Service


# -- scripts of both systems


@dataclass(frozen=True)
class RouteSetting:
    """A route to a network by a node's address."""

    to: str
    via: str


@dataclass(frozen=True, kw_only=True)
class Cni(Call[Changed]):
    """CNI configurations, and on Windows the HNS network."""

    script, on = "cni", BOTH
    files: dict[str, str]  # texts by names
    network: HnsNetwork | None = field(default=None, metadata=WINDOWS_ONLY)

    def texts(self) -> dict[str, str]:
        """The configurations."""
        return {f"cni/{name}": text for name, text in self.files.items()}


@dataclass(frozen=True, kw_only=True)
class Routes(Call[Changed]):
    """Set exactly these routes to other nodes' pods. On Windows the plug-in's own policies do source NAT."""

    script, on = "routes", BOTH
    routes: list[RouteSetting]
    masquerade: Masquerade | None = field(default=None, metadata=LINUX_ONLY)


@dataclass(frozen=True, kw_only=True)
class Push(Call[Pushed]):
    """Replace a program by the one on the CD, or restore its original."""

    script, on = "push", BOTH
    program: str
    restore: bool


@dataclass(frozen=True, kw_only=True)
class LoadImages(Call[Changed]):
    """Load the CD's images; on Linux only the named ones, if any are named."""

    script, on = "load", BOTH
    quiet = 7200.0  # one image is one command of containerd's; those with a whole Windows have gigabytes
    images: list[str] | None = field(default=None, metadata=LINUX_ONLY)


@dataclass(frozen=True, kw_only=True)
class Logs(Call[LogTexts]):
    """The last lines of the logs that matter when a node does not become Ready."""

    script, on = "logs", BOTH
    quiet = QUESTION
    lines: int = 60  # 1 to 10000
    everything: bool = field(default=False, metadata=WINDOWS_ONLY)  # the network, containers, events and more, too

    @property
    def silence(self) -> float:
        """Everything takes longer: Windows' whole logs are searched for events."""
        return QUESTION * 2 if self.everything else QUESTION


@dataclass(frozen=True, kw_only=True)
class LinkFault:
    """What happens to the packets between this node and another one.

    The other node is identified by its MAC; behind a router, by its addresses and the networks of its pods.
    """

    mac: str
    addresses: list[str]
    loss: float = 0  # percent, in each direction
    delay: int = 0  # milliseconds, of what this node sends
    jitter: int = 0  # by how many milliseconds that varies


@dataclass(frozen=True, kw_only=True)
class Faults(Call[Changed]):
    """Make exactly these faults active, including after a restart. Windows can't lose or delay packets."""

    script, on = "faults", BOTH
    links: list[LinkFault] | None = field(default=None, metadata=LINUX_ONLY)
    skew: int | None = None  # seconds by which the clock is ahead
    free: int | None = None  # bytes that stay free on the system's disk
    now: int = field(default=0, metadata=WINDOWS_ONLY)  # seconds since 1970, by the host's clock; Linux has its RTC


@dataclass(frozen=True, kw_only=True)
class Logins(Call[Changed]):
    """What logs in to the node, and what it is recognized by.

    A copy of a lab has its origin's. With *former*, that key can't log in any more; until then both can.
    """

    script, on = "logins", BOTH
    ssh_key: str  # public
    host_key: str = field(repr=False)
    host_key_public: str
    former: str | None = None  # a public key
    user: str = field(default="", metadata=LINUX_ONLY)  # whose keys they are; on Windows the Administrator's
    password: str = field(default="", repr=False, metadata=WINDOWS_ONLY)
    pfx: str = field(default="", repr=False, metadata=WINDOWS_ONLY)  # the certificate and key of WinRM, in base64
    pfx_password: str = field(default="", repr=False, metadata=WINDOWS_ONLY)


# -- verbs of winlab_node


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


# -- unattend/windows/worker/*.ps1


@dataclass(frozen=True, kw_only=True)
class Probe(Call[Probed]):
    """What all other scripts rely on: input, output, rights, the clock. Changes nothing."""

    script, on = "probe", WINDOWS
    quiet = QUESTION
    text: str
    block: str


@dataclass(frozen=True)
class WindowsStatus(Call[WindowsFacts]):
    """What a Windows node has so far."""

    script, on = "status", WINDOWS
    quiet = QUESTION


@dataclass(frozen=True, kw_only=True)
class Features(Call[Restart]):
    """Install Windows' features, and set what they need in the system."""

    script, on = "features", WINDOWS
    quiet = 3600.0  # one call of DISM installs all features, silently
    features: list[str]
    release: str


@dataclass(frozen=True, kw_only=True)
class Containerd(Call[Changed]):
    """Install containerd as a service, with the text of its config.toml and its variables: ``NAME=VALUE``."""

    script, on = "containerd", WINDOWS
    quiet = LoadImages.quiet
    config: str
    environment: list[str] = field(default_factory=list)

    def texts(self) -> dict[str, str]:
        """The configuration."""
        return {"containerd.toml": self.config}


@dataclass(frozen=True)
class Binaries(Call[Changed]):
    """Install Kubernetes' programs and CNI plug-ins."""

    script, on = "binaries", WINDOWS


@dataclass(frozen=True, kw_only=True)
class RegistrySetting:
    """A value of Windows' registry: for ``dword`` eight hexadecimal digits, for ``multistring`` lines."""

    key: str
    name: str
    type: Literal["string", "dword", "multistring"]
    data: str


@dataclass(frozen=True, kw_only=True)
class Configure(Call[Changed]):
    """Write exactly these files and registry values of add-ons: others from an earlier run are removed."""

    script, on = "configure", WINDOWS
    files: dict[str, str]  # texts by absolute paths
    registry: list[RegistrySetting]


@dataclass(frozen=True, kw_only=True)
class Kubelet(Call[Changed]):
    """Install the kubelet as a service, with its command line."""

    script, on = "kubelet", WINDOWS
    command: str


@dataclass(frozen=True, kw_only=True)
class Proxy(Call[ProxyState]):
    """Install and start kube-proxy as a service."""

    script, on = "proxy", WINDOWS
    command: str
    kubeconfig: str
    config: str
    source_endpoint: str | None = None  # the HNS endpoint whose address is its source

    def texts(self) -> dict[str, str]:
        """The configuration."""
        return {"kube-proxy.yaml": self.config}


@dataclass(frozen=True, kw_only=True)
class Updates(Call[Updated]):
    """Install Windows' own updates."""

    script, on = "updates", WINDOWS
    # all are fetched in one call, by any line; and a cumulative one may install for an hour. The task that does it
    # ends the script, too
    quiet = 21600.0
    without: list[str] = field(default_factory=list)  # titles of those to leave out


@dataclass(frozen=True, kw_only=True)
class Seal(Call[Sealing]):
    """Start sysprep, or only report what is known before it starts."""

    script, on = "seal", WINDOWS
    quiet = 7200.0  # DISM stays at one percentage for long while it removes superseded components
    generalize: str  # the text of an answer file
    superseded: bool  # whether to remove components that updates have replaced
    begin: bool  # False: report only, so that winlab can note the facts before sysprep runs


@dataclass(frozen=True)
class Sealed(Call[Sysprep]):
    """How sysprep is doing."""

    script, on = "sealed", WINDOWS
    quiet = QUESTION
