"""Arrow batches as a data source gets them: checked, with due in milliseconds, in an order that holds.

A data source cannot ask Spark to sort or to compute; so this does for the writers what `columns` and `order` have
Spark do for `schedule`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, IntegralType, LongType, StringType, StructType, TimestampType

from dueq.errors import InvalidRequest
from dueq.limits import DUE_MS_MAX, RANK_MAX
from dueq.spark.columns import DUE, GROUP, KEY, PAYLOAD, RANK, REASON
from dueq.spark.hints import did_you_mean
from dueq_codecs.groups import GroupRefused, check_group
from dueq_codecs.meta import KEY_BYTES_MAX

if TYPE_CHECKING:
    from dueq.spark.options import Options

_ROWS: Final = 8192


@dataclass(frozen=True)
class Fields:
    """The columns of a message's parts in the rows that are written.

    Attributes:
        due, payload, key, rank, group: names of columns; the last three may be empty: there is none.
    """

    due: str
    payload: str
    key: str
    rank: str = ""
    group: str = ""

    @classmethod
    def of(cls, schema: StructType, options: Options) -> Fields:
        """Find the columns that the options name: by default `due`, `payload` and, if there are any, `key`, `rank`
        and `group`.

        Raises:
            InvalidRequest: one is missing or of a wrong type, or there are others.
        """
        due, payload = options.text(DUE, DUE), options.text(PAYLOAD, PAYLOAD)
        key = options.text(KEY, KEY if KEY in schema.names else "")
        _check(schema, due, DUE, (TimestampType, LongType), "timestamp, or Unix ms as bigint")
        _check(schema, payload, PAYLOAD, (BinaryType, StringType), "binary or string")
        if key:
            _check(schema, key, KEY, (StringType,), "string")
        rank = options.text(RANK, RANK if RANK in schema.names else "")
        group = options.text(GROUP, GROUP if GROUP in schema.names else "")
        if rank:
            _check(schema, rank, RANK, (IntegralType,), "a whole number")
        if group:
            _check(schema, group, GROUP, (StringType,), "string")
        others = [name for name in schema.names if name not in (due, payload, key, rank, group)]
        if others:
            raise InvalidRequest(
                f"the columns {', '.join(others)} would not be sent: select only {due}, {payload} and, for the "
                "message's own, key, rank and group (dueq.spark.schedule sends rows as JSON)"
            )
        return cls(due, payload, key, rank, group)

    def messages(
        self, batches: Iterator[pa.RecordBatch], number: int, payload_bytes_max: int, last_due_ms: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Return rows as `dueq.spark.task.Task` takes them.

        Args:
            batches: of the rows that are written.
            number: of the Spark partition, for error texts.
            payload_bytes_max: the topic's longest payload.
            last_due_ms: where the topic's horizon lies, Unix ms; None: it has none.

        Raises:
            InvalidRequest: a row cannot be a message; the text names it.
        """
        before = 0
        for batch in batches:
            due, payload = _whole_ms(batch.column(self.due)), batch.column(self.payload)
            columns = {DUE: due, PAYLOAD: payload.cast(pa.large_binary())}
            if self.key:
                columns[KEY] = batch.column(self.key).cast(pa.large_binary())
            if self.rank:
                columns[RANK] = pc.fill_null(batch.column(self.rank).cast(pa.int64()), 0)
            if self.group:
                columns[GROUP] = pc.fill_null(batch.column(self.group).cast(pa.string()), "")
            wrong = _first_wrong(columns, payload_bytes_max, last_due_ms)
            if wrong is not None:
                raise InvalidRequest(f"row {before + wrong[0]} of Spark partition {number}: {wrong[1]}")
            columns[REASON] = pa.nulls(batch.num_rows, pa.string())
            before += batch.num_rows
            yield pa.RecordBatch.from_pydict(columns)


def in_settled_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sort all rows of a task by what is sent, through a file: memory holds their places only.

    A task that Spark repeats after a shuffle gets the same rows in another order, and must make the same requests.
    """
    first = next(batches, None)
    if first is None:
        return
    with tempfile.TemporaryDirectory(prefix="dueq-") as folder:
        path = str(Path(folder) / "rows.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
        with pa.memory_map(path) as mapped:
            opened = pa.ipc.open_file(mapped)
            stored = [opened.get_batch(number) for number in range(opened.num_record_batches)]
            keys = [
                (name, "ascending") for name in (DUE, KEY, PAYLOAD, RANK, GROUP) if name in first.schema.names
            ]
            places = pc.sort_indices(pa.Table.from_batches(stored), sort_keys=keys).to_numpy()
            ends = np.cumsum([batch.num_rows for batch in stored])
            for start in range(0, len(places), _ROWS):
                yield _gathered(stored, ends, places[start : start + _ROWS])


def _gathered(stored: Sequence[pa.RecordBatch], ends: Any, places: Any) -> pa.RecordBatch:
    """Rows at these places, in this order; only they are copied, not the batches that hold them."""
    number = np.searchsorted(ends, places, side="right")
    by_batch = np.argsort(number, kind="stable")
    parts = []
    for batch in np.unique(number).tolist():
        before = int(ends[batch]) - stored[batch].num_rows
        parts.append(stored[batch].take(pa.array(places[number == batch] - before)))
    back = np.empty_like(by_batch)
    back[by_batch] = np.arange(len(by_batch))
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0].take(pa.array(back))


def _whole_ms(column: pa.Array) -> pa.Array:
    """Unix ms, rounded up: never earlier than the timestamp says."""
    if not pa.types.is_timestamp(column.type):
        return column
    micros = pc.fill_null(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()), 0)
    whole = -(-micros.to_numpy(zero_copy_only=False) // 1000)
    return pa.array(whole, pa.int64(), mask=column.is_null().to_numpy(zero_copy_only=False))


def _first_wrong(
    columns: dict[str, pa.Array], payload_bytes_max: int, last_due_ms: int | None
) -> tuple[int, str] | None:
    """The first row that cannot be a message, and why."""
    due, payload = columns[DUE], columns[PAYLOAD]
    dues = pc.fill_null(due, 0).to_numpy(zero_copy_only=False)
    last = DUE_MS_MAX if last_due_ms is None else last_due_ms
    sizes = pc.fill_null(pc.binary_length(payload), 0).to_numpy(zero_copy_only=False)
    found: list[tuple[int, str]] = []

    def look(wrong: Any, why: str, values: Any = None) -> None:
        places = np.flatnonzero(wrong)
        if len(places):
            place = int(places[0])
            found.append((place, why if values is None else why.format(int(values[place]))))

    look(due.is_null().to_numpy(zero_copy_only=False), "due is null")
    look((dues < 0) | (dues > last), f"due {{}} ms is not within 0 … {last}", dues)
    look(payload.is_null().to_numpy(zero_copy_only=False), "payload is null")
    look(
        sizes > payload_bytes_max, f"the payload has {{}} bytes; the topic allows {payload_bytes_max}", sizes
    )
    if KEY in columns:
        if (place := _first_not_text(columns[KEY])) is not None:
            found.append((place, "the key is no UTF-8"))
        lengths = pc.fill_null(pc.binary_length(columns[KEY]), 0).to_numpy(zero_copy_only=False)
        look(lengths > KEY_BYTES_MAX, f"the key has {{}} bytes; it may have {KEY_BYTES_MAX}", lengths)
    if RANK in columns:
        ranks = columns[RANK].to_numpy(zero_copy_only=False)
        look((ranks < 0) | (ranks > RANK_MAX), f"the rank {{}} is not within 0 … {RANK_MAX}", ranks)
    if GROUP in columns and (place := _first_not_text(columns[GROUP])) is not None:
        found.append((place, "the group is no UTF-8"))
    elif GROUP in columns:
        names = columns[GROUP].dictionary_encode()
        faults = {
            place: why for place, name in enumerate(names.dictionary.to_pylist()) if (why := _fault(name))
        }
        places = np.flatnonzero(np.isin(names.indices.to_numpy(zero_copy_only=False), list(faults)))
        if len(places):
            found.append((int(places[0]), faults[names.indices[int(places[0])].as_py()]))
    return min(found, default=None)


def _first_not_text(column: pa.Array) -> int | None:
    """Return the first row whose bytes are no UTF-8, which Spark's strings may be; None: all are."""
    stored = column.cast(pa.large_binary())
    try:
        stored.cast(pa.large_string())
    except pa.ArrowInvalid:
        return next(place for place, value in enumerate(stored) if not _is_text(value.as_py()))
    return None


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _fault(group: str) -> str:
    try:
        check_group(group)
    except GroupRefused as refused:
        return str(refused)
    return ""


def _check(schema: StructType, name: str, role: str, kinds: tuple[type, ...], wanted: str) -> None:
    if name not in schema.names:
        raise InvalidRequest(
            f"there is no column {name!r} to take {role} from{did_you_mean(name, schema.names)}"
        )
    kind = schema[name].dataType
    if not isinstance(kind, kinds):
        raise InvalidRequest(f"the {role} column {name!r} is {kind.simpleString()}; it must be {wanted}")
