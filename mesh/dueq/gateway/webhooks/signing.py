"""Signatures by Standard Webhooks (https://www.standardwebhooks.com): HMAC-SHA256 over id, instant and body."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Iterable

from dueq_codecs.endpoint import key_of


def signatures(
    secrets: Iterable[tuple[str, int]], message_id: str, at_s: int, body: bytes, now_ms: int
) -> str:
    """Return the value of `webhook-signature`: a signature by each secret that is in use, with spaces between them.

    Args:
        secrets: each with the instant until which it is used, Unix ms; 0: for good.
        message_id: has no `.`.
        at_s: the instant of the attempt, Unix seconds.
        body: as it is sent.
        now_ms: the present, Unix ms.
    """
    signed = f"{message_id}.{at_s}.".encode() + body
    return " ".join(
        "v1," + b64encode(hmac.digest(key_of(secret), signed, hashlib.sha256)).decode()
        for secret, until_ms in secrets
        if not until_ms or until_ms > now_ms
    )
