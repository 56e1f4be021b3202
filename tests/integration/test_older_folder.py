"""A broker starts with a data folder that the last build of an older format wrote, and serves all that is in it."""

from __future__ import annotations

import tarfile
import threading
from pathlib import Path

import pytest

from dueq import Client
from dueq.local import LocalMesh

pytestmark = pytest.mark.integration

FOLDERS = Path(__file__).parents[1] / "unit" / "storage" / "ordered" / "folders"


@pytest.mark.parametrize("archive", sorted(FOLDERS.glob("*.tar.xz")), ids=lambda path: path.name)
def test_everything_in_it_is_served(archive: Path, tmp_path: Path) -> None:
    mesh = LocalMesh(tmp_path / "mesh", brokers=1, zookeeper=False)
    with tarfile.open(archive) as packed:
        for member in packed:
            source, target = packed.extractfile(member), mesh.brokers[0].data / member.name
            assert source is not None
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read())
    with mesh, Client(mesh.endpoints) as client:
        pause, description = threading.Event(), client.describe("kept")
        while any(part.leased is None for part in description.placement):  # it does not lead all of them yet
            pause.wait(0.05)
            description = client.describe("kept")
        messages = list(client.browse("kept", payloads=True))
        jobs = client.jobs("kept")
    assert description.partitions == 2
    assert len(jobs) == 1
    found = {message.payload: message.key for message in messages}
    assert found[b"with a key"] == "order-42"
    assert {
        b"message 0",
        b"message 4",
        b"message 39",
        b"after the checkpoint",
        b"u" * 300_000,
    } <= found.keys()
    assert not {b"message 1", b"message 2", b"message 3", b"finished"} & found.keys()
    returned = sum(message.payload == b"leased" for message in messages)  # its consumer will not be back
    assert (description.leased or 0) + returned >= 5
