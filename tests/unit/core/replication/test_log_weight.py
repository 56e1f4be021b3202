"""LogWeight against a plain list of weights: right where it matters, and never long."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from dueq.core.replication.log import ReplicaLog, resident_bytes
from dueq.core.replication.log_weight import LogWeight
from dueq_codecs.records import LogEntry, Record, RecordKind


def test_a_log_of_many_small_records_takes_a_few_kilobytes() -> None:
    weight = LogWeight()
    for sequence in range(1, 200_001):
        weight.append(sequence, 128)
        if sequence % 1000 == 0:
            weight.trim(weight.trimmable(16 << 20) + 1)
    assert len(weight) <= 512
    assert weight.bytes + 1000 * 128 >= (16 << 20) - 1
    assert weight.bytes <= (16 << 20) * 1.02


def test_what_is_cached_is_counted_as_what_it_takes_in_memory() -> None:
    log = ReplicaLog()
    for sequence in range(1, 3000):
        log.append(LogEntry(Record(RecordKind.ACK, 1, sequence, 1, 0)))
        log.shrink_cache(sequence + 1, 1 << 20)
    assert log.cached_bytes <= 1 << 20
    assert log.end - log.cached_from < 512  # 2 KiB each, though a row has a few bytes
    entry = LogEntry(Record(RecordKind.ACK, 1, 3000, 1, 0))
    assert resident_bytes(entry) >= 2048


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5000)),
        st.tuples(st.just("truncate"), st.integers(0, 100)),
        st.tuples(st.just("trim"), st.integers(0, 100)),
    ),
    max_size=80,
)


@given(_STEPS)
def test_weights_of_few_records_are_exact(steps: list[tuple[str, int]]) -> None:
    weight, plain, start = LogWeight(), [], 1
    for what, number in steps:
        end = start + len(plain)
        at = start + min(number, len(plain))
        if what == "append":
            plain.append(number)
            weight.append(end, number)
        elif what == "truncate":
            del plain[at - start :]
            weight.truncate(at)
        else:
            del plain[: at - start]
            start = at
            weight.trim(start)
        assert weight.bytes == sum(plain)
        for retain in (0, 1000, 20_000):
            kept = 0
            while kept < len(plain) and sum(plain[kept:]) > retain:
                kept += 1
            assert weight.trimmable(retain) == (start + kept - 1 if kept else 0)


@given(st.integers(0, 1 << 32), st.integers(600, 1500), st.data())
def test_weights_of_many_records_stay_close(seed: int, count: int, data: st.DataObject) -> None:
    """The weights come from a generator: to draw each of a thousand costs more than all the rest."""
    drawn = Random(seed).choices(range(1, 301), k=count)
    weight, weights = LogWeight(), list(drawn)
    for sequence, size in enumerate(weights, start=1):
        weight.append(sequence, size)
    close = sum(drawn) / 50 + 700  # a mark or two, of those that there were before the cut
    cut = data.draw(st.integers(2, len(weights)))
    weight.truncate(cut)
    del weights[cut - 1 :]
    assert abs(weight.bytes - sum(weights)) <= close
    below = data.draw(st.integers(1, len(weights) + 1))
    weight.trim(below)
    assert sum(weights[below - 1 :]) - close <= weight.bytes <= sum(weights[below - 1 :]) + close
