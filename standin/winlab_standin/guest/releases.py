"""The releases of Windows Server that the stand-in simulates, and the habits in which they differ.

The medium decides which one: the images in its install.wim. Setup records what it installed (:func:`record`), and the
installed system follows that record (:func:`installed`). No other module here knows builds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from winlab_standin.guest.base import StandinError

RECORD = "Windows/System32/config/standin-windows.json"
SWITCHES = "standin/switches.json"  # on the medium
# Traps that a medium may set, by the names of its switches: what some Windows do, and others do not
NO_OPENSSH = "no-openssh"  # it has no OpenSSH, and does not reach Windows Update
USER_APP = "user-app"  # on a Desktop an app of one user can't be removed, and sysprep refuses to continue
REMOTE_APP = "remote-app"  # on a Desktop the account SYSTEM can remove an app of one user, and a remote session can't
PORT_TAKEN = "port-taken"  # another program has the serial port from the end of bootstrap.ps1 until it logs off
TOOLS_HANG = "tools-hang"  # the installer of virtio-win's guest tools never ends
BUSY_DISKS = "busy-disks"  # Setup ends if another program uses the disks' service (diskpart) while it does
DEAD_PATHS = "dead-paths"  # Setup ends at a folder of DriverPaths that does not exist
OWN_VIRTIO = "virtio-in-pe"  # its Windows PE has virtio drivers already
LOCKOUT = "lockout"  # ten wrong passwords lock the account for ten minutes, as on media since October 2022
STOPPED_WINRM = "winrm-stopped"  # WinRM does not start with Windows, though it should
TRAPS = (
    NO_OPENSSH,
    USER_APP,
    REMOTE_APP,
    PORT_TAKEN,
    TOOLS_HANG,
    BUSY_DISKS,
    DEAD_PATHS,
    OWN_VIRTIO,
    LOCKOUT,
    STOPPED_WINRM,
)
# Apps that sysprep refuses, by the traps that bring them; the first can't be removed at all
STAYING_APP = "Microsoft.MicrosoftEdge.Stable"
APPS = {STAYING_APP: USER_APP, "MicrosoftCorporationII.WinAppRuntime.Main.1.7": REMOTE_APP}
ENGLISH = "en-US"
# The built-in account's other names (Microsoft, "Local accounts"), by the languages of these media
ACCOUNTS = {ENGLISH: "Administrator", "fr-FR": "Administrateur"}
LANGUAGES = tuple(ACCOUNTS)


@dataclass(frozen=True)
class Release:
    """A release of Windows Server: its build, and its habits.

    ``conx``: whether it has the Setup that came with build 26040. Logs show what that one ends on. Nothing is known
    about the one before, so a medium may say that it continues (:class:`Setup`).
    """

    name: str
    build: int
    revision: int  # of the updates in it
    version: str  # Microsoft's other name for it
    drivers: str  # virtio-win's folder for it
    conx: bool = False
    named_version: bool = True  # whether it has the value DisplayVersion; earlier releases have ReleaseId instead
    english_ssh: bool = True  # whether its sshd finds the group of administrators only by its English name


# The revisions are those of Microsoft's newest evaluation media, except for 2022: before KB5044281 it breaks Calico
RELEASES = {
    one.name: one
    for one in (
        Release("2019", 17763, 3650, "1809", "2k19", named_version=False),
        Release("2022", 20348, 2762, "21H2", "2k22"),
        Release("2025", 26100, 32230, "24H2", "2k25", conx=True, english_ssh=False),
    )
}
DEFAULT = RELEASES["2022"]


def of_build(build: int) -> Release:
    """The release with this build.

    :raises StandinError: it is not one of those that the stand-in simulates.
    """
    for release in RELEASES.values():
        if release.build == build:
            return release
    raise StandinError(f"The stand-in does not know the build {build} of Windows.")


@dataclass(frozen=True)
class Windows:
    """A Windows that is installed, or in an image on the medium."""

    release: Release = DEFAULT
    edition: str = "ServerStandardEval"  # EDITIONID
    installation: str = "Server Core"
    language: str = ENGLISH  # what it was installed in
    languages: tuple[str, ...] = LANGUAGES  # what it can be used in
    traps: tuple[str, ...] = ()  # those of its medium

    @property
    def own_keys(self) -> bool:
        """Whether sshd treats administrators as ordinary users, whose keys are in their profiles."""
        return self.release.english_ssh and self.language != ENGLISH

    @property
    def desktop(self) -> bool:
        """Whether it has one; Server Core has none."""
        return self.installation == "Server"

    @property
    def apps(self) -> tuple[str, ...]:
        """The apps that one user has at first."""
        return tuple(app for app, trap in APPS.items() if trap in self.traps) if self.desktop else ()

    @property
    def name(self) -> str:
        """The value ProductName: ``Windows Server 2022 Standard Evaluation``."""
        kind = self.edition.removeprefix("Server").removesuffix("Eval")
        return f"Windows Server {self.release.name} {kind} Evaluation"

    @property
    def build(self) -> str:
        """The build with its revision: ``20348.2762``."""
        return f"{self.release.build}.{self.release.revision}"

    @property
    def version(self) -> str:
        """What ``ver`` prints: ``10.0.20348.2762``."""
        return f"10.0.{self.build}"

    @property
    def account(self) -> str:
        """The name that the built-in account has at first."""
        return ACCOUNTS.get(self.language, ACCOUNTS[ENGLISH])

    def facts(self) -> dict[str, str | int]:
        """The values of ``HKLM\\SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion``. kubelet.exe reports what a node runs
        by ProductName, CurrentMajorVersionNumber, CurrentMinorVersionNumber, CurrentBuildNumber and UBR
        (k8s.io/kubernetes, pkg/kubelet/winstats/version.go)."""
        named: dict[str, str | int] = {"DisplayVersion": self.release.version} if self.release.named_version else {}
        return {
            "ProductName": self.name,
            "CurrentBuild": str(self.release.build),
            "CurrentBuildNumber": str(self.release.build),
            "UBR": self.release.revision,
            "CurrentMajorVersionNumber": 10,
            "CurrentMinorVersionNumber": 0,
            "CurrentVersion": "6.3",
            "EditionID": self.edition,
            "InstallationType": self.installation,
            "ReleaseId": "2009" if self.release.named_version else self.release.version,
            **named,
        }


@dataclass(frozen=True)
class Setup:
    """The habits of a medium's Setup.

    ``fatal``: whether it ends if a command of the windowsPE pass has an exit code other than 0, or if it can't install
    a driver that it is given. ``gapless``: whether it refuses numbers in ``Order`` that have gaps (0x8007000D).
    ``logs``: where on X: its log is until the disk is ready. ``title``: of its window. ``traps``: those that its
    medium sets.
    """

    fatal: bool
    gapless: bool
    logs: str
    title: str
    traps: tuple[str, ...] = ()


def setup(release: Release, media: Path) -> Setup:
    """The habits of the Setup on the medium in the folder *media*."""
    set_ = traps(media)
    if release.conx:
        return Setup(fatal=True, gapless=True, logs="Windows", title="Windows Server Setup", traps=set_)
    lenient, logs = _switches(media).get("lenient") is True, "$WINDOWS.~BT/Sources/Panther"
    return Setup(fatal=not lenient, gapless=False, logs=logs, title="Windows Setup", traps=set_)


def traps(media: Path) -> tuple[str, ...]:
    """The traps that the medium in the folder *media* sets."""
    return tuple(_switches(media).get("traps", ()))


def _switches(media: Path) -> dict[str, Any]:
    path = media / SWITCHES
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def record(windows: Windows, root: Path) -> None:
    """Record on the disk whose C: is *root* what was installed there."""
    release, languages = windows.release, list(windows.languages)
    about = {"edition": windows.edition, "installation": windows.installation, "language": windows.language}
    lists = {"languages": languages, "traps": list(windows.traps)}
    path = root / RECORD
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"build": release.build, **about, **lists}), encoding="utf-8")


def installed(root: Path) -> Windows:
    """The Windows whose C: is *root*; the default one if nothing is recorded, as on a host that runs tests."""
    path = root / RECORD
    if not path.is_file():
        return Windows()
    kept = json.loads(path.read_text(encoding="utf-8"))
    release, languages = of_build(kept.pop("build")), tuple(kept.pop("languages"))
    set_ = tuple(kept.pop("traps", ()))
    return Windows(release, **kept, languages=languages, traps=set_)
