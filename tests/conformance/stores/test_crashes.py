"""What a store holds after its process was killed, at any point."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from tests.conformance.stores.conftest import BROKER, KindPlace, Place, SimPlace
from tests.conformance.stores.history import CHECKPOINT_EVERY, UID, commit_of, verify

from dueq.core.ports.persistence import CreatePartition
from dueq.errors import InvalidRequest
from dueq.storage.kinds import Opening, is_durable, kind_of, names, open_store

DURABLE = [name for name in names() if is_durable(name)]


def test_a_killed_process_leaves_every_commit_that_has_returned(place: Place) -> None:
    if not place.durable:
        pytest.skip("this kind keeps nothing")
    store, first_id = place.open(), ""
    for number in range(4 * CHECKPOINT_EVERY):
        store.commit(commit_of(number))
        if number % 3 == 0:
            first_id = first_id or store.store_id
            place.kill()
            store = place.open()
            (found,) = store.recover()
            verify(store, found, number)
            assert store.store_id == first_id


def test_a_kind_that_is_not_durable_begins_a_new_store(place: Place) -> None:
    if place.durable:
        pytest.skip("this kind keeps what it has")
    store = place.open()
    store.commit([CreatePartition(UID, "t")])
    place.kill()
    again = place.open()
    assert again.recover() == []
    assert again.store_id != store.store_id


@pytest.mark.parametrize("seed", range(40))
def test_a_simulated_disk_holds_a_commit_that_was_under_way_in_part_or_as_a_whole(seed: int) -> None:
    place, random = SimPlace(seed), Random(seed)
    store, returned = place.open(), random.randrange(3 * CHECKPOINT_EVERY)
    for number in range(returned + 1):
        store.commit(commit_of(number))
    place.kill_during(commit_of(returned + 1))
    store = place.open()
    (found,) = store.recover()
    verify(store, found, returned)


@pytest.mark.parametrize("name", DURABLE)
@pytest.mark.parametrize("seed", range(4))
def test_a_process_killed_while_it_commits_has_lost_nothing_that_it_said(
    name: str, seed: int, tmp_path: Path
) -> None:
    enough, returned = Random(seed).randrange(3, 60), -1
    with subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.stores.history", name, str(tmp_path / "data")],
        stdout=subprocess.PIPE, cwd=Path(__file__).parents[3],
    ) as writer:  # fmt: skip
        assert writer.stdout is not None
        for line in writer.stdout:
            returned = int(line)
            if returned >= enough:
                break
        writer.kill()
        # What it said before it died counts, and more than one commit may have been under way since.
        returned = max([returned, *(int(line) for line in writer.stdout if line.endswith(b"\n"))])
    store = open_store(kind_of(name), Opening(BROKER, tmp_path / "data", 1 << 30))
    (found,) = store.recover()
    verify(store, found, returned)
    store.close()


@pytest.mark.parametrize("name", DURABLE)
def test_a_store_that_is_open_is_nobody_elses_and_stays_its_brokers(name: str, tmp_path: Path) -> None:
    place = KindPlace(kind_of(name), tmp_path)
    store = place.open()
    with pytest.raises(InvalidRequest, match="in use"):
        place.open()
    store.close()
    with pytest.raises(InvalidRequest, match=f"belongs to broker '{BROKER}'"):
        open_store(place.kind, Opening("b2", place.folder, 1 << 30))
    open_store(place.kind, Opening(BROKER, place.folder, 1 << 30)).close()
