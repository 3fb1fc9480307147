"""Calls for Windows nodes alone, with their results: unattend/windows/worker/*.ps1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import model_validator

from winlab.design.contract.call import QUESTION, WINDOWS, Call, CallResult
from winlab.design.contract.on_both import Changed, LoadImages, Service, ServiceFacts, Sha256ByName


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
            raise ValueError(f"without a restart these must be reported, too: {', '.join(sorted(missing))}")
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


class ProxyState(Changed):
    """kube-proxy's service, after the script started it."""

    service: Service


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
