"""The histories of many processes become one, and one verdict."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from dueq_chaos.history.operations import Kind
from dueq_chaos.history.reading import read_history
from dueq_chaos.history.recorder import Recorder
from dueq_chaos.nemesis import judging
from dueq_chaos.nemesis.series import Series

_DUE_MS = 1_000


def _produce(path: Path, ids: list[str]) -> None:
    with Recorder(path) as recorder:
        operation = recorder.invoke(
            "p", Kind.SCHEDULE, topic="t", due=_DUE_MS, crc=list(range(len(ids))), size=5
        )  # fmt: skip
        recorder.complete("p", operation, id=ids)


def _consume(path: Path, ids: list[str], released_us: int = _DUE_MS * 1000 + 1) -> None:
    """Receive and acknowledge, then be killed while writing."""
    with Recorder(path) as recorder:
        operation = recorder.invoke("c", Kind.RECEIVE, topic="t")
        count = len(ids)
        recorder.complete(
            "c", operation, id=ids, due=_DUE_MS, token=list(range(1, count + 1)), attempt=1,
            released=released_us, lease_ms=4_000, crc=list(range(count)), size=5,
        )  # fmt: skip
        operation = recorder.invoke("c", Kind.ACK, id=ids, token=list(range(1, count + 1)))
        recorder.complete("c", operation)
        operation = recorder.invoke("c", Kind.RECEIVE, topic="t")
        recorder.complete("c", operation)
    with path.open("ab") as file:
        file.write(b'{"event": "invoke", "client": "c", "op')


def _joined(folder: Path, came: int) -> Path:
    folder.mkdir(exist_ok=True)
    ids = [f"M{number}" for number in range(10)]
    _produce(folder / "p.jsonl", ids)
    _consume(folder / "c.jsonl", ids[:came])
    judging.join([folder / "p.jsonl", folder / "c.jsonl"], folder / "all.jsonl", seed="7")
    return folder / "all.jsonl"


def test_histories_are_joined_under_one_header_without_what_a_killed_process_left_half_written(
    tmp_path: Path,
) -> None:
    lines = [json.loads(line) for line in _joined(tmp_path, 10).read_text().splitlines()]
    assert lines[0] == {"dueq_history": 1, "seed": "7"}
    assert [line["event"] for line in lines[1:]] == ["invoke", "complete"] * 4


def test_what_came_and_was_acknowledged_is_fine(tmp_path: Path) -> None:
    history = read_history(_joined(tmp_path, 10))
    judgement = judging.judge(history, emptied=True)
    assert not any(judging.verdicts(judgement).values()), judging.examples(judgement, history)
    assert judging.counts(judgement)["messages acked"] == 10


def test_what_never_came_is_lost_and_named(tmp_path: Path) -> None:
    history = read_history(_joined(tmp_path, 7))
    judgement = judging.judge(history, emptied=True)
    assert judging.verdicts(judgement)["lost"] == 3
    assert len(judging.examples(judgement, history)) == 3
    assert judging.examples(judgement, history)[0].startswith("lost: message M7: ")


def test_a_series_counts_by_the_second_and_knows_no_lateness_where_nothing_came(tmp_path: Path) -> None:
    history = read_history(_joined(tmp_path, 7))
    begin_s = history.instants[0, 0] / 1e6
    series = Series.of(history, begin_s - 1.5, begin_s + 2)
    assert len(series.delivered) == 4
    assert (series.scheduled.sum(), series.delivered.sum()) == (10, 7)
    came = ~np.isnan(series.p50_ms)
    assert list(came) == list(series.delivered > 0)
    assert np.all(series.max_ms[came] >= series.p50_ms[came])


def test_where_clocks_were_set_early_and_lost_are_judged_as_ever(tmp_path: Path) -> None:
    history = read_history(_joined(tmp_path, 7))
    assert judging.verdicts(judging.judge(history, emptied=True, clocks_off_s=3600))["lost"] == 3


def test_a_release_later_than_the_arrival_is_a_mesh_time_that_was_ahead(tmp_path: Path) -> None:
    _produce(tmp_path / "p.jsonl", ["M0", "M1"])
    _consume(tmp_path / "c.jsonl", ["M0", "M1"], time.time_ns() // 1000 + 20_000_000)
    ahead = read_history(tmp_path / "p.jsonl", tmp_path / "c.jsonl")
    assert judging.stamped_ahead(ahead) == judging.stamped_ahead(ahead, delayed_s=0.25) == 2
    assert judging.stamped_ahead(ahead, delayed_s=3600) == 0
    assert judging.stamped_ahead(read_history(_joined(tmp_path / "fine", 7))) == 0
