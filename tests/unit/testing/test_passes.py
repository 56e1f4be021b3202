"""What a pass changes, what it leaves and says so, and what stays of a message that it has changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from dueq import Client, Filter
from dueq.client.passes import Progress, added
from dueq.testing import Mesh, mesh

START = datetime(2026, 3, 28, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def dueq_mesh() -> Iterator[Mesh]:
    with mesh(START) as found:
        yield found


@pytest.fixture
def client(dueq_mesh: Mesh) -> Client:
    found = dueq_mesh.client()
    found.create_topic("t")
    return found


def test_what_would_be_due_after_its_expiry_is_left_and_counted(client: Client) -> None:
    producer = client.producer("t")
    soon = producer.schedule(b"until then", HOUR, expires=1.5 * HOUR)
    late = producer.schedule(b"as long as it takes", HOUR)
    before, due = client.get("t", soon), client.get("t", late).due
    work = client.shift_where("t", Filter(), by=HOUR)
    work.wait()
    assert (work.done, dict(work.skipped), work.left) == (1, {"expiry": 1}, 0)
    assert client.get("t", soon) == before
    assert client.get("t", late).due == due + 3_600_000


def test_what_it_has_changed_keeps_its_id_and_gets_a_version(client: Client) -> None:
    producer = client.producer("t")
    message_id = producer.schedule(b"x", HOUR)
    before = client.get("t", message_id)
    for _ in range(2):
        client.shift_where("t", Filter(), by=HOUR).wait()
    after = client.get("t", message_id)
    assert after.due == before.due + 7_200_000
    assert after.version > before.version
    assert [message.id for message in client.browse("t")] == [message_id]
    producer.move(message_id, timedelta(0), if_version=after.version)
    with client.consumer("t") as consumer:
        [message] = consumer.receive(1, timeout=1)
        assert message.id == message_id


def test_messages_of_a_job_that_is_not_committed_are_not_touched(client: Client) -> None:
    job = client.begin_job("t", "campaign", hidden_for=7_200.0)
    producer = client.producer("t")
    producer.schedule_many([b"hidden"] * 3, START + HOUR, job=job)
    producer.schedule(b"shown", START + HOUR)
    assert client.count_where("t", Filter()) == 1
    work = client.shift_where("t", Filter(), by=HOUR)
    work.wait()
    assert (work.done, dict(work.skipped)) == (1, {})
    client.commit_job(job)
    first_ms = int((START + HOUR).timestamp() * 1000)
    assert sorted(message.due - first_ms for message in client.browse("t")) == [0, 0, 0, 3_600_000]


def test_nobody_waits_for_a_pass_of_which_nothing_is_known(client: Client) -> None:
    """It was waited for as long as the program lived: the name may be mistyped, or the pass have ended long ago."""
    assert not client.pass_named("t", "mistyped").wait().known


def test_a_purge_ends_though_nothing_is_known_any_more_of_its_first_pass() -> None:
    ended, forgotten = Progress(done=3, ended=True), Progress(known=False)
    assert added([forgotten, ended]).ended
    assert not added([forgotten, Progress(done=3)]).ended
    assert not added([forgotten, forgotten]).ended
