"""A mesh inside a test: the real client, the real broker, and a clock that the test moves.

    from datetime import timedelta
    from dueq.testing import mesh

    def test_a_reminder_comes_after_a_day():
        with mesh() as dueq_mesh:
            client = dueq_mesh.client()
            client.create_topic("reminders")
            client.producer("reminders").schedule(b"water the plants", timedelta(days=1))
            with client.consumer("reminders") as consumer:
                assert consumer.receive(timeout=0) == []
                dueq_mesh.advance(86_400)
                [message] = consumer.receive()
                message.ack()

For pytest there are the fixtures `dueq_mesh` and `dueq_amesh` (for asyncio). Nothing patches `time`.
"""

from __future__ import annotations

from dueq.testing.errors import NotAtRest
from dueq.testing.mesh import AsyncMesh, Mesh, amesh, mesh

__all__ = ["AsyncMesh", "Mesh", "NotAtRest", "amesh", "mesh"]
