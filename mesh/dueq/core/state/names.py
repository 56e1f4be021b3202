"""The unique keys of one partition, in memory: those that have changed, and those that records in the log name.

All keys lie on the disk, by their hashes. A row in memory is right; a row that a read brings is only taken for a key
that is not in memory. A changed row stays until the checkpoint that writes it is durable and every older read has been
answered (`ColdReads.settled`), a pinned one until it is pinned no more. So memory stays small, however many keys there
are.

A filter says of most new keys that the disk does not have them, so the disk is not asked (`key_filter`). If the disk
had keys when the replica was opened, they are read into the filter piece by piece, in the order of their hashes, while
INSERTs ask for keys of which it cannot say that yet.

Keys of one INSERT that nobody bore before are kept as one (`fresh_names`).

The end of a live message needs no read: it bore its key, so its row is known without looking.

Idempotency keys lie among them, by hashes that no unique key has. Their rows hold for `ONCE_MS`, whatever becomes of
the messages.

A remembered key is free from its `until` on, by the age of the partition: apply needs no record for that. The rows of
such keys are garbage. Each replica sweeps them off its own disk in its own time, some with each checkpoint.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import filterfalse
from typing import Final, NamedTuple

import numpy as np

from dueq.core.ports.entry import Entries, keys_of
from dueq.core.ports.names import (
    HASH_BYTES,
    NO_HASH,
    NOT_BORNE,
    Answered,
    Borne,
    Lasting,
    Name,
    Owner,
    Remembered,
    expiry_key,
    halves_of,
    hashes_of,
    pack_name,
    unpack_name,
)
from dueq.core.state.fresh_names import FreshNames
from dueq.core.state.key_filter import KEYS_MAX, KeyFilter
from dueq_codecs.records import U64

_NEVER: Final = 1 << 64


class ChangedRows(NamedTuple):
    """Rows that a checkpoint writes."""

    names: list[tuple[bytes, bytes | None]]
    """Rows of keys by their hashes."""
    borne: Borne
    """Keys of which no checkpoint has written a row, and of which only their bearers are known."""
    expiry: list[tuple[bytes, bytes | None]]
    """Rows of the index of remembered keys."""


class Names:
    """The unique keys, by their hashes. Everything but reads and sweeps happens inside `apply`.

    Args:
        count: rows on the disk, as the last checkpoint says.

    Attributes:
        known: hash -> its row, packed; None: nobody bears it; or the batch that knows. A hash that is not here may be
            on the disk.
        fresh: sequence -> the keys of an INSERT of the log that nobody bore when it was appended.
        count: rows on the disk, once everything that changed is there; those to be swept included. Replicas differ.
        age_ms: of the partition.
    """

    def __init__(self, count: int) -> None:
        self.known: dict[bytes, bytes | FreshNames | None] = {NO_HASH: None}
        self.fresh: dict[int, FreshNames] = {}
        self.count = count
        # Those on the disk, as far as it was looked at; None: they are too many.
        self._stored: KeyFilter | None = KeyFilter() if count <= KEYS_MAX else None
        # First half of the hashes from which on it was not looked at; None: all of it was.
        self._looked_to: int | None = 0 if count else None
        self._looked_after = b""
        self._looking = self._look_wanted = False
        self.age_ms = 0
        self._pins = {NO_HASH}
        self._more_pins: dict[bytes, int] = {
            NO_HASH: 1
        }  # of those that are pinned more than once: how much more
        self._changed: dict[bytes, bool] = {}  # True: the disk has no row yet
        self._expiry: dict[bytes, bytes | None] = {}  # changed rows of the index of remembered keys
        self._saving: dict[bytes, bool] = {}
        self._saving_expiry: dict[bytes, bytes | None] = {}
        self._loose: list[Iterable[bytes]] = []
        self._born: list[FreshNames] = []  # since the last checkpoint
        self._born_count = 0
        self._saving_born: list[FreshNames] = []
        self._loose_born: list[FreshNames] = []
        self._oldest_until = 0 if count else _NEVER  # no remembered key is forgotten before that
        self._swept = False  # since the last checkpoint became durable

    @property
    def changed_count(self) -> int:
        """Rows that the next checkpoint writes."""
        return len(self._changed) + self._born_count

    @property
    def run_out(self) -> bool:
        """Whether a key may be remembered that is forgotten at some age: while the disk is asked, nobody knows."""
        return self._swept or self._oldest_until < _NEVER

    # ------------------------------------------------------------ rows in memory

    def unknown(self, hashes: list[bytes]) -> list[bytes]:
        """Return which hashes are not in memory, each once."""
        known = self.known
        if known.keys().isdisjoint(hashes):
            return list(dict.fromkeys(hashes))
        return list(dict.fromkeys([digest for digest in hashes if digest not in known]))

    def perhaps_stored(self, hashes: list[bytes]) -> list[bytes]:
        """Return those of these that the disk may have; they are not in memory."""
        if self._stored is None or not hashes:
            return hashes
        return [hashes[at] for at in self._perhaps(self._stored, *halves_of(hashes))]

    def _perhaps(self, stored: KeyFilter, high: U64, low: U64) -> list[int]:
        places = stored.perhaps(high, low)
        if self._looked_to is None:
            return places
        beyond = np.flatnonzero(high >= np.uint64(self._looked_to)).tolist()
        self._look_wanted = self._look_wanted or bool(beyond)
        return sorted({*places, *beyond})

    def wants_hashes(self) -> bytes | None:
        """Return the hash behind which keys of the disk are to be read into the filter; None: not now."""
        if self._looked_to is None or self._looking or not self._look_wanted or self._stored is None:
            return None
        self._looking = True
        return self._looked_after

    def hashes_read(self, hashes: bytes, ended: bool) -> None:
        """Take the next keys of the disk into the filter.

        The filter already has the keys that checkpoints have written since.
        """
        self._looking = self._look_wanted = False
        if self._stored is None:
            return
        if hashes:
            halves = np.frombuffer(hashes, ">u8").reshape(-1, 2).astype(np.uint64)
            self._stored.add(halves[:, 0], halves[:, 1])
            self._looked_to, self._looked_after = int(halves[-1, 0]), hashes[-HASH_BYTES:]
        if ended:
            self._looked_to = None
        if self._stored.is_full:
            self._stored = None

    def learn(self, hashes: list[bytes], found: dict[bytes, Name]) -> None:
        """Take the disk's rows of these keys, which are pinned; rows in memory stay as they are."""
        known = self.known
        new = hashes if known.keys().isdisjoint(hashes) else [each for each in hashes if each not in known]
        known.update(dict.fromkeys(new))
        if found:
            known.update({digest: pack_name(found[digest]) for digest in new if digest in found})

    def pin(self, hashes: list[bytes]) -> None:
        """Keep these in memory, once they are."""
        pins, more, wanted = self._pins, self._more_pins, set(hashes)
        if len(wanted) < len(hashes) or not pins.isdisjoint(wanted):
            for digest, count in Counter(hashes).items():
                if count := count - (digest not in pins):
                    more[digest] = more.get(digest, 0) + count
        pins |= wanted

    def unpin(self, hashes: list[bytes]) -> None:
        """Let go of what `pin` keeps."""
        free, more = hashes, self._more_pins
        if not more.keys().isdisjoint(hashes):
            free = []
            for digest in hashes:
                left = more.pop(digest, 0)
                if not left:
                    free.append(digest)
                elif left > 1:
                    more[digest] = left - 1
        self._pins.difference_update(free)
        self._loose.append(hashes)

    def hold_fresh(self, sequence: int, hashes: list[bytes], high: U64, low: U64) -> FreshNames | None:
        """Keep the keys of an INSERT as one, those that the disk may have left out.

        None: it is not known that nobody bears the others, or one key comes twice.
        """
        known = self.known
        if self._stored is None or not known.keys().isdisjoint(hashes):
            return None
        perhaps = self._perhaps(self._stored, high, low)
        if 2 * len(perhaps) > len(hashes):
            return None
        fresh = FreshNames(hashes, high, low, perhaps)
        held: dict[bytes, bytes | FreshNames | None] = dict.fromkeys(hashes, fresh)
        if len(held) < len(hashes):
            return None
        for digest in fresh.others:
            del held[digest]
        self.fresh[sequence] = fresh
        known.update(held)
        return fresh

    def let_fresh_go(self, sequence: int) -> None:
        """The INSERT was applied, or cut off the log."""
        fresh = self.fresh.pop(sequence)
        if fresh.borne:
            return
        if fresh.touched:
            self.unpin(fresh.hashes)
        else:
            fresh.refused = True
            self._loose_born.append(fresh)

    def forget(self) -> None:
        """Forget what the disk has just so. Not while a read is under way that may have seen an older disk."""
        known, pins = self.known, self._pins
        batches, self._loose_born = self._loose_born, []
        for fresh in batches:
            if not fresh.touched and (len(pins) == 1 or pins.isdisjoint(fresh.hashes)):
                deque(map(known.__delitem__, fresh.hashes), maxlen=0)
                continue
            for digest in fresh.hashes:
                if known.get(digest) is fresh:
                    if digest in pins:
                        known[digest] = fresh.row_of(digest)
                    else:
                        del known[digest]
        loose, self._loose = self._loose, []
        for hashes in loose:
            free = list(filterfalse(self._changed.__contains__, hashes))
            free = list(filterfalse(self._saving.__contains__, free))
            free = list(filterfalse(pins.__contains__, free))
            for digest in free:
                if type(known.get(digest)) is not FreshNames:
                    known.pop(digest, None)

    # ------------------------------------------------------------ apply

    def _row(self, digest: bytes) -> bytes | None:
        row = self.known[digest]
        return row.row_of(digest) if isinstance(row, FreshNames) else row

    def get(self, digest: bytes) -> Name | None:
        """Return what a key names; None: it is free. It must be in memory."""
        row = self._row(digest)
        if row is None:
            return None
        name = unpack_name(row)
        return None if isinstance(name, Lasting) and name.until < self.age_ms else name

    def are_unknown(self, hashes: list[bytes]) -> bool:
        """Whether no row is known of any of these: to be told quickly."""
        return not any(map(self.known.__getitem__, hashes))

    def are_free(self, hashes: list[bytes]) -> bool:
        """Whether no row is known of any of these, and each is there once: the usual case."""
        return self.are_unknown(hashes) and len(set(hashes)) == len(hashes)

    def take(self, digest: bytes, owner: Owner) -> None:
        """Let a live message bear a key that is free, or whose owner loses it by this."""
        self._set(digest, owner)

    def answer(self, digest: bytes, answered: Answered) -> None:
        """Keep what a request with an idempotency key that is free is answered."""
        self._set(digest, answered)
        self._oldest_until = min(self._oldest_until, answered.until)
        self._expiry[expiry_key(answered.until, digest)] = b""

    def _set(self, digest: bytes, name: Name) -> None:
        row = self._row(digest)
        old = unpack_name(row) if row is not None else None
        if old is None:
            self.count += 1
        elif isinstance(old, Lasting):
            self._expiry[expiry_key(old.until, digest)] = None
        self._touch(digest, old is None)
        self.known[digest] = pack_name(name)

    def _touch(self, digest: bytes, new: bool) -> None:
        """Note that a key gets a value of its own; `new`: the disk has no row of it, if no batch knows better."""
        fresh = self.known.get(digest)
        if isinstance(fresh, FreshNames):
            if fresh.borne:
                fresh.touched, new = True, not fresh.saving
            else:
                self._divide(fresh)
        self._changed.setdefault(digest, new)

    def _divide(self, fresh: FreshNames) -> None:
        """Hold keys of an INSERT one by one from now on, until it is applied."""
        fresh.touched = True
        if fresh.refused:  # that is over: nobody would unpin them
            self._loose.append(fresh.hashes)
        else:
            self.pin(fresh.hashes)
        self.known.update(dict.fromkeys(fresh.hashes))

    def take_all(self, hashes: list[bytes], rows: list[bytes]) -> None:
        """Let live messages bear keys of which no row is known (`are_free`); these are the rows (`pack_owners`)."""
        self.count += len(hashes)
        for digest, row in zip(hashes, rows, strict=True):
            self._touch(digest, True)
            self.known[digest] = row

    def bear(self, fresh: FreshNames, sequence: int, firsts: U64) -> None:
        """Let the messages of an INSERT bear its fresh keys, none of which was touched."""
        fresh.bear(sequence, firsts)
        self.count += len(fresh.hashes)
        self._born.append(fresh)
        self._born_count += len(fresh.hashes)

    def end(self, rows: Entries, remember_ms: int) -> None:
        """Let go of the keys of live messages that end; remembered for this long, by the partition's age."""
        hashes = hashes_of(rows["key_high"], rows["key_low"])
        if not remember_ms:
            for digest in hashes:
                self._free(digest)
            return
        until = self.age_ms + remember_ms
        self._oldest_until = min(self._oldest_until, until)
        columns = (
            rows["first"].tolist(), keys_of(rows).tolist(), rows["due"].tolist(), rows["size"].tolist(),
            rows["crc"].tolist(),
        )  # fmt: skip
        for digest, first, key, due, size, crc in zip(hashes, *columns, strict=True):
            self._touch(digest, False)
            self.known[digest] = pack_name(Remembered(first, key, due, size, crc, until))
            self._expiry[expiry_key(until, digest)] = b""

    def _free(self, digest: bytes) -> None:
        self.count -= 1
        self._touch(digest, False)
        self.known[digest] = None
        if self._changed[digest]:  # came and goes between two checkpoints
            del self._changed[digest]
            self._loose.append((digest,))

    # ------------------------------------------------------------ sweeping

    def wants_sweep(self) -> int | None:
        """Return the age before which remembered keys are to be read, to be swept; None: there is nothing to do."""
        return self.age_ms if not self._swept and self._oldest_until < self.age_ms else None

    def sweeping(self) -> None:
        """A sweep was begun: there is one at most for each checkpoint."""
        self._swept = True
        on_their_way = (*self._expiry.items(), *self._saving_expiry.items())
        untils = [int.from_bytes(key[:8], "big") for key, value in on_their_way if value is not None]
        self._oldest_until = min(untils, default=_NEVER)

    def swept(
        self, expired: list[tuple[int, bytes]], following: int | None, stale: Sequence[tuple[int, bytes]]
    ) -> None:
        """Let the next checkpoint delete keys that are remembered no more.

        Args:
            expired: (until, hash) of rows on the disk.
            following: until when the next one is remembered; None: there is none.
            stale: (until, hash) of rows of the index on the disk that its keys know nothing of.
        """
        for until, digest in stale:
            if digest not in self.known or not self._lasts_until(digest, until):
                self._expiry[expiry_key(until, digest)] = None
        for until, digest in expired:
            if digest in self.known and not self._lasts_until(digest, until):
                continue
            self.known[digest] = None
            self._changed[digest] = False
            self._expiry[expiry_key(until, digest)] = None
            self.count -= 1
        if following is not None:
            self._oldest_until = min(self._oldest_until, following)

    def _lasts_until(self, digest: bytes, until: int) -> bool:
        row = self._row(digest)
        name = unpack_name(row) if row is not None else None
        return isinstance(name, Lasting) and name.until == until

    # ------------------------------------------------------------ checkpoints

    def changed_rows(self) -> ChangedRows:
        """Return the rows that changed since the last call."""
        known = self.known
        rows = list(zip(self._changed, map(self._row, self._changed), strict=True))
        expiry = list(self._expiry.items())
        if self._stored is not None and (stored := [digest for digest, row in rows if row is not None]):
            self._stored.add(*halves_of(stored))
        for fresh in self._born:
            fresh.saving = True
            if fresh.touched:
                packed = zip(fresh.hashes, fresh.packed(), strict=True)
                rows.extend([row for row in packed if known.get(row[0]) is fresh])
            if self._stored is not None:
                self._stored.add(fresh.high, fresh.low)
        borne = NOT_BORNE
        if untouched := [fresh.as_columns() for fresh in self._born if not fresh.touched]:
            borne = Borne(*map(np.concatenate, zip(*untouched, strict=True)))
        if self._stored is not None and self._stored.is_full:
            self._stored = None
        self._saving, self._changed = self._changed, {}
        self._saving_expiry, self._expiry = self._expiry, {}
        self._saving_born, self._born, self._born_count = self._born, [], 0
        return ChangedRows(rows, borne, expiry)

    def saved(self) -> None:
        """The checkpoint with these rows is durable."""
        self._loose.append(self._saving)
        self._loose_born += self._saving_born
        self._saving, self._saving_expiry, self._saving_born = {}, {}, []
        self._swept = False

    def export(self) -> list[tuple[str, str | None]]:
        """Return what is in memory: (hash, packed row) in hex, sorted; None: nobody bears it, whatever the disk has."""
        found: list[tuple[str, str | None]] = []
        for digest in self.known:
            if digest != NO_HASH:
                name = self.get(digest)
                found.append((digest.hex(), pack_name(name).hex() if name is not None else None))
        return sorted(found)
