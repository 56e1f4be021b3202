"""A campaign's specification: what a TOML file says, checked before Spark starts.

name = "spring"                          # names the campaign in reports and in its job's id
topic = "campaigns"
key = "customer"                         # a column; may be left out, and so may rank and group

[source]                                 # path and format, or table
path = "audience/*.parquet"              # or a list; relative to the specification
format = "parquet"                       # parquet, csv, json
where = "consent"                        # a condition in SQL
schema = "customer bigint, zone string"  # instead of what Spark infers
options = { sep = ";" }                  # for Spark's reader

[columns]                                # further columns as SQL expressions of the others, one after the other
first_name = "split(name, ' ')[0]"

[payload]                                # one of template, column, columns, body
template = "Good morning, {first_name}!" # columns = ["a", "b"] or "all" sends JSON

[due]                                    # column (timestamp, or Unix ms), or a local time:
time = "09:00"                           # or time_column
date = 2030-03-10                        # or date_column
zone_column = "zone"                     # or zone
ambiguous = "first"                      # or "second": when clocks are set back, a time that comes twice
past = "refuse"                          # or "skip", "send"

[quiet_hours]
from = "21:00"
until = "08:00"                          # zone or zone_column; without: those of [due]

[suppression]                            # a source like [source], and
path = "unsubscribed.csv"
format = "csv"
column = "customer"                      # of our rows; compared as text, letter by letter
list_column = "id"                       # of the list; without: the same
columns = { id = "lower(trim(id))" }     # like [columns], of the list

[deduplication]
by = ["customer"]
keep = "earliest"                        # or "latest"

[smoothing]
per_second = 200                         # without: the lowest that the window allows
window = "30m"                           # nothing is delayed longer
existing = true                          # count what is scheduled in the topic already

[load]
atomic = true
hidden_for = "6h"
bad_rows = "refuse"                      # or "skip"
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final, Self

from dueq.campaign.settings import Settings
from dueq.campaign.template import pieces_of
from dueq.errors import InvalidRequest
from dueq.limits import BODY_BYTES_MAX

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FORMATS: Final = ("parquet", "csv", "json")
_SOURCE: Final = ("path", "format", "table", "schema", "options", "where")
_DAY_S: Final = 86_400
PER_SECOND_MAX: Final = 1_000_000
WINDOW_S_MAX: Final = 7 * _DAY_S


@dataclass(frozen=True)
class Source:
    """Where rows come from: either files or a table.

    Attributes:
        paths: files or folders as Spark names them; globs are welcome.
        format: parquet, csv or json; empty for a table.
        table: a Spark table.
        schema: in Spark's DDL; empty: as inferred.
        options: of Spark's reader.
        where: a condition in SQL; empty: all rows.
        given: paths as the specification has them.
    """

    paths: tuple[str, ...] = ()
    format: str = ""
    table: str = ""
    schema: str = ""
    options: dict[str, str] = field(default_factory=dict)
    where: str = ""
    given: tuple[str, ...] = ()


@dataclass(frozen=True)
class Payload:
    """What is sent; one of the four is there.

    Attributes:
        column: binary or string.
        columns: sent as one JSON object; ("all",): every column.
        template: a text with {column} in it.
        body: the same text for everybody, which the mesh stores once in each partition.
    """

    column: str = ""
    columns: tuple[str, ...] = ()
    template: str = ""
    body: str = ""


@dataclass(frozen=True)
class Zone:
    """A time zone: a name, or the column that has it."""

    name: str = ""
    column: str = ""


@dataclass(frozen=True)
class Due:
    """When a row's message is due: `column`, or date, time and zone.

    Attributes:
        column: a timestamp, or Unix ms.
        day, day_column: the local day, one of the two.
        time_s, time_column: the local time of day (seconds after midnight, or a column of texts like 09:00).
        zone: where that is local.
        ambiguous: first or second, of a local time that comes twice.
        past: refuse, skip or send what is due already.
    """

    column: str = ""
    day: date | None = None
    day_column: str = ""
    time_s: int | None = None
    time_column: str = ""
    zone: Zone = Zone()
    ambiguous: str = "first"
    past: str = "refuse"


@dataclass(frozen=True)
class QuietHours:
    """Local hours in which nothing is sent: seconds after midnight, [from_s, until_s), over midnight or not."""

    from_s: int
    until_s: int
    zone: Zone


@dataclass(frozen=True)
class Suppression:
    """Rows that get nothing: their `column` is in `list_column` of the list, or in one of its further `columns`."""

    source: Source
    column: str
    list_column: str
    columns: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Deduplication:
    """Keeps one of the rows that are equal in `by`: the first one due ("earliest") or the last one ("latest")."""

    by: tuple[str, ...]
    keep: str


@dataclass(frozen=True)
class Smoothing:
    """How a crowd is spread.

    Attributes:
        per_second: messages in any second at most; None: the lowest number with which the window suffices.
        window_s: the longest delay.
        existing: whether what waits in the topic already counts.
    """

    per_second: int | None
    window_s: int
    existing: bool


@dataclass(frozen=True)
class Loading:
    """How messages get into the mesh: the arguments of `dueq.spark.schedule`."""

    atomic: bool = True
    hidden_for_s: int = 6 * 3600
    bad_rows: str = "refuse"


@dataclass(frozen=True)
class Spec:
    """A campaign."""

    name: str
    topic: str
    source: Source
    payload: Payload
    due: Due
    key: str = ""
    rank: str = ""
    group: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    quiet_hours: QuietHours | None = None
    suppression: Suppression | None = None
    deduplication: Deduplication | None = None
    smoothing: Smoothing | None = None
    loading: Loading = Loading()

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a specification; relative paths in it start from its folder.

        Raises:
            InvalidRequest: the file cannot be read, or something in it is wrong; the text names it.
        """
        try:
            document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        except (
            OSError,
            ValueError,
            RecursionError,
        ) as error:  # no text, no TOML, or more of it than Python reads
            raise InvalidRequest(f"the specification {file} cannot be read: {error}") from error
        try:
            return cls.of(document, file.resolve().parent)
        except InvalidRequest as error:
            raise InvalidRequest(f"{file}: {error}") from error

    @classmethod
    def of(cls, document: dict[str, Any], folder: Path) -> Self:
        """Take a specification from what TOML holds.

        Args:
            document: the tables.
            folder: where relative paths start.

        Raises:
            InvalidRequest: an unknown key, a wrong value, both or neither of two alternatives.
        """
        top = Settings("", document, _TOP)
        name = top.text("name")
        if not _NAME.fullmatch(name):
            raise InvalidRequest(f"name has 1 to 64 characters of A-Z a-z 0-9 . _ -, not {name!r}")
        for needed in ("source", "payload", "due"):
            if not top.has(needed):
                raise InvalidRequest(f"the table [{needed}] is missing")
        due = _due(Settings("due", top.raw("due"), _DUE))
        return cls(
            name=name, topic=top.text("topic"), key=top.text("key", "") if top.has("key") else "",
            rank=top.text("rank") if top.has("rank") else "", group=top.text("group") if top.has("group") else "",
            source=_source(Settings("source", top.raw("source"), _SOURCE), folder),
            columns=top.pairs("columns"),
            payload=_payload(Settings("payload", top.raw("payload"), ("body", "column", "columns", "template"))),
            due=due,
            quiet_hours=_quiet_hours(top.raw("quiet_hours"), due) if top.has("quiet_hours") else None,
            suppression=_suppression(top.raw("suppression"), folder) if top.has("suppression") else None,
            deduplication=_deduplication(top.raw("deduplication")) if top.has("deduplication") else None,
            smoothing=_smoothing(top.raw("smoothing")) if top.has("smoothing") else None,
            loading=_loading(top.raw("load")) if top.has("load") else Loading(),
        )  # fmt: skip

    @property
    def placing(self) -> list[str]:
        """What messages have, of rank and group: names of columns of all frames that are made of the rows."""
        return [name for name, of in (("rank", self.rank), ("group", self.group)) if of]

    @property
    def job_id(self) -> str:
        """The name of the job that loads it: the same for the same specification, so that it is loaded once.

        Wherever it lies: it counts what the specification says, not the folder that relative paths start from. The
        order of its tables counts only where it means something: each column may be made of those before it.
        """
        document = asdict(self)
        for table in (document, document["suppression"] or {}):
            table.get("source", {}).pop("paths", None)
            table["columns"] = list(table.get("columns", {}).items())
        told = json.dumps(document, sort_keys=True, default=str)
        return f"{self.name}-{hashlib.blake2b(told.encode(), digest_size=8).hexdigest()}"

    @property
    def plan_moves(self) -> bool:
        """Whether the same rows could be planned otherwise another time: by the clock, or by what waits then."""
        looks = self.smoothing is not None and self.smoothing.existing
        return looks or self.due.past != "refuse"


_TOP: Final = (
    "name", "topic", "key", "rank", "group", "source", "columns", "payload", "due", "quiet_hours", "suppression",
    "deduplication", "smoothing", "load",
)  # fmt: skip
_LOCAL: Final = ("time", "time_column", "date", "date_column", "zone", "zone_column", "ambiguous")
_DUE: Final = ("column", "past", *_LOCAL)


def _source(found: Settings, folder: Path) -> Source:
    kind = found.one_of(("path", "table"))
    where = found.text("where", "") if found.has("where") else ""
    if kind == "table":
        found.only_with("table", ("format", "schema", "options"), "Spark knows them of its tables")
        return Source(table=found.text("table"), where=where)
    if not found.has("format"):
        raise InvalidRequest(f"a source with a path says its format: one of {', '.join(_FORMATS)}")
    given = found.texts("path")
    paths = tuple(path if "://" in path else str(folder / path) for path in given)
    return Source(
        paths, found.choice("format", _FORMATS, ""), "", found.text("schema", "") if found.has("schema") else "",
        found.pairs("options"), where, given,
    )  # fmt: skip


def _payload(found: Settings) -> Payload:
    given = found.one_of(("column", "columns", "template", "body"))
    if given == "columns":
        return Payload(columns=found.texts("columns"))
    if given == "body":
        text = found.text("body")
        if (size := len(text.encode())) > BODY_BYTES_MAX:
            raise InvalidRequest(f"[payload] body has at most {BODY_BYTES_MAX} bytes of UTF-8, not {size}")
        return Payload(body=text)
    if given == "template":
        template = found.text("template")
        pieces_of(template)
        return Payload(template=template)
    return Payload(column=found.text("column"))


def _due(found: Settings) -> Due:
    past = found.choice("past", ("refuse", "skip", "send"), "refuse")
    if found.has("column"):
        found.only_with(
            "column", _LOCAL, "the column holds instants; a local time is made of date, time and zone"
        )
        return Due(column=found.text("column"), past=past)
    if not any(found.has(key) for key in _LOCAL):
        raise InvalidRequest("[due] has either a column of instants, or date, time and zone of a local time")
    day, time = found.one_of(("date", "date_column")), found.one_of(("time", "time_column"))
    return Due(
        day=found.day("date") if day == "date" else None,
        day_column=found.text("date_column") if day == "date_column" else "",
        time_s=found.time_of_day("time") if time == "time" else None,
        time_column=found.text("time_column") if time == "time_column" else "",
        zone=_zone(found),
        ambiguous=found.choice("ambiguous", ("first", "second"), "first"),
        past=past,
    )


def _zone(found: Settings) -> Zone:
    given = found.one_of(("zone", "zone_column"))
    return Zone(name=found.text("zone")) if given == "zone" else Zone(column=found.text("zone_column"))


def _quiet_hours(values: object, due: Due) -> QuietHours:
    found = Settings("quiet_hours", values, ("from", "until", "zone", "zone_column"))
    from_s, until_s = found.time_of_day("from"), found.time_of_day("until")
    if from_s == until_s:
        raise InvalidRequest("[quiet_hours] from and until are the same: that is no time at all, or always")
    if found.has("zone") or found.has("zone_column"):
        return QuietHours(from_s, until_s, _zone(found))
    if due.zone == Zone():
        raise InvalidRequest("[quiet_hours] needs zone or zone_column, as [due] has none")
    return QuietHours(from_s, until_s, due.zone)


def _suppression(values: object, folder: Path) -> Suppression:
    found = Settings("suppression", values, (*_SOURCE, "column", "list_column", "columns"))
    column = found.text("column")
    return Suppression(
        _source(found, folder), column, found.text("list_column", column), found.pairs("columns")
    )


def _deduplication(values: object) -> Deduplication:
    found = Settings("deduplication", values, ("by", "keep"))
    return Deduplication(found.texts("by"), found.choice("keep", ("earliest", "latest"), "earliest"))


def _smoothing(values: object) -> Smoothing:
    found = Settings("smoothing", values, ("per_second", "window", "existing"))
    return Smoothing(
        found.whole("per_second", 1, PER_SECOND_MAX), found.seconds("window", None, WINDOW_S_MAX),
        found.flag("existing", True),
    )  # fmt: skip


def _loading(values: object) -> Loading:
    found = Settings("load", values, ("atomic", "hidden_for", "bad_rows"))
    atomic = found.flag("atomic", True)
    if not atomic:
        found.only_with(
            "atomic = false", ("hidden_for",), "only what is loaded as a whole is hidden until then"
        )
    return Loading(
        atomic, found.seconds("hidden_for", "6h", WINDOW_S_MAX),
        found.choice("bad_rows", ("refuse", "skip"), "refuse"),
    )  # fmt: skip
