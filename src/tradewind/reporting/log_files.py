"""Reads log files that may be huge, may not be UTF-8, and may still grow."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from tradewind.deployer.runner.log_limit import skip_hole

_BLOCK = 1 << 16


def tail_offset(path: Path, lines: int) -> int:
    """Find the offset at which the last lines of a file begin; it is read from its end, block by block.

    Args:
        path: The file.
        lines: Number of lines to keep.

    Returns:
        The offset in bytes; 0 when the file has fewer lines.
    """
    with path.open("rb") as file:
        end = file.seek(0, 2)
        if lines <= 0:
            return end
        at, found = end, 0
        while at > 0:
            start = max(0, at - _BLOCK)
            file.seek(start)
            block = file.read(at - start)
            # A line break at the very end closes the last line and begins none.
            limit = len(block) - 1 if at == end else len(block)
            while (limit := block.rfind(b"\n", 0, limit)) >= 0:
                found += 1
                if found == lines:
                    return start + limit + 1
            at = start
        return 0


class LogFileReader:
    """Reads a file from an offset, as far as it has been written; bytes that are not UTF-8 become ``�``.

    Args:
        path: The file.
        offset: Bytes to skip at the beginning.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self) -> Iterator[str]:
        """Yield the text that was written since the last call, in pieces of bounded size."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            if file.seek(0, 2) < self._offset:  # it was cut: begin again
                self._offset = 0
            self._offset = file.seek(skip_hole(file, self._offset))
            while block := file.read(_BLOCK):
                self._offset += len(block)
                yield self._decoder.decode(block)

    def rest(self) -> str:
        """Return the replacement for an unfinished character at the end, once nothing more will come."""
        return self._decoder.decode(b"", final=True)
