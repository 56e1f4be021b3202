"""A job's name means the attempt that counts, also when the mesh has forgotten those that were aborted before it."""

from __future__ import annotations

from datetime import timedelta
from json import dumps
from types import SimpleNamespace
from typing import Any

import pytest

from dueq import Client, InvalidRequest, JobNotFound, limits
from dueq.client import jobs
from dueq.client.jobs import Job
from dueq.core.state import timeline
from dueq.errors import NotLeader
from dueq.testing import Mesh, mesh

MONTH, DAY = timedelta(days=30), timedelta(days=1)


def load(client: Client) -> Job:
    job = client.begin_job("t", "campaign", hidden_for=3_600)
    client.producer("t").schedule_many([b"x"] * 4, MONTH, job=job)
    return job


def pass_days(dueq_mesh: Mesh, client: Client, days: int) -> None:
    """Let the partitions age: they do so by their records."""
    for _ in range(days):
        dueq_mesh.advance(DAY)
        client.producer("t").schedule(b"another", 2 * MONTH)


def test_a_name_is_known_while_messages_of_a_later_attempt_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "AGE_STEP_MS", 86_400_000)  # a record a day for one a minute
    with mesh() as dueq_mesh:
        client = dueq_mesh.client()
        client.create_topic("t", partitions=1)
        for _ in range(2):
            client.abort_job(load(client))
        third = load(client)
        client.commit_job(third)
        pass_days(dueq_mesh, client, 12)
        assert [job.key for job in client.jobs("t")] == [third.key.hex()]
        found = client.job("t", "campaign")
        assert found is not None
        assert (found.key, found.state, found.messages) == (third.key.hex(), "committed", 4)
        again = client.begin_job("t", "campaign", hidden_for=3_600)
        assert (again.key, again.state) == (third.key, "committed")
        client.cancel_job("t", "campaign")
        assert {message.size for message in client.browse("t")} == {len(b"another")}


def test_a_name_of_which_everything_is_forgotten_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "AGE_STEP_MS", 86_400_000)
    with mesh() as dueq_mesh:
        client = dueq_mesh.client()
        client.create_topic("t", partitions=1)
        client.abort_job(load(client))
        aborted = client.job("t", "campaign")
        assert aborted is not None
        assert aborted.state == "aborted"
        pass_days(dueq_mesh, client, 12)
        assert client.job("t", "campaign") is None
        with pytest.raises(JobNotFound, match="knows of no job 'campaign'"):
            client.cancel_job("t", "campaign")
        assert load(client).state == "open"


def test_an_attempt_is_looked_for_in_every_partition() -> None:
    """One whose leader is away may be the only one that knows of it."""

    def found(*answering: int) -> Any:
        views = [
            {"uid": uid, "epoch": 1, "sequence": 1, "jobs": [view] if uid == 2 else []} for uid in answering
        ]
        topic = SimpleNamespace(
            partitions=[SimpleNamespace(uid=1), SimpleNamespace(uid=2)], home_partitions=0
        )
        return SimpleNamespace(
            metadata=SimpleNamespace(topics=[topic]), documents={"b1": dumps({"partitions": views})}
        )

    key = jobs.key_of("campaign", 7).hex()
    view = {"job": key, "state": "committed", "until": 5, "messages": 1, "cleared": True}
    newest = jobs._newest_attempt("t", "campaign", 0)
    assert newest.reads
    assert newest.finish(found(1, 2)) == 7
    with pytest.raises(NotLeader, match="1 of 2 partitions of 't' have no leader"):
        newest.finish(found(1))


def test_the_last_of_all_attempts_is_shown_though_each_was_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JOB_ATTEMPTS_MAX", 2)
    with mesh() as dueq_mesh:
        client = dueq_mesh.client()
        client.create_topic("t", partitions=1)
        for _ in range(2):
            client.abort_job(load(client))
        found = client.job("t", "campaign")
        assert found is not None
        assert (found.key, found.state) == (jobs.key_of("campaign", 1).hex(), "aborted")
        with pytest.raises(InvalidRequest, match="was aborted 2 times"):
            load(client)
        with pytest.raises(JobNotFound):
            client.cancel_job("t", "campaign")


def test_a_broker_with_more_jobs_than_it_shows_is_asked_for_attempts_by_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline, "AGE_STEP_MS", 86_400_000)
    monkeypatch.setattr(limits, "JOBS_SHOWN_MAX", 1)
    with mesh() as dueq_mesh:
        client = dueq_mesh.client()
        client.create_topic("t", partitions=1)
        client.abort_job(load(client))
        second = load(client)
        client.commit_job(second)
        pass_days(dueq_mesh, client, 12)
        newer = client.begin_job("t", "newer", hidden_for=3_600)
        client.producer("t").schedule_many([b"y"], MONTH, job=newer)
        assert [job.key for job in client.jobs("t")] == [newer.key.hex()]
        found = client.job("t", "campaign")
        assert found is not None
        assert found.key == second.key.hex()
