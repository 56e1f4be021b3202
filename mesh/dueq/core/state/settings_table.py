"""The settings of the topic, as one partition applies them: the newest document that its log has.

A document is kept as it came: what a newer build has put into it is not lost.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dueq.core.ports.tables import TableRow
from dueq.core.state.applied import Applied
from dueq.core.state.side_table import Messages
from dueq.errors import UnknownVersion
from dueq_codecs.records import U8, Record
from dueq_codecs.topic_settings import AS_CREATED, TopicSettings, decode_settings

_KEY: Final = b""
_ROW_VERSION: Final = 1


class SettingsTable:
    """The settings of one partition.

    Attributes:
        current: the settings in force; version 0 until the log has any.
    """

    def __init__(self) -> None:
        self.current: TopicSettings = AS_CREATED
        self._document = ""
        self._changed = False

    def recover(self, rows: list[TableRow]) -> None:
        """Begin with what the last checkpoint left.

        Raises:
            UnknownVersion: a newer build wrote a row.
        """
        for _, value in rows:
            if value is None:
                continue
            if value[0] != _ROW_VERSION:
                raise UnknownVersion(f"settings of version {value[0]}; this build knows {_ROW_VERSION}")
            self._take(value[1:].decode())

    def apply(self, record: Record, age_ms: int, messages: Messages, applied: Applied) -> U8:
        """Apply a SETTINGS record: the newest version counts, whoever leads when it is logged."""
        found = decode_settings(record.document)
        if found.version > self.current.version:
            self._take(record.document)
            self._changed = True
            applied.settings = self.current
        return np.zeros(1, np.uint8)

    def _take(self, document: str) -> None:
        self.current, self._document = decode_settings(document), document

    def expire(self, age_ms: int, stamp: int) -> None:
        """Forget nothing."""

    def changed_rows(self) -> list[TableRow]:
        """Return the row, if it has changed since the last call."""
        if not self._changed:
            return []
        self._changed = False
        return [TableRow(_KEY, bytes((_ROW_VERSION,)) + self._document.encode())]

    def export(self) -> str:
        """Return the document."""
        return self._document
