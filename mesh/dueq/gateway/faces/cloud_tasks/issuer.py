"""Tokens of OpenID Connect, which say to a receiver which service account a task's request is from.

Google's receivers check them against Google's keys. Here the gateways are the issuer: all of them have the same key,
and a receiver that fetches `ISSUER/.well-known/openid-configuration` finds its public half. A token is made for each
request, as it is sent, and is good for an hour.
"""

from __future__ import annotations

import hashlib
import json
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from fastapi import APIRouter, Request

from dueq import limits
from dueq.errors import InvalidRequest
from dueq.gateway.problems import Refusal

CONFIGURATION: Final = "/.well-known/openid-configuration"
KEYS: Final = "/.well-known/jwks.json"
_LASTS_S: Final = 3600
_BITS_MIN: Final = 2048
_END: Final = b"-----END"
_WORDS: Final = (
    f"an issuer has RSA private keys of at least {_BITS_MIN} bits as PEM (`openssl genrsa` makes one)"
)

router = APIRouter(include_in_schema=False)


class Identity(NamedTuple):
    """For whom a token is.

    Attributes:
        email: of the service account.
        audience: the receiver that is to believe it; "": the URL of the task.
    """

    email: str
    audience: str


class Issuer:
    """Makes tokens.

    Args:
        url: which tokens name as their issuer; receivers fetch the keys below it.
        keys: PEM of private keys. The first one signs; receivers believe all of them.

    Raises:
        InvalidRequest: one of these is not what it has to be.
    """

    def __init__(self, url: str, keys: bytes) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InvalidRequest(f"an issuer is the URL at which its keys are found, not {url!r:.80}")
        self.url = url.rstrip("/")
        self._keys = {_name(key): key for key in _loaded(keys)}

    @classmethod
    def load(cls, url: str, file: Path | None) -> Self | None:
        """Return the issuer with the keys of a file; None: neither is given.

        Raises:
            InvalidRequest: only one of them is given, or the file cannot be read.
        """
        if not url and file is None:
            return None
        if not url or file is None:
            raise InvalidRequest("an issuer of tokens has a URL and a file of keys: give both or neither")
        try:
            with file.open("rb") as opened:
                found = opened.read(limits.SECRETS_KEY_FILE_BYTES_MAX)
        except OSError as error:
            raise InvalidRequest(f"the keys of the issuer cannot be read: {error}") from error
        return cls(url, found)

    def token(self, identity: Identity, url: str) -> str:
        """Return a token for a request that is sent to a URL now."""
        name, key = next(iter(self._keys.items()))
        now_s = int(time.time())
        said = {
            "iss": self.url, "aud": identity.audience or url, "azp": identity.email, "sub": identity.email,
            "email": identity.email, "email_verified": True, "iat": now_s, "exp": now_s + _LASTS_S,
        }  # fmt: skip
        signed = f"{_packed({'alg': 'RS256', 'kid': name, 'typ': 'JWT'})}.{_packed(said)}"
        return f"{signed}.{_text(key.sign(signed.encode(), PKCS1v15(), SHA256()))}"

    def configuration(self) -> dict[str, Any]:
        """Return the document of OpenID Connect Discovery."""
        return {
            "issuer": self.url,
            "jwks_uri": self.url + KEYS,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def keys(self) -> dict[str, Any]:
        """The public keys (RFC 7517)."""
        return {"keys": [_public(key) | {"kid": name} for name, key in self._keys.items()]}


@router.get(CONFIGURATION)
async def configuration(request: Request) -> dict[str, Any]:
    return _issuer(request).configuration()


@router.get(KEYS)
async def keys(request: Request) -> dict[str, Any]:
    return _issuer(request).keys()


def _issuer(request: Request) -> Issuer:
    issuer: Issuer | None = request.app.state.issuer
    if issuer is None:
        raise Refusal(404, "this gateway issues no tokens (dueq gateway --oidc-issuer)")
    return issuer


def _loaded(pem: bytes) -> list[RSAPrivateKey]:
    found: list[RSAPrivateKey] = []
    for text in pem.split(_END)[:-1]:
        _, begins, rest = text.partition(b"-----BEGIN")
        kind = rest.partition(b"-----")[0]
        try:
            key = load_pem_private_key(begins + rest + _END + kind + b"-----\n", password=None)
        except (ValueError, TypeError) as error:
            raise InvalidRequest(f"{_WORDS}: {error}") from None
        if not isinstance(key, RSAPrivateKey) or key.key_size < _BITS_MIN:
            raise InvalidRequest(_WORDS)
        found.append(key)
    if not found:
        raise InvalidRequest(_WORDS)
    return found


def _public(key: RSAPrivateKey) -> dict[str, str]:
    numbers = key.public_key().public_numbers()
    return {"kty": "RSA", "alg": "RS256", "use": "sig", "n": _number(numbers.n), "e": _number(numbers.e)}


def _name(key: RSAPrivateKey) -> str:
    """The thumbprint of the public key (RFC 7638)."""
    found = _public(key)
    known = {name: found[name] for name in ("e", "kty", "n")}
    return _text(hashlib.sha256(json.dumps(known, separators=(",", ":")).encode()).digest())


def _packed(document: dict[str, Any]) -> str:
    return _text(json.dumps(document, separators=(",", ":")).encode())


def _number(value: int) -> str:
    return _text(value.to_bytes(-(-value.bit_length() // 8), "big"))


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
