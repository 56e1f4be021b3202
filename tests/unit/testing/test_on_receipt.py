"""`ack="on_receipt"`: nobody sees a message whose receipt is not committed, so nobody sees one twice."""

from __future__ import annotations

import asyncio

from dueq.testing import amesh


def test_what_another_has_settled_meanwhile_is_not_handed_out() -> None:
    async def run() -> None:
        with amesh() as mesh:
            client = mesh.client()
            await client.create_topic("orders", partitions=1)
            async with client.producer("orders") as producer:
                first, second = await producer.schedule_many([b"1", b"2"], mesh.now)
            async with client.consumer("orders", ack="on_receipt") as consumer:
                await mesh.advance(1)
                leased = await client.get("orders", first, linearizable=True)
                assert leased.state == "leased"
                await client.settle("orders", [(first, leased.token)], "ack")
                received = await consumer.receive(10, timeout=10)
                assert [message.id for message in received] == [second]
            assert (await client.describe("orders")).scheduled == 0

    asyncio.run(run())
