"""A stream that loses what cannot be written: a full disk, or a reader that has gone, must end no thread that logs."""

from __future__ import annotations

from contextlib import suppress
from typing import TextIO


class LossyStream:
    """Writes to a stream as long as that can be written.

    Args:
        stream: where lines go.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write, or lose what is to be written."""
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        with suppress(OSError):
            self._stream.flush()
