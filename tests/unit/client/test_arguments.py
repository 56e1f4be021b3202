"""Arguments of callers; every refusal names the value."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from dueq import InvalidRequest, ids
from dueq.client import arguments, calls, message_state, passes, per_row, pulls, times, unique
from dueq.client.batches import batches
from dueq.client.payloads import payload_columns, shared_body
from dueq.errors import PayloadTooLarge
from dueq.limits import BODY_BYTES_MAX, CONSUMER_LEASES_MAX, DUE_MS_MAX, REQUEST_BYTES_MAX


def now_us() -> int:
    return 1_700_000_000_000_500


@pytest.mark.parametrize(
    ("due", "expected"),
    [
        (1_700_000_000_123, 1_700_000_000_123),
        (0, 0),
        (DUE_MS_MAX, DUE_MS_MAX),
        (np.int64(1_700_000_000_123), 1_700_000_000_123),
        (datetime(2024, 1, 1, tzinfo=UTC), 1_704_067_200_000),
        (datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC), 1_704_067_200_001),
        (datetime(2024, 1, 1, 0, 0, 0, 999_000, tzinfo=timezone(timedelta(hours=2))), 1_704_060_000_999),
        (timedelta(0), 1_700_000_000_001),
        (timedelta(seconds=-1), 1_699_999_999_001),
        (timedelta(microseconds=500), 1_700_000_000_001),
        (timedelta(microseconds=501), 1_700_000_000_002),
    ],
)
def test_instants_become_whole_milliseconds_never_early(due: Any, expected: int) -> None:
    assert times.due_ms(due, now_us) == expected
    assert times.due_column([due], 1, now_us).tolist() == [expected]
    assert times.due_column(due, 2, now_us).tolist() == [expected] * 2


@pytest.mark.parametrize(
    "due",
    [True, 1.5e12, float("nan"), datetime(2024, 1, 1), -1, DUE_MS_MAX + 1, 2**70, "tomorrow", None,
     timedelta(days=-40_000), np.float64(1e12), datetime(1960, 1, 1, tzinfo=UTC)],
)  # fmt: skip
def test_other_instants_are_refused_by_name(due: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        times.due_column([1_700_000_000_000, due], 2, now_us)
    assert "row 1" in str(caught.value)
    assert repr(due)[:20] in str(caught.value) or f"which is {due}" in str(caught.value)


@pytest.mark.parametrize("unit", ["h", "s", "ms", "ns"])
def test_lengths_of_time_in_an_array_are_what_they_are_in_each_unit(unit: str) -> None:
    """Those of pandas are in nanoseconds, for which NumPy gives ints: an hour was an instant in the year 2084."""
    hour = np.array([1], "m8[h]").astype(f"m8[{unit}]")
    assert times.is_relative(times.held(hour))
    assert times.due_column(hour, 1, now_us).tolist() == [(now_us() + 3_600_000_000 + 999) // 1000]


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_dates_in_an_array_have_no_time_zone(unit: str) -> None:
    with pytest.raises(InvalidRequest, match="naive datetime"):
        times.due_column(np.array(["1970-01-02"], f"M8[{unit}]"), 1, now_us)


def test_one_length_of_time_of_numpy_is_no_number() -> None:
    """By its class it is an int, which it cannot be made."""
    span: Any = np.timedelta64(5, "m")
    with pytest.raises(InvalidRequest, match="timedelta64"):
        times.due_ms(span, now_us)
    with pytest.raises(InvalidRequest, match="lease is"):
        times.duration_ms(span, "lease", 100, 43_200_000)
    with pytest.raises(InvalidRequest, match="timeout"):
        times.timeout_s(span, 1.0)


@pytest.mark.parametrize("unit", ["W", "D", "h", "s"])
def test_a_length_of_numpy_that_its_microseconds_cannot_tell_is_refused(unit: str) -> None:
    """It came too early by as much as 64 bits hold."""
    lengths = np.array([1, 1 << 62], f"m8[{unit}]")
    with pytest.raises(InvalidRequest, match=r"row 1: due is an instant .* not 4611686018427387904"):
        times.due_column(lengths, 2, now_us)
    with pytest.raises(InvalidRequest, match="row 1: due is an instant"):
        times.held(lengths)
    with pytest.raises(InvalidRequest, match="row 0: due is an int"):
        times.due_column(np.array(["NaT"], f"m8[{unit}]"), 1, now_us)


def test_lengths_of_many_nanoseconds_and_tables_of_lengths_are_refused_as_others_are() -> None:
    far = (1 << 64) // 10 + 360_000_000
    with pytest.raises(InvalidRequest, match="row 1: due is an instant"):
        times.due_column(np.array([1, far], "m8[10000ns]"), 2, now_us)
    with pytest.raises(InvalidRequest, match="row 3: due is an instant"):
        times.due_column(np.array([[1, 2], [3, 1 << 62]], "m8[D]"), 2, now_us)
    assert times.due_column(np.array([100], "m8[10000ns]"), 1, lambda: 0).tolist() == [1]


def test_an_end_at_the_beginning_of_time_is_an_end() -> None:
    """0 stands for no end inside."""
    assert times.end_ms(0, now_us, "until") == 1
    assert times.end_columns(datetime(1970, 1, 1, tzinfo=UTC), None, 2, now_us).expires.tolist() == [1, 1]
    assert times.end_columns([0, None, DUE_MS_MAX], None, 3, now_us).expires.tolist() == [1, 0, DUE_MS_MAX]


ENDLESS = 10**5000
"""More digits than Python converts."""


@pytest.mark.parametrize(
    "check",
    [
        lambda: times.due_ms(ENDLESS, now_us),
        lambda: times.duration_ms(ENDLESS, "lease", 0, 1000),
        lambda: times.timeout_s(-ENDLESS, 1.0),
        lambda: arguments.count(ENDLESS, "partitions", 1, 1024),
        lambda: per_row.one_rank(ENDLESS),
    ],
)
def test_a_number_that_nobody_can_read_is_refused_like_any_other(check: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest, match="not a number of very many digits"):
        check()


def test_timedeltas_of_one_call_share_one_now() -> None:
    clock = iter([1_000_000, 2_000_000])
    column = times.due_column([timedelta(0), timedelta(seconds=1)], 2, lambda: next(clock))
    assert column.tolist() == [1_000, 2_000]


def test_seconds_taken_for_milliseconds_are_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "_warned", False)
    with pytest.warns(UserWarning, match="1700000000 .* seconds") as warned:
        assert times.due_ms(1_700_000_000, now_us) == 1_700_000_000
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        times.due_column([1_700_000_001, 0], 2, now_us)


def test_as_many_instants_as_rows() -> None:
    with pytest.raises(InvalidRequest, match="3 rows need 3 due instants, not 2"):
        times.due_column([1_700_000_000_000] * 2, 3, now_us)


@pytest.mark.parametrize("windows", [[5.0], [5.0, 6.0, 7.0, 8.0], [], ""])
def test_as_many_windows_as_rows(windows: Any) -> None:
    """Fewer could not be sent, which was noticed by the thread that sends: it ended, and the client with it."""
    due = np.full(3, 5_000, np.uint64)
    with pytest.raises(InvalidRequest, match="3 rows need 3 windows"):
        times.window_column(windows, due)
    assert times.window_column([1, None, 2], due).tolist() == [1_000, 0, 2_000]
    assert times.window_column(1, due).tolist() == [1_000] * 3


@pytest.mark.parametrize("text", ["\ud800", 5, b"x"])
def test_what_is_no_text_is_refused_before_it_is_sent(text: Any) -> None:
    """The thread that sends would end of it, and the client with it."""
    with pytest.raises(InvalidRequest, match="pass's name"):
        passes.checked_name(text)
    with pytest.raises(InvalidRequest, match="group"):
        next(message_state.get_by_key("t", "a", text, payload=False, linearizable=False))


def test_what_a_memoryview_holds_is_counted_in_bytes() -> None:
    numbers = memoryview(np.zeros(BODY_BYTES_MAX // 8 + 1, np.uint64))
    with pytest.raises(PayloadTooLarge, match=f"at most {BODY_BYTES_MAX} bytes, not {BODY_BYTES_MAX + 8}"):
        shared_body(numbers)
    assert shared_body(memoryview(np.array(5))).size == 8
    first, second = batches([memoryview(np.zeros(REQUEST_BYTES_MAX // 16 + 1, np.uint64))] * 2, 0)
    assert (len(first.payloads), len(second.payloads)) == (1, 1)


def test_payloads_are_bytes_and_mutable_ones_are_copied() -> None:
    mutable = bytearray(b"abc")
    columns = payload_columns([b"", mutable, memoryview(b"xyz")])
    mutable[:] = b"zzz"
    assert columns.payloads == [b"", b"abc", b"xyz"]
    assert columns.size.tolist() == [0, 3, 3]
    with pytest.raises(InvalidRequest, match=r"row 1: .* not str: 'text'"):
        payload_columns([b"", "text"])  # type: ignore[list-item]


def test_ids_are_taken_apart_as_columns_like_one_by_one() -> None:
    some = [
        ids.MessageId(0, 0, 0, 0),
        ids.MessageId((1 << 48) - 1, (1 << 24) - 1, (1 << 40) - 1, (1 << 16) - 1),
        ids.MessageId(1_700_000_000_000, 77, 123_456_789_012, 2_047),
        ids.MessageId(1, 1 << 23, 1 << 39, 1 << 15),
    ]
    columns = per_row.id_columns([str(some[0]), str(some[1]).lower(), str(some[2]), str(some[3])])
    assert [ids.MessageId(*map(int, row)) for row in zip(*columns, strict=True)] == some


@pytest.mark.parametrize(
    "text", ["", "0" * 25, "0" * 27, "U" * 26, "Z" * 26, "0" * 25 + "é", 7, None, b"0" * 26]
)
def test_what_is_no_id_is_refused_by_name(text: Any) -> None:
    with pytest.raises(InvalidRequest, match="row 1"):
        per_row.id_columns(["0" * 26, text])


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 256, "a\n", 7])
def test_topic_names(name: Any) -> None:
    with pytest.raises(InvalidRequest):
        arguments.topic_name(name)
    assert arguments.topic_name("A-z.0_9") == "A-z.0_9"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, 100),
        (30, 30_000),
        (1.0005, 1_001),
        (16.1, 16_100),
        (2.007, 2_007),
        (timedelta(seconds=2), 2_000),
    ],
)
def test_durations(value: Any, expected: int) -> None:
    assert times.duration_ms(value, "lease", 100, 43_200_000) == expected


@pytest.mark.parametrize("value", [0.01, -1, True, float("nan"), float("inf"), 1e9, "30", timedelta(days=2)])
def test_other_durations_are_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"lease is (0\.1 to 43200 seconds|100ms to 12h), not"):
        times.duration_ms(value, "lease", 100, 43_200_000)


@pytest.mark.parametrize("value", [-1, True, "1", float("nan")])
def test_time_outs(value: Any) -> None:
    with pytest.raises(InvalidRequest):
        times.timeout_s(value, 30.0)
    assert times.timeout_s(None, 30.0) == 30.0


def test_endpoints() -> None:
    listed = ["tcp://127.0.0.1:7400", "tcp://[::1]:7401"]
    assert arguments.endpoint_list(" , ".join(listed)) == arguments.endpoint_list(listed) == listed
    for wrong in ("127.0.0.1:7400", "tcp://host", [], "http://host:1", "tcp://host:0", "tcp://host:65536",
                  "tcp://[::1]:99999", "tcp://host:٧٤٠٠"):  # fmt: skip
        with pytest.raises(InvalidRequest):
            arguments.endpoint_list(wrong)


def test_importing_the_pure_parts_brings_no_sockets_or_threads() -> None:
    script = (
        "import sys, dueq, dueq.core, dueq.client.core\n"
        "heavy = {'zmq', 'structlog', 'asyncio', 'dueq.client.runtime', 'kazoo', 'plyvel', 'plyvel_next'}\n"
        "heavy &= sys.modules.keys()\n"
        "assert not heavy, heavy\n"
        "assert dueq.Client.__name__ == 'Client' and 'zmq' in sys.modules\n"
        "assert all(getattr(dueq, name) is not None for name in dueq.__all__)\n"
        "assert 'structlog' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (None, []),
        (7, [7, 7, 7]),
        ([0, 65_535, 3], [0, 65_535, 3]),
        (np.array([1, 2, 3], np.int64), [1, 2, 3]),
    ],
)
def test_ranks_are_one_for_each_row_or_one_for_all(ranks: Any, expected: list[int]) -> None:
    assert per_row.rank_column(ranks, 3).tolist() == expected


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        (65_536, "a rank is between 0 and 65535, not 65536"),
        ([1, 2, -1], "row 2: a rank is between 0 and 65535, not -1"),
        (True, "a rank is an int, not bool: True"),
        ([1, 2.0, 3], "row 1: a rank is an int, not float: 2.0"),
        ("123", "a rank is an int, not str: '123'"),
        (b"123", "a rank is an int, not bytes: b'123'"),
        ([1, 2], "3 rows need 3 ranks, not 2"),
        ([1, None, 2], "row 1: a rank is an int, not NoneType"),
    ],
)
def test_other_ranks_are_refused_by_name(ranks: Any, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        per_row.rank_column(ranks, 3)


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        (5, "row 0: a group is a str, not int: 5"),
        (b"acme", "row 0: a group is a str, not bytes: b'acme'"),
        (["acme", True], "row 1: a group is a str, not bool: True"),
        (["acme"], "2 rows need 2 groups, not 1"),
        (["acme", "a" * 256], "row 1: a group has at most 255 bytes of UTF-8, not 256"),
        ("a..b", "row 0: the group 'a..b' has an empty level"),
        (".".join("a" * 17), "row 0: a group has at most 16 levels, not 17"),
    ],
)
def test_other_groups_are_refused_by_name(groups: Any, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        per_row.group_columns(groups, 2)


def test_a_call_with_one_message_says_nothing_of_rows() -> None:
    for wrong, said in (
        ({"due": -1}, "due is an instant from 0 to"),
        ({"key": "k" * 256}, "a key has at most 255 bytes"),
        ({"window": timedelta(days=8)}, "window is 0s to 7d, not 8d"),
        ({"on_duplicate": "kep"}, "on_duplicate is one of refuse, keep, replace, not 'kep'"),
        (
            {"expires": 5_000_000_000_000},
            "expires 2128-06-11T08:53:20.000Z is not after its due instant, 2286-",
        ),
    ):
        given: dict[str, Any] = {"due": 10_000_000_000_000, **wrong}
        with pytest.raises(InvalidRequest, match=f"^{re.escape(said)}"):
            calls.schedule("t", b"x", mesh_us=now_us, **given)
    with pytest.raises(InvalidRequest, match=r"^a message id has 26 characters, not 'foo'"):
        per_row.id_columns(["foo"])


def test_a_message_is_named_once() -> None:
    with pytest.raises(InvalidRequest, match="no message is named: give its id, or its key"):
        unique.one_of(None, None)
    with pytest.raises(InvalidRequest, match="not by both"):
        unique.one_of("a", "b")


def test_a_pull_names_as_many_held_leases_as_a_consumer_can_have() -> None:
    held = [(ids.to_text(ids.MessageId(1, 1, 1, 0)), 7)] * CONSUMER_LEASES_MAX
    pulls.pull("t", 1, 0, 30.0, "w", held)
    with pytest.raises(InvalidRequest, match="held lists 16385 leases: a consumer has at most 16384"):
        pulls.pull("t", 1, 0, 30.0, "w", [*held, held[0]])


@pytest.mark.parametrize("delay", [False, ""])
def test_a_lease_is_given_back_with_a_delay_that_is_a_length_of_time(delay: Any) -> None:
    with pytest.raises(InvalidRequest, match="delay"):
        pulls.settle("t", [], "release", delay, None, "", False)
