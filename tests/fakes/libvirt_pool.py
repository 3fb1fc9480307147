"""A hypervisor's storage pool in memory, as libvirt's API shows it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import libvirt
from lxml import etree


def refusal(code: int) -> libvirt.libvirtError:
    made = libvirt.libvirtError("refused")
    made.err = (code, libvirt.VIR_FROM_STORAGE, "refused", 2, "", "", "", 0, 0)
    return made


class Stream:
    """Bytes on their way into a volume, or out of it."""

    def __init__(self, on_send: Callable[[], object]) -> None:
        self.volume: Volume | None = None
        self.at = 0
        self.on_send = on_send

    def send(self, data: bytes) -> int:
        assert self.volume is not None
        self.on_send()
        self.volume.content[self.at : self.at + len(data)] = data
        self.at += len(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        assert self.volume is not None
        self.at += size
        return bytes(self.volume.content[self.at - size : self.at])

    def finish(self) -> None: ...

    def abort(self) -> None: ...


class Volume:
    def __init__(self, host: Host, name: str) -> None:
        self.host = host
        self.name = name
        self.content = bytearray()

    def upload(self, stream: Stream, *_: int) -> None:
        stream.volume = self

    def download(self, stream: Stream, offset: int, *_: int) -> None:
        stream.volume, stream.at = self, offset

    def info(self) -> list[int]:
        return [0, len(self.content), len(self.content)]

    def infoFlags(self, flags: int) -> list[int]:
        assert flags == libvirt.VIR_STORAGE_VOL_GET_PHYSICAL
        return self.info()

    def path(self) -> str:
        return f"/pool/{self.name}"

    def delete(self, _flags: int) -> None:
        self.host.deleted(self.name)
        del self.host.volumes[self.name]


class Host:
    """A hypervisor's pool, in memory."""

    def __init__(self) -> None:
        self.volumes: dict[str, Volume] = {}
        self.log: list[str] = []
        self.on_send: Callable[[], object] = lambda: None
        self.deleted: Callable[[str], object] = lambda _: None
        self.created: Callable[[str], object] = lambda _: None

    def storagePoolLookupByName(self, _: str) -> Any:
        return SimpleNamespace(
            isActive=lambda: True,
            refresh=lambda _: None,
            createXML=self._create,
            storageVolLookupByName=self._find,
            listVolumes=lambda: list(self.volumes),
        )

    def getURI(self) -> str:
        return "qemu:///system"

    def newStream(self, _: int) -> Stream:
        return Stream(self.on_send)

    def put(self, name: str, content: bytes = b"") -> None:
        self.volumes[name] = Volume(self, name)
        self.volumes[name].content[:] = content

    def _create(self, xml: str, _flags: int) -> Volume:
        name = str(etree.fromstring(xml).findtext("name"))
        if name in self.volumes:
            raise refusal(libvirt.VIR_ERR_STORAGE_VOL_EXIST)
        self.put(name)
        self.log.append(name)
        self.created(name)
        return self.volumes[name]

    def _find(self, name: str) -> Volume:
        if name not in self.volumes:
            raise refusal(libvirt.VIR_ERR_NO_STORAGE_VOL)
        return self.volumes[name]
