"""Write the data folder of a broker, for the tests of later formats: `python make.py FILE.tar.xz`.

Run it with the last build of a format, before that format changes, and commit what it makes. A file that is there stays
as it is: what it shows is that a store which *that* build wrote can still be opened.

It holds two partitions with waiting messages (one with a key, one that was moved, one whose payload is an upload),
leased messages, remembered requests, a hidden job with messages, and finished messages with their garbage.
"""

from __future__ import annotations

import sys
import tarfile
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from dueq import Client
from dueq.local import LocalMesh

_CHECKPOINTED_S = 5.0
_KEPT = ("timeline", "payload", "coordinator.json")
_NOT_KEPT = ("LOG", "LOG.old", "LOCK")
"""Files of LevelDB that say nothing of what it holds."""


def fill(mesh: LocalMesh, client: Client) -> None:
    """Leave a little of everything in the mesh."""
    client.create_topic("kept", partitions=2, replicas=1, min_isr=1)
    producer = client.producer("kept")
    day = timedelta(days=1)
    ids = producer.schedule_many([b"message %d" % number for number in range(40)], [day] * 40)
    producer.schedule(b"with a key", 2 * day, key="order-42")
    producer.schedule(b"u" * 300_000, 3 * day)
    producer.move(ids[0], 5 * day)
    producer.cancel_many(ids[1:4])
    for payload in (b"leased", b"finished"):
        producer.schedule_many([payload] * 5, [timedelta(0)] * 5)
    with client.consumer("kept", lease=timedelta(hours=12), credit=10) as consumer:
        held: list[str] = []
        while len(held) < 10:
            for message in consumer.receive(10, timeout=20.0):
                held.append(message.id)
                if message.payload == b"finished":
                    consumer.ack([message])
        job = client.begin_job("kept", "a hidden job", hidden_for=3600)
        producer.schedule_many([b"hidden"] * 8, [day] * 8, job=job)
        Event().wait(_CHECKPOINTED_S)
        producer.schedule_many([b"after the checkpoint"] * 3, [4 * day] * 3)
        mesh.kill(0)  # before the consumer says goodbye: that would return what it holds


def pack(data: Path, target: Path) -> None:
    """Put what a broker holds into an archive that depends on nothing else."""
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path in sorted(data.rglob("*")):
            inside = path.relative_to(data)
            if path.is_file() and inside.parts[0] in _KEPT and path.name not in _NOT_KEPT:
                entry = archive.gettarinfo(path, str(inside))
                entry.uid = entry.gid = entry.mtime = 0
                entry.uname = entry.gname = ""
                with path.open("rb") as file:
                    archive.addfile(entry, file)


def main() -> None:
    """Make the file named by the only argument."""
    target = Path(sys.argv[1])
    with TemporaryDirectory() as folder:
        mesh = LocalMesh(Path(folder) / "mesh", brokers=1, zookeeper=False)
        with mesh, Client(mesh.endpoints, timeout=20.0) as client:
            fill(mesh, client)
        pack(mesh.brokers[0].data, target)


if __name__ == "__main__":
    main()
