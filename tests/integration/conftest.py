"""A mesh for the tests that leave it as they found it; who breaks things makes one of his own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dueq import Client
from dueq.local import LocalMesh


@pytest.fixture(scope="session")
def mesh() -> Iterator[LocalMesh]:
    """Three brokers and a ZooKeeper that nobody harms."""
    with LocalMesh() as found:
        yield found


@pytest.fixture
def client(mesh: LocalMesh) -> Iterator[Client]:
    """A client that knows every broker."""
    with Client(mesh.endpoints) as found:
        yield found


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of the test's own: three partitions on every broker."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", request.node.name)[:80]
    client.create_topic(name, partitions=3, replicas=3)
    yield name
    client.delete_topic(name)
