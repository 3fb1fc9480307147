"""A stream of chunks that is read in pieces of any length, such as a volume's content as libvirt sends it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from winlab.errors import WinlabError

AT_ONCE = 1 << 20  # bytes that are put together from small chunks, if there are so many


class Chunks:
    """What was received and not yet taken is ``buffer[at:]``: parsers of many small records look at it directly."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self.buffer = b""
        self.at = 0

    def take(self, length: int) -> bytes:
        """The next *length* bytes.

        :raises WinlabError: the stream ends before.
        """
        if self.at + length > len(self.buffer):
            self._fill(length)
        begin, self.at = self.at, self.at + length
        return self.buffer[begin : self.at]

    def rest(self) -> Iterator[bytes]:
        """Everything that was not taken yet."""
        if self.at < len(self.buffer):
            yield self.buffer[self.at :]
        yield from self._chunks

    def _fill(self, length: int) -> None:
        parts = [self.buffer[self.at :]]
        ready = len(parts[0])
        while ready < max(length, AT_ONCE) and (chunk := next(self._chunks, None)) is not None:
            parts.append(chunk)
            ready += len(chunk)
        self.buffer, self.at = b"".join(parts), 0
        if ready < length:
            raise WinlabError(
                "The image of a saved machine ends too early.",
                why=f"{length} bytes should follow, and {ready} do.",
                cure="Save the machine again. If you imported the snapshot, import it again.",
            )
