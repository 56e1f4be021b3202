"""Kinds of stores: how one is found by its name, and which folder it takes."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from dueq.errors import InvalidRequest
from dueq.storage import kinds
from dueq.storage.kinds import Opening, StoreKind, is_durable, kind_in, kind_of, names, open_store


def _nothing(opening: Opening) -> Any:
    return f"of {opening.broker_id}"


SQLITE = StoreKind("sqlite", durable=True, open=_nothing)
REMOTE = StoreKind("another name", durable=False, open=_nothing)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package brings stores."""
    here = [
        EntryPoint("sqlite", f"{__name__}:SQLITE", kinds.GROUP),
        EntryPoint("renamed", f"{__name__}:REMOTE", kinds.GROUP),
        EntryPoint("gone", "no.such.package:KIND", kinds.GROUP),
        EntryPoint("forgotten", f"{__name__}:NOTHING", kinds.GROUP),
    ]

    def found(group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == "dueq.stores"
        return [point for point in here if name in (None, point.name)]

    monkeypatch.setattr(kinds, "entry_points", found)


def test_a_name_that_is_unknown_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidRequest, match=r"there is no store 'redis'; there are leveldb, memory"):
        kind_of("redis")


@pytest.mark.parametrize("name", ["leveldb", "memory"])
def test_what_is_said_of_a_kind_without_loading_it_is_what_it_says_itself(name: str) -> None:
    kind = kind_of(name)
    assert (kind.name, kind.durable) == (name, is_durable(name))


@pytest.mark.usefixtures("installed")
def test_a_kind_of_another_package_is_found_by_its_entry_point() -> None:
    assert names() == ["forgotten", "gone", "leveldb", "memory", "renamed", "sqlite"]
    assert kind_of("sqlite") is SQLITE
    assert is_durable("sqlite")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "text"),
    [("gone", "cannot be loaded: No module"), ("forgotten", "cannot be loaded"), ("renamed", "no StoreKind called")],
)  # fmt: skip
def test_an_entry_point_that_brings_no_such_kind_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        kind_of(name)


def test_a_folder_with_another_kinds_store_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    open_store(kind_of("leveldb"), Opening("b1", tmp_path, 0)).close()
    before = sorted(tmp_path.rglob("*"))
    assert kind_in(tmp_path) == "leveldb"
    for kind in (SQLITE, kind_of("memory")):
        with pytest.raises(InvalidRequest, match=f"of the kind 'leveldb', not '{kind.name}'"):
            open_store(kind, Opening("b1", tmp_path, 1 << 24))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_durable_kind_leaves_its_name_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for _ in range(2):
        assert open_store(SQLITE, Opening("b1", folder, 0)) == "of b1"  # type: ignore[comparison-overlap]
    assert kind_in(folder) == "sqlite"
    with pytest.raises(InvalidRequest, match="of the kind 'sqlite', not 'leveldb'"):
        open_store(kind_of("leveldb"), Opening("b1", folder, 0))
    assert not (folder / "timeline").exists()


def test_a_store_in_memory_is_a_new_one_each_time_and_leaves_no_trace(tmp_path: Path) -> None:
    first, second = (open_store(kind_of("memory"), Opening("b1", tmp_path, 1 << 24)) for _ in range(2))
    assert first.store_id != second.store_id
    assert len(first.store_id) == 16
    assert list(tmp_path.iterdir()) == []
