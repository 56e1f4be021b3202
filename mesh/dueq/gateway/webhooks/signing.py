"""Signatures by Standard Webhooks (https://www.standardwebhooks.com) over id, instant and body.

By a secret: HMAC-SHA256, `v1`. By a private key: ed25519, `v1a`, for receivers that shall not be able to sign.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Iterable
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dueq import limits
from dueq_codecs.endpoint import PRIVATE, key_of


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
        _signature(secret, signed) for secret, until_ms in secrets if not until_ms or until_ms > now_ms
    )


def _signature(secret: str, signed: bytes) -> str:
    if secret.startswith(PRIVATE):
        return "v1a," + b64encode(_private_key(secret).sign(signed)).decode()
    return "v1," + b64encode(hmac.digest(key_of(secret), signed, hashlib.sha256)).decode()


@lru_cache(maxsize=limits.ENDPOINTS_MAX)
def _private_key(secret: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(key_of(secret)[:32])
