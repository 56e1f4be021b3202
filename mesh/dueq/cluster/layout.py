"""The place of each fact in ZooKeeper.

    ROOT/cluster            JSON: cluster id, feature level
    ROOT/next_uid           the next partition uid, in decimal
    ROOT/brokers/ID         ephemeral; JSON of a Registration
    ROOT/levels/ID          the feature level that the broker announced last, in decimal; stays when it is away
    ROOT/topics/NAME        JSON of a Topic; changed only by compare-and-set on its version
    ROOT/partitions/UID     JSON of a PartitionNode; changed only by compare-and-set on its version
    ROOT/tombstones/A-B     JSON: the brokers that had replicas of the partitions with uids A to B, and may delete them
    ROOT/ended/N            JSON: ids of the creations of topics that were deleted; in one of 16 nodes, by a hash

No message, lease or ack ever lies here.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote
from zlib import crc32

_ENDED_NODES: Final = 16
"""Two deletions at once that change one node have to be made one after the other."""
DEFAULT_ROOT = "/dueq"
_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:/,@\s\[\]]+)(:(?P<port>\d{1,5}))?", re.ASCII)


class Layout:
    """The paths of one cluster.

    Attributes:
        root: an absolute path, without a slash at its end.
        cluster, next_uid, brokers, levels, topics, partitions, tombstones, ended: see the module.
    """

    def __init__(self, root: str = DEFAULT_ROOT) -> None:
        """Take the cluster's root.

        Raises:
            ValueError: it is not an absolute path below `/`.
        """
        segments = root.split("/")
        if not root.startswith("/") or not root.strip("/") or "//" in root or {".", ".."} & set(segments):
            raise ValueError(
                f"the root of a cluster in ZooKeeper is a path like {DEFAULT_ROOT}, not {root!r}"
            )
        self.root = root.rstrip("/")
        self.cluster = f"{self.root}/cluster"
        self.next_uid = f"{self.root}/next_uid"
        self.brokers = f"{self.root}/brokers"
        self.levels = f"{self.root}/levels"
        self.topics = f"{self.root}/topics"
        self.partitions = f"{self.root}/partitions"
        self.tombstones = f"{self.root}/tombstones"
        self.ended = f"{self.root}/ended"

    def folders(self) -> list[str]:
        """Return every path that must be there first, parents before children."""
        parts = self.root.split("/")
        above = ["/".join(parts[: n + 1]) for n in range(1, len(parts))]
        own = (self.brokers, self.levels, self.topics, self.partitions, self.tombstones, self.ended)
        return [*above, *own]

    def broker(self, broker_id: str) -> str:
        """Return the path of a broker's registration."""
        return f"{self.brokers}/{segment(broker_id)}"

    def level(self, broker_id: str) -> str:
        """Return the path of what a broker announced last."""
        return f"{self.levels}/{segment(broker_id)}"

    def topic(self, name: str) -> str:
        """Return the path of a topic."""
        return f"{self.topics}/{segment(name)}"

    def partition(self, uid: int) -> str:
        """Return the path of a partition's node."""
        return f"{self.partitions}/{uid}"

    def tombstone(self, name: str) -> str:
        """Return the path of a tombstone."""
        return f"{self.tombstones}/{name}"

    def ended_like(self, creation_id: str) -> str:
        """Return the path of the list that says whether the topic of a creation was deleted."""
        return f"{self.ended}/{crc32(creation_id.encode()) % _ENDED_NODES}"


def segment(name: str) -> str:
    """Return a name as one segment of a path: `/` would be two, and ZooKeeper refuses `.` and `..`."""
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def split_address(address: str) -> tuple[str, str]:
    """Split `HOST:PORT,HOST:PORT/ROOT` into hosts and root; without a root it is `/dueq`.

    Raises:
        ValueError: these are no hosts and ports.
    """
    all_hosts, slash, root = address.partition("/")
    servers = [_SERVER.fullmatch(server.strip()) for server in all_hosts.split(",")]
    if not all(
        server and 1 <= int(server["port"] or 2181) <= 65_535 and _is_name(server[1]) for server in servers
    ):
        raise ValueError(f"an address of ZooKeeper is HOST:PORT,HOST:PORT or that and /ROOT, not {address!r}")
    hosts = ",".join(server[0] for server in servers if server)
    return hosts, f"/{root}" if slash and root.strip("/") else DEFAULT_ROOT


def _is_name(host: str) -> bool:
    """Whether a host can be looked up at all: labels of a name have 1 to 63 characters."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True
