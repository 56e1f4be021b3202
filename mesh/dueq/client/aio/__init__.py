"""The asyncio face of the SDK.

It stands on the same I/O thread as the synchronous one, which is made of it by `scripts/generate-faces`: all but
`waiting` and `crew`, which are written for each. Write here.
"""

from dueq.client.aio.client import AsyncClient
from dueq.client.aio.consumer import AsyncConsumer
from dueq.client.aio.message import AsyncMessage
from dueq.client.aio.producer import AsyncProducer

__all__ = ["AsyncClient", "AsyncConsumer", "AsyncMessage", "AsyncProducer"]
