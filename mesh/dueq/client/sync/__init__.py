# Made of aio/__init__.py by scripts/generate-faces: write there.
"""The synchronous face of the SDK, made of the asyncio one: all but `waiting` and `crew`."""

from dueq.client.sync.client import Client
from dueq.client.sync.consumer import Consumer
from dueq.client.sync.message import Message
from dueq.client.sync.producer import Producer

__all__ = ["Client", "Consumer", "Message", "Producer"]
