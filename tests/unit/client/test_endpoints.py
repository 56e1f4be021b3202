"""Endpoints as callers set and see them, over a real mesh without processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dueq import (
    Backoff,
    Client,
    EndpointNotFound,
    InvalidRequest,
    NotLeader,
    NotYetApplied,
    OutcomeUnknown,
    TopicNotFound,
    VersionDiffers,
)
from dueq.client import endpoints, topic_changes
from dueq.client.calls import Steps
from dueq.client.endpoints import Document, StoredEndpoint
from dueq.testing import Mesh, mesh

URL = "https://example.com/hook"
OTHER = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@pytest.fixture
def dueq_mesh() -> Iterator[Mesh]:
    with mesh() as found:
        yield found


@pytest.fixture
def client(dueq_mesh: Mesh) -> Client:
    found = dueq_mesh.client()
    found.create_topic("bills")
    return found


def stored(client: Client, name: str) -> StoredEndpoint:
    return client.connection.follow(endpoints.find(name), None)


def test_an_endpoint_gets_a_secret_that_is_told_once(client: Client) -> None:
    secret = client.set_endpoint("billing", "bills", URL, request_timeout=2.5, headers={"x-a": "1"})
    info = client.endpoint("billing")
    assert (info.topic, info.url, info.version, info.timeout, info.max_in_flight) == (
        "bills",
        URL,
        1,
        2.5,
        64,
    )
    assert (info.headers, info.disabled, info.paused) == (("x-a",), "", False)
    assert secret not in repr(info)
    assert stored(client, "billing").document["secrets"] == [[secret, 0]]
    assert client.endpoints() == [info]


def test_a_change_keeps_the_secrets_and_tells_none(client: Client) -> None:
    secret = client.set_endpoint("billing", "bills", URL)
    assert client.set_endpoint("billing", "bills", URL + "/2", matching={"kind": "invoice"}) == ""
    found = stored(client, "billing")
    assert (found.version, found.document["secrets"]) == (2, [[secret, 0]])
    assert client.endpoint("billing").filter == {"kind": ["invoice"]}


def test_a_topic_without_a_back_off_gets_one(client: Client) -> None:
    client.set_endpoint("billing", "bills", URL)
    settings = client.connection.run(endpoints._settings("bills"), None)
    assert settings.backoff == endpoints.DEFAULT_BACKOFF.document()
    client.update_topic("bills", backoff=Backoff(first=1.0))
    client.set_endpoint("billing", "bills", URL)
    settings = client.connection.run(endpoints._settings("bills"), None)
    assert settings.backoff == Backoff(first=1.0).document()


def test_a_new_secret_comes_first_and_the_old_ones_end(client: Client) -> None:
    first = client.set_endpoint("billing", "bills", URL)
    second = client.rotate_endpoint("billing", grace=60.0)
    [[newest, until], [older, end]] = stored(client, "billing").document["secrets"]
    assert (newest, until, older) == (second, 0, first)
    assert end > 0
    assert client.rotate_endpoint("billing", OTHER, grace=0.0) == OTHER
    assert stored(client, "billing").document["secrets"] == [[OTHER, 0]]


def test_names_and_topics_have_one_endpoint_each(client: Client) -> None:
    client.create_topic("mail")
    client.set_endpoint("billing", "bills", URL)
    with pytest.raises(InvalidRequest, match="endpoint 'billing' is of topic 'bills', not of 'mail'"):
        client.set_endpoint("billing", "mail", URL)
    with pytest.raises(InvalidRequest, match="topic 'bills' has the endpoint 'billing' already"):
        client.set_endpoint("other", "bills", URL)
    with pytest.raises(TopicNotFound):
        client.set_endpoint("other", "nowhere", URL, timeout=1.0)


def test_bad_values_are_refused(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="time-out of an endpoint"):
        client.set_endpoint("billing", "bills", URL, request_timeout=0.05)
    with pytest.raises(InvalidRequest, match="https://"):
        client.set_endpoint("billing", "bills", "file:///etc/passwd")
    with pytest.raises(InvalidRequest, match="a secret is whsec_"):
        client.set_endpoint("billing", "bills", URL, secrets=["tell nobody"])
    wrong: dict[str, Any] = {"headers": 5, "matching": {"a": 5}, "secrets": 5, "if_version": "0"}
    with pytest.raises(InvalidRequest, match="matching: the name of a header has 1 to 255"):
        client.set_endpoint("billing", "bills", URL, matching={"": "x"})
    for name, value in wrong.items():
        with pytest.raises(InvalidRequest, match=f"{value!r}|5"):
            client.set_endpoint("billing", "bills", URL, **{name: value})
    with pytest.raises(EndpointNotFound, match="there is no endpoint 'billing'"):
        client.endpoint("billing")


def test_an_endpoint_is_disabled_only_as_the_version_that_was_used(client: Client) -> None:
    client.set_endpoint("billing", "bills", URL)
    used = stored(client, "billing")
    client.set_endpoint("billing", "bills", URL + "/2")
    assert not client.connection.follow(endpoints.disable(used, "410 Gone"), None)
    assert client.connection.follow(endpoints.disable(stored(client, "billing"), "410 Gone"), None)
    info = client.endpoint("billing")
    assert (info.disabled, info.paused, info.paused_until) == ("410 Gone", True, None)
    client.resume_endpoint("billing")
    info = client.endpoint("billing")
    assert (info.disabled, info.paused) == ("", False)


def test_what_an_endpoint_was_told_before_its_topic_was_made_again_does_not_disable_it(
    client: Client,
) -> None:
    client.set_endpoint("billing", "bills", URL)
    used = stored(client, "billing")
    client.delete_topic("bills")
    client.create_topic("bills")
    client.set_endpoint("billing", "bills", URL + "/2")
    assert stored(client, "billing").version == used.version
    assert not client.connection.follow(endpoints.disable(used, "410 Gone"), None)


def test_a_change_may_say_which_version_it_is_about(client: Client) -> None:
    with pytest.raises(VersionDiffers, match="endpoint 'billing' is not there, and version 1 was expected"):
        client.set_endpoint("billing", "bills", URL, if_version=1)
    client.set_endpoint("billing", "bills", URL, if_version=0)
    with pytest.raises(VersionDiffers, match="has version 1, and version 0 was expected") as refused:
        client.set_endpoint("billing", "bills", URL, if_version=0)
    assert refused.value.present == 1
    client.set_endpoint("billing", "bills", URL, if_version=1)
    with pytest.raises(VersionDiffers):
        client.delete_endpoint("billing", if_version=1)
    client.delete_endpoint("billing", if_version=2)
    client.set_endpoint("billing", "bills", URL)
    assert client.endpoint("billing").version > 2


def test_of_two_holds_the_later_instant_counts(client: Client, dueq_mesh: Mesh) -> None:
    client.set_endpoint("billing", "bills", URL)
    used = stored(client, "billing")
    later = dueq_mesh.now_ms + 60_000
    assert client.connection.follow(endpoints.hold(used, later), None) == later
    assert client.connection.follow(endpoints.hold(used, later - 1), None) == later
    until = client.endpoint("billing").paused_until
    assert until is not None
    assert round(until.timestamp() * 1000) == later
    client.pause_endpoint("billing")
    assert client.connection.follow(endpoints.hold(used, later + 1), None) == 0
    assert client.endpoint("billing").paused_until is None


def test_only_the_receiver_of_a_topic_holds_it(client: Client, dueq_mesh: Mesh) -> None:
    client.set_endpoint("billing", "bills", URL)
    used = stored(client, "billing")
    later = dueq_mesh.now_ms + 60_000
    client.set_endpoint("billing", "bills", URL + "/2")
    assert client.connection.follow(endpoints.hold(used, later), None) is None
    assert not client.endpoint("billing").paused
    client.delete_endpoint("billing")
    assert client.connection.follow(endpoints.hold(used, later), None) is None
    assert not client.describe("bills").paused
    client.set_endpoint("billing", "bills", URL, matching={"kind": "invoice"})
    assert client.connection.follow(endpoints.hold(used, later), None) == later, "it is the same receiver"


def test_a_deleted_endpoint_leaves_its_topic(client: Client) -> None:
    client.set_endpoint("billing", "bills", URL)
    client.delete_endpoint("billing")
    assert client.endpoints() == []
    assert client.set_endpoint("other", "bills", URL).startswith("whsec_")


def test_of_two_who_create_one_endpoint_at_once_only_one_is_told_a_secret(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one was told a secret with which nothing is ever signed."""
    real, theirs = endpoints._stored, list[str]()

    def later(topic: str, changes: Document, version: int) -> Steps[bool]:
        monkeypatch.setattr(endpoints, "_stored", real)
        theirs.append(client.set_endpoint("billing", "bills", URL))
        return (yield from real(topic, changes, version))

    monkeypatch.setattr(endpoints, "_stored", later)
    assert client.set_endpoint("billing", "bills", URL + "/2") == ""
    assert stored(client, "billing").document["secrets"] == [[theirs[0], 0]]


def test_a_secret_that_was_made_is_told_though_it_is_not_in_force_everywhere(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored, and never shown again."""

    def not_yet(topic: str, standing: Document) -> Steps[None]:
        raise NotYetApplied(topic, int(standing["version"]), [0], "no leader")
        yield

    monkeypatch.setattr(topic_changes, "await_version", not_yet)
    first = client.set_endpoint("billing", "bills", URL)
    assert [each for each, _ in stored(client, "billing").document["secrets"]] == [first]
    second = client.rotate_endpoint("billing")
    assert [each for each, _ in stored(client, "billing").document["secrets"]] == [second, first]
    with pytest.raises(NotYetApplied):
        client.set_endpoint("billing", "bills", URL + "/2")
    with pytest.raises(NotYetApplied):
        client.rotate_endpoint("billing", OTHER)


def secrets_of(client: Client, name: str) -> list[str]:
    return [each for each, _ in stored(client, name).document["secrets"]]


def test_a_secret_that_was_made_is_told_though_the_answer_was_lost(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be stored, and is never shown again: so it is looked for."""
    real = endpoints._stored

    def lost(topic: str, changes: Document, version: int) -> Steps[bool]:
        yield from real(topic, changes, version)
        raise OutcomeUnknown("no answer in time")

    monkeypatch.setattr(endpoints, "_stored", lost)
    first = client.set_endpoint("billing", "bills", URL)
    assert secrets_of(client, "billing") == [first]
    second = client.rotate_endpoint("billing")
    assert secrets_of(client, "billing") == [second, first]
    with pytest.raises(OutcomeUnknown):
        client.set_endpoint("billing", "bills", URL + "/2")


def test_no_secret_is_told_that_is_not_known_to_be_stored(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(topic: str, changes: Document, version: int) -> Steps[bool]:
        raise OutcomeUnknown("no answer in time")
        yield

    def unread() -> Steps[list[StoredEndpoint]]:
        raise NotLeader("nobody answers")
        yield

    monkeypatch.setattr(endpoints, "_stored", lost)
    with pytest.raises(OutcomeUnknown):
        client.set_endpoint("billing", "bills", URL)
    monkeypatch.setattr(endpoints, "every", unread)
    with pytest.raises(OutcomeUnknown):
        client.set_endpoint("billing", "bills", URL)


def test_a_secret_that_was_made_is_told_though_another_change_has_followed_before_the_answer(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is repeated where its first answer is lost; then the settings are of a later version."""
    real = endpoints._stored

    def overtaken(topic: str, changes: Document, version: int) -> Steps[bool]:
        monkeypatch.setattr(endpoints, "_stored", real)
        yield from real(topic, changes, version)
        client.set_endpoint("billing", "bills", URL + "/2")
        return (yield from real(topic, changes, version))

    monkeypatch.setattr(endpoints, "_stored", overtaken)
    assert [client.set_endpoint("billing", "bills", URL, if_version=0)] == secrets_of(client, "billing")
    assert client.endpoint("billing").url == URL + "/2", "the later one counts"
