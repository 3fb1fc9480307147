"""What a user at a domain's display has: its screen, by VNC or as a picture, and the Enter key."""

from __future__ import annotations

import libvirt
from lxml import etree

from winlab.adapters.vm import screen
from winlab.adapters.vm.connection import answering, explained
from winlab.adapters.vm.domains import Named, get
from winlab.errors import NotFoundError, WinlabError

KEY_ENTER = 28  # linux/input-event-codes.h


@answering()
def vnc(conn: libvirt.virConnect, machine: Named) -> tuple[str, int]:
    """Where the domain's VNC server listens: address and port.

    :raises NotFoundError: it does not run.
    """
    root = etree.fromstring(get(conn, machine).XMLDesc(0).encode())
    graphics = root.find("devices/graphics[@type='vnc']")
    port = -1 if graphics is None else int(graphics.get("port", "-1"))
    if graphics is None or port < 0:
        raise NotFoundError(f"The domain '{machine.domain}' has no screen.", why="It is not running.")
    return graphics.get("listen", "127.0.0.1"), port


def screenshot(conn: libvirt.virConnect, machine: Named) -> bytes:
    """The domain's screen as PNG."""
    return screen.converted(_screen(conn, machine), "PNG")


def look(conn: libvirt.virConnect, machine: Named) -> bytes:
    """The domain's screen as a binary PPM (:mod:`winlab.adapters.vm.screen`); empty if it can't be taken."""
    try:
        return screen.converted(_screen(conn, machine), "PPM")
    except WinlabError:
        return b""


def _screen(conn: libvirt.virConnect, machine: Named) -> bytes:
    domain = get(conn, machine)
    stream = conn.newStream(0)
    cure = "The node must be running: see 'winlab status'."
    with explained(f"The screen of '{machine.domain}' can't be taken.", cure):
        domain.screenshot(stream, 0, 0)
        parts: list[bytes] = []
        while chunk := stream.recv(1 << 16):
            parts.append(chunk)
        stream.finish()
    return b"".join(parts)


def press_enter(conn: libvirt.virConnect, machine: Named) -> None:
    """Press the Enter key for a tenth of a second."""
    with explained(f"A key can't be sent to '{machine.domain}'."):
        get(conn, machine).sendKey(libvirt.VIR_KEYCODE_SET_LINUX, 100, [KEY_ENTER], 1, 0)
