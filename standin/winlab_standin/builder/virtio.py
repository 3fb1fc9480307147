"""The stand-in's virtio drivers: .inf files in virtio-win's layout, without real drivers.

They are on the stand-in media, so that a rehearsal prepares drivers and guest tools as a real installation does.
"""

from __future__ import annotations

from winlab_standin.guest.releases import DEFAULT, Release

FOLDER = "/standin/virtio-win"
TOOLS = ("virtio-win-guest-tools.exe", "guest-agent/qemu-ga-x86_64.msi")
# Driver: the .inf's name, the devices of virtio 0.9 and 1.0 (virtio 1.2, 4.1.2.1), and the programs that it names
DRIVERS = {
    "vioscsi": ("vioscsi.inf", ("1004", "1048"), ("vioscsi.sys",)),
    "viostor": ("viostor.inf", ("1001", "1042"), ("viostor.sys",)),
    "NetKVM": ("netkvm.inf", ("1000", "1041"), ("netkvm.sys", "netkvmp.exe")),
}


def files(release: Release = DEFAULT) -> dict[str, bytes]:
    """The drivers' files by their paths on the media of a release."""
    found = {}
    for driver, (name, devices, programs) in DRIVERS.items():
        folder = f"{FOLDER}/{driver}/{release.drivers}/amd64"
        found[f"{folder}/{name}"] = _inf(driver, devices, programs).encode("ascii")
        for program in programs:
            found[f"{folder}/{program}"] = b"winlab's stand-in: this is no driver\r\n"
        found[f"{folder}/{driver.lower()}.pdb"] = b"debug symbols, which stay behind\r\n"
    return found


def tools() -> dict[str, bytes]:
    """The guest tools and the guest agent's package, which install nothing, by their paths on the media."""
    return dict.fromkeys((f"{FOLDER}/{name}" for name in TOOLS), b"winlab's stand-in: this installs nothing\r\n")


def _inf(driver: str, devices: tuple[str, ...], programs: tuple[str, ...]) -> str:
    lines = [
        "; winlab's stand-in for a virtio driver",
        "[Version]",
        'Signature = "$WINDOWS NT$"',
        "Provider = winlab",
        "[SourceDisksNames]",
        "1 = disk",
        "[SourceDisksFiles]",
        *(f"{program} = 1" for program in programs),
        "[Manufacturer]",
        "winlab = Models, NTamd64",
        "[Models.NTamd64]",
        *(f"{driver} = Install, PCI\\VEN_1AF4&DEV_{device}" for device in devices),
    ]
    return "\r\n".join(lines) + "\r\n"
