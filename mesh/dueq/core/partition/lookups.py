"""Looking at single messages of a partition by their ids or unique keys, wherever they lie: in memory or on the disk.

    look_up ──► pinned ──► (read from the disk) ──► rows as they are now ──► let go

A message is pinned as if a record named it (`state/residency`): while the disk is read it may be leased, moved or
finished, and its row in memory says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dueq.core.delivery.dispatch import LeaseSeen
from dueq.core.ports.entry import FLAG_UPLOAD, Entries, State, is_full, is_wide, keys_of, meta_of, versions_of
from dueq.core.ports.names import Name
from dueq.core.state.cold import ColdIds, Hold
from dueq.core.state.name_holds import NameHold, NamesWanted
from dueq.core.state.timeline import Timeline
from dueq.instant import Now

Then = Callable[[Entries | None, Now], None]
"""Called with the rows in the order of the ids (state ABSENT where there is none); None: the leadership has ended."""


ThenNames = Callable[[list[Name | None] | None, Now], None]
"""Called with what each of the hashes names, None: nothing; None for all of them: the leadership has ended."""


class _NamesLookup(NamedTuple):
    timeline: Timeline
    hold: NameHold
    then: ThenNames


class _Lookup(NamedTuple):
    timeline: Timeline
    hold: Hold
    then: Then


class Lookups:
    """The look-ups of one led partition that wait for the disk."""

    def __init__(self) -> None:
        self._waiting: list[_Lookup] = []
        self._waiting_names: list[_NamesLookup] = []

    def begin(self, timeline: Timeline, ids: ColdIds, then: Then, now: Now) -> ColdIds | None:
        """Look for messages; return what to read from the disk, to be followed by `read`."""
        hold, asked = timeline.hold(ids)
        lookup = _Lookup(timeline, hold, then)
        if hold.unresolved:
            self._waiting.append(lookup)
        else:
            _answer(lookup, now)
        return asked

    def begin_names(
        self, timeline: Timeline, hashes: list[bytes], then: ThenNames, now: Now
    ) -> NamesWanted | None:
        """Look for what unique keys or idempotency keys name; return what to read, to be followed by `read`."""
        hold, wanted = timeline.name_holds.hold(hashes)
        lookup = _NamesLookup(timeline, hold, then)
        if hold.unresolved:
            self._waiting_names.append(lookup)
        else:
            _answer_names(lookup, now)
        return wanted

    def read(self, now: Now) -> None:
        """Something was read from the disk: answer those who waited for it."""
        if self._waiting_names:
            found = [lookup for lookup in self._waiting_names if not lookup.hold.unresolved]
            self._waiting_names = [lookup for lookup in self._waiting_names if lookup.hold.unresolved]
            for each in found:
                _answer_names(each, now)
        if not self._waiting:
            return
        ready = [lookup for lookup in self._waiting if not lookup.hold.unresolved]
        self._waiting = [lookup for lookup in self._waiting if lookup.hold.unresolved]
        for lookup in ready:
            _answer(lookup, now)

    def leadership_lost(self, now: Now) -> None:
        """Nobody is answered any more."""
        waiting, self._waiting = self._waiting, []
        for lookup in waiting:
            lookup.timeline.release(lookup.hold)
            lookup.then(None, now)
        names, self._waiting_names = self._waiting_names, []
        for each in names:
            each.timeline.name_holds.release(each.hold)
            each.then(None, now)


def _answer_names(lookup: _NamesLookup, now: Now) -> None:
    names = lookup.timeline.name_holds.named_by(lookup.hold)
    lookup.timeline.name_holds.release(lookup.hold)
    lookup.then(names, now)


def _answer(lookup: _Lookup, now: Now) -> None:
    rows = lookup.timeline.held_rows(lookup.hold)
    lookup.timeline.release(lookup.hold)
    lookup.then(rows, now)


def message_document(timeline: Timeline, rows: Entries, lease: LeaseSeen | None) -> dict[str, Any] | None:
    """Return what there is to say of one message, beside its meta and payload.

    None: its job was withdrawn, and it is only still lying there.

    Args:
        timeline: that has it.
        rows: the message.
        lease: of a message that is leased.
    """
    jobs, entry = timeline.jobs, rows[0]
    if (ended := jobs.ended(rows)) is not None and ended[0]:
        return None
    barred = jobs.barred(rows)
    document: dict[str, Any] = {
        "state": "waiting",
        "due": int(entry["due"]),
        "waits_until": int(entry["wait_at"]),
        "version": int(versions_of(rows)[0]),
        "attempt": int(entry["attempt"]),
        "size": int(entry["size"]),
        "crc": int(entry["crc"]),
        "meta": int(meta_of(rows["flags"])[0]),
        "upload": int(entry["place"]) if int(entry["flags"]) & FLAG_UPLOAD else 0,
        "hidden": barred is not None and bool(barred[0]),
    }
    if (headers := timeline.headings.by_key.get(int(keys_of(rows)[0]))) is not None:
        document["headers"] = headers
    if is_full(rows):
        document["expires"] = int(entry["expires"])
        if entry["state"] == State.DEAD:
            document.update(state="dead", died_at=int(entry["died_at"]))
    if is_wide(rows):
        document["rank"] = int(entry["rank"])
        document["group"] = timeline.groups.name_of(int(entry["group"])) or ""
    if lease is not None and lease.pushed:
        holder = int(entry["consumer_high"]) << 64 | int(entry["consumer_low"])
        document.update(
            state="leased", holder=f"{holder:032x}", token=int(entry["token"]), lease_ends=lease.ends_ms
        )
    elif lease is not None:  # it is chosen for a consumer, who knows nothing of it yet
        document["attempt"] -= document["attempt"] > 0
    return document
