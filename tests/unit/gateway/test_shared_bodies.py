"""Shared bodies that clients of a gateway name, and the partitions that keep them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

pytest.importorskip("fastapi")

from dueq.errors import UnknownBody
from dueq.gateway.shared_bodies import Bodies, named, text_of
from dueq.testing import amesh


def test_partitions_that_were_added_since_a_body_was_brought_are_told_from_the_others() -> None:
    """Messages that went to the old ones were scheduled, and others refused: as it happened."""

    async def run() -> None:
        with amesh() as mesh:
            client, seconds = mesh.client(), 0
            bodies = Bodies(client.connection, lambda: seconds * 1_000_000)
            await client.create_topic("sale", partitions=1)
            body = named(text_of(await bodies.put("sale", b"Everything must go.")), "body")
            await bodies.keep("sale", body)
            await client.update_topic("sale", partitions=4)
            await mesh.advance(60)  # by then the client has heard of them
            seconds += 60
            await client.producer("sale").schedule(b"x", timedelta(hours=1))
            for _ in range(3):
                with pytest.raises(UnknownBody, match="3 of 4 partitions"):
                    await bodies.keep("sale", body)
            await bodies.put("sale", b"Everything must go.")
            await bodies.keep("sale", body)

    asyncio.run(run())
