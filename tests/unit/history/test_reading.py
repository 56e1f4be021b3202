"""A line that is not of the format is an error that names file, line and reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dueq_chaos.history.reading import HistoryError, read_history
from tests.unit.history.scribe import Scribe

HEADER = {"dueq_history": 1}
AT = {"us": 1, "mono": 1}
ASK: dict[str, Any] = {"event": "invoke", "client": "p", "op": 1, "kind": "cancel", "id": ["m"], **AT}
TOLD: dict[str, Any] = {"event": "complete", "client": "p", "op": 1, **AT}
INSERT = ASK | {"kind": "schedule", "due": [1], "crc": [1], "size": [1]}
RECEIVE = ASK | {"kind": "receive"}


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "history.jsonl"
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("lines", "number", "reason"),
    [
        ([ASK], 1, "header"),
        (["{}\n"], 1, "header"),
        ([{"dueq_history": 2}], 1, "version 2"),
        (["\x00\x01\n"], 1, "not JSON"),
        ([HEADER, "{broken\n", ASK], 2, "not JSON"),
        ([HEADER, "[]\n"], 2, "JSON object"),
        ([HEADER, {"event": "other", **AT}], 2, "event is"),
        ([HEADER, {"event": "note", "text": "x", "us": 1}], 2, "'mono' is missing"),
        ([HEADER, {"event": "note", "text": "x", "us": 1, "mono": -1}], 2, "mono is a whole number"),
        ([HEADER, ASK | {"kind": "browse"}], 2, "kind is one of"),
        ([HEADER, ASK | {"client": ""}], 2, "client is a name"),
        ([HEADER, ASK | {"op": 1.5}], 2, "op is a whole number"),
        ([HEADER, ASK | {"id": [7]}], 2, "id holds 7"),
        ([HEADER, ASK | {"id": ["m" * 33]}], 2, "1 to 32"),
        ([HEADER, ASK | {"id": [""]}], 2, "1 to 32"),
        ([HEADER, ASK, ASK], 3, "invoked before"),
        ([HEADER, ASK, TOLD, ASK], 4, "invoked before"),
        ([HEADER, TOLD], 2, "never invoked"),
        ([HEADER, ASK, TOLD, TOLD], 4, "completed for good"),
        ([HEADER, ASK, TOLD | {"outcome": "perhaps"}], 3, "an outcome is one of"),
        ([HEADER, ASK, TOLD | {"outcome": ["done", "done"]}], 3, "2 outcomes for 1 rows"),
        ([HEADER, INSERT | {"crc": [1, 2]}], 2, "different lengths"),
        ([HEADER, INSERT | {"due": [-1]}], 2, "below 0"),
        ([HEADER, INSERT | {"due": [1.5]}], 2, "due holds 1.5"),
        ([HEADER, INSERT | {"due": [True]}], 2, "due holds True"),
        ([HEADER, INSERT, TOLD | {"id": [""]}], 3, "has an id"),
        ([HEADER, INSERT, TOLD | {"id": ["m"], "outcome": "unknown"}], 3, "no other has"),
        ([HEADER, INSERT, TOLD | {"id": ["m", "n"]}], 3, "2 ids for 1 rows"),
        ([HEADER, RECEIVE, TOLD | {"id": ["m"]}], 3, "'due' is missing"),
        ([], 0, "empty"),
    ],
)
def test_a_line_that_is_not_of_the_format_is_named(
    lines: list[Any], number: int, reason: str, tmp_path: Path
) -> None:
    path = written(tmp_path, *lines)
    with pytest.raises(HistoryError, match=reason) as caught:
        read_history(path)
    assert (caught.value.path, caught.value.line) == (str(path), number)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"none\.jsonl: No such file"):
        read_history(tmp_path / "none.jsonl")


def test_a_last_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    whole = json.dumps(TOLD)
    history = read_history(written(tmp_path, HEADER, ASK, whole[:-5]))
    assert history.cut == [str(tmp_path / "history.jsonl")]
    assert len(history.cancels) == 1
    assert read_history(written(tmp_path, HEADER, ASK, whole)).cut == []


def test_one_value_stands_for_a_column_of_equal_ones(tmp_path: Path) -> None:
    ask = ASK | {"kind": "move", "id": ["a", "b"], "due": 7}
    history = read_history(written(tmp_path, HEADER, ask, TOLD | {"outcome": "leased"}))
    assert history.moves.columns["due"].tolist() == [7, 7]
    assert history.moves.columns["told"].tolist() == [1, 1]


def test_several_files_are_one_history(tmp_path: Path) -> None:
    producer, consumer = Scribe(), Scribe()
    producer.schedule("m", 1_000)
    consumer.deliver("m", 1_000, 1_000)
    files = [producer.write(tmp_path / "p.jsonl", None), consumer.write(tmp_path / "c.jsonl")]
    history = read_history(*files)
    assert [bytes(text) for text in history.ids] == [b"m"]
    assert (len(history.inserts), len(history.deliveries)) == (1, 1)


def test_a_history_without_operations_is_a_history(tmp_path: Path) -> None:
    assert len(read_history(written(tmp_path, HEADER)).ids) == 0
