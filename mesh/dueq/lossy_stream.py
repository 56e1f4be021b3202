"""A stream that loses what cannot be written.

A full disk, or a reader that has gone or stands still, must neither end a thread that logs nor hold it up.
"""

from __future__ import annotations

import select
from contextlib import suppress
from typing import Final, TextIO

_PIECE: Final = 1_000
"""Characters that a pipe takes as a whole where it takes anything: it has room for 4,096 bytes then (pipe(7))."""
_PATIENCE_MS: Final = 20


class LossyStream:
    """Writes to a stream as long as that takes something; belongs to one thread at a time.

    Args:
        stream: where lines go.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text = ""
        self._stands_still = False
        self._room: select.poll | None = None
        with suppress(OSError, AttributeError):  # it is no file
            descriptor = stream.fileno()
            self._room = select.poll()
            self._room.register(descriptor, select.POLLOUT)

    def write(self, text: str) -> None:
        """Take text for the next `flush`, so that a line and its end are written or lost together."""
        self._text += text

    def flush(self) -> None:
        """Write, or lose what is to be written."""
        text, self._text = self._text, ""
        with suppress(OSError):
            for start in range(0, len(text), _PIECE):
                if not self._has_room():
                    break
                self._stream.write(text[start : start + _PIECE])
                self._stream.flush()

    def _has_room(self) -> bool:
        """Whether a piece can be written at once; a reader gets some time, unless it has used that in vain before."""
        if self._room is None:
            return True
        self._stands_still = not self._room.poll(0 if self._stands_still else _PATIENCE_MS)
        return not self._stands_still
