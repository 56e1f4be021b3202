"""`update_topic(if_version=…)`: a change of settings that are as they were seen, over a mesh without processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dueq import Client, InvalidRequest, VersionDiffers
from dueq.testing import mesh


@pytest.fixture
def client() -> Iterator[Client]:
    with mesh() as found:
        client = found.client()
        client.create_topic("t", partitions=1)
        yield client


def test_of_two_changes_of_what_was_seen_the_second_is_refused(client: Client) -> None:
    seen = client.describe("t").settings_version
    client.update_topic("t", labels={"a": "1"}, if_version=seen)
    with pytest.raises(
        VersionDiffers,
        match=rf"the settings of topic 't' have version {seen + 1}, and version {seen} was expected",
    ) as refused:
        client.update_topic("t", labels={"b": "2"}, if_version=seen)
    assert refused.value.present == seen + 1
    info = client.describe("t")
    assert (info.labels, info.settings_version) == ({"a": "1"}, seen + 1)
    client.update_topic("t", labels={"b": "2"}, if_version=refused.value.present)
    assert client.describe("t").labels == {"b": "2"}


@pytest.mark.parametrize("rate", [0, 5, 0.5, 0.001, 1_000_000])
def test_a_rate_may_be_less_than_one_a_second(client: Client, rate: float) -> None:
    client.update_topic("t", rate=rate)
    assert client.describe("t").rate == rate
    with pytest.raises(InvalidRequest, match=r"rate is 0, or 0\.001 to 1000000 messages a second, not -1"):
        client.update_topic("t", rate=-1)


@pytest.mark.parametrize("version", [-1, 1.5, True, 1 << 63])
def test_a_version_is_a_number(client: Client, version: object) -> None:
    with pytest.raises(InvalidRequest, match="if_version"):
        client.update_topic("t", labels={}, if_version=version)  # type: ignore[arg-type]
