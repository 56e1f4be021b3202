"""Looking at messages without touching them."""

from __future__ import annotations

from dataclasses import dataclass

from dueq_codecs.codes import Code


@dataclass(slots=True)
class LookRequest:
    """A question to the leader of a partition about its messages as they are now.

    `what` is "message" (one of them), "count" (how many match a filter), "seconds" (how many wait until each second) or
    "leased" (which of them consumers have).
    """

    request_id: int
    topic: str
    uid: int
    what: str
    first: int = 0
    """The message: its id, taken apart."""
    sequence: int = 0
    row: int = 0
    current: bool = False
    """Answer only once it is certain that nobody else led when this arrived."""
    payload: bool = False
    upload: int = 0
    """Not 0: one chunk of this long payload instead of the message."""
    chunk: int = 0
    document: str = ""
    """Of all but "message" JSON, with "after" of the answer before."""


@dataclass(slots=True)
class LookReply:
    """The answer, as a JSON `document`; one body.

    Of a message that is its payload with its meta if it was asked for and is short, otherwise only its meta; of a
    chunk, its bytes. The document is empty where there is no such message.
    """

    request_id: int
    code: Code
    text: str = ""
    retry_after_ms: int = 0
    leader: str = ""
    document: str = ""
