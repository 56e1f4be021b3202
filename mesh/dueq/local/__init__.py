"""A whole mesh on one machine, for development, demonstrations and tests.

`LocalMesh` starts a real ZooKeeper and real broker processes, waits until they answer, and ends them with
itself. `dueq up` is a thin face of it.
"""

from dueq.local.child import BrokerChild
from dueq.local.mesh import LocalMesh, LocalMeshError

__all__ = ["BrokerChild", "LocalMesh", "LocalMeshError"]
