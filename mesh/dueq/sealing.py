"""Sealing: secrets of endpoints, as the coordinator keeps them where brokers have a key.

    set_endpoint ─► broker, with a key: sealed ─► coordinator, brokers, clients: sealed ─► gateway, with the key: opened

AES-SIV (RFC 5297) needs no nonce, so sealing is a function of key, endpoint and text. What is sealed for one endpoint
opens for no other. The first key seals; those after it still open what was sealed before, while keys are changed.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from dueq import limits
from dueq.errors import InvalidRequest, SecretsSealed
from dueq_codecs.endpoint import is_sealed, sealed_parts, sealed_text, secret_id

NO_KEY: Final = (
    "secrets of endpoints are stored in clear: whoever may read the coordinator, and any client of the mesh, can read "
    "them; give brokers and gateways a key (DUEQ_SECRETS_KEY_FILE or DUEQ_SECRETS_KEY), then run dueq endpoint seal"
)
"""What is said where there is no key."""
_KEY_BYTES: Final = 32
_WORDS: Final = (
    "a key is the base64 of 32 bytes, such as `openssl rand -base64 32` makes; several, one a line"
)


class Keys:
    """The keys of a broker or a gateway; the first one seals.

    Raises:
        InvalidRequest: one of them is no key, or there are too many; the text does not tell them.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        keys = [_key(text) for text in texts]
        if not 1 <= len(keys) <= limits.SECRETS_KEYS_MAX:
            raise InvalidRequest(f"{_WORDS}: 1 to {limits.SECRETS_KEYS_MAX}, not {len(keys)}")
        cipher = _cipher()
        self._newest = _name(keys[0])
        self._ciphers = {
            _name(key): cipher(hashlib.sha512(b"dueq endpoint secrets\0" + key).digest()) for key in keys
        }

    @classmethod
    def load(cls, text: str, file: Path | None) -> Self | None:
        """Return the keys of a text, or of a file; None: neither is given.

        Raises:
            InvalidRequest: both are given, the file cannot be read, or what is given is no key.
        """
        if file is None:
            return cls(text.replace(",", " ").split()) if text.strip() else None
        if text.strip():
            raise InvalidRequest("give secrets_key or secrets_key_file, not both")
        try:
            with file.open("rb") as opened:
                found = opened.read(limits.SECRETS_KEY_FILE_BYTES_MAX + 1)
        except OSError as error:
            raise InvalidRequest(f"the file of secrets_key_file cannot be read: {error}") from error
        if len(found) > limits.SECRETS_KEY_FILE_BYTES_MAX:
            raise InvalidRequest(
                f"{file} has more than {limits.SECRETS_KEY_FILE_BYTES_MAX} bytes: it is no file of keys"
            )
        return cls(found.decode(errors="replace").split())

    def sealed(self, endpoint: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document of an endpoint with its secrets and headers sealed by the newest key.

        What is sealed by a key that is not known, or for another endpoint, stays as it is.
        """
        return _changed(endpoint, lambda text, name: self._seal(text, name, endpoint["name"]))

    def opened(self, endpoint: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document of an endpoint as it was before it was sealed.

        Raises:
            SecretsSealed: by a key that is not known, or not for this endpoint.
        """
        return _changed(endpoint, lambda text, name: self._open(text, endpoint["name"]))

    def _seal(self, text: str, name: str, endpoint: str) -> str:
        if not text:  # of a header; older versions of `cryptography` refuse to seal nothing
            return text
        if is_sealed(text):
            if sealed_parts(text)[0] == self._newest or sealed_parts(text)[0] not in self._ciphers:
                return text
            try:
                text = self._open(text, endpoint)
            except SecretsSealed:
                return text
        data = self._ciphers[self._newest].encrypt(text.encode(), [endpoint.encode(), name.encode()])
        return sealed_text(self._newest, name, data)

    def _open(self, text: str, endpoint: str) -> str:
        if not is_sealed(text):
            return text
        key, name, data = sealed_parts(text)
        cipher = self._ciphers.get(key)
        if cipher is None:
            raise SecretsSealed(
                f"secrets of endpoint {endpoint!r} are sealed by key {key}, and the keys here are "
                f"{', '.join(self._ciphers)}"
            )
        try:
            found: bytes = cipher.decrypt(data, [endpoint.encode(), name.encode()])
        except Exception as error:
            raise SecretsSealed(
                f"a secret of endpoint {endpoint!r} was not sealed for it, or damaged"
            ) from error
        return found.decode()


def opened(endpoint: Mapping[str, Any], keys: Keys | None) -> Mapping[str, Any]:
    """Return the document of an endpoint with secrets that can be used.

    Raises:
        SecretsSealed: they are sealed, and the key is not here.
    """
    if keys is not None:
        return keys.opened(endpoint)
    sealed = [text for text in _texts(endpoint) if is_sealed(text)]
    if sealed:
        raise SecretsSealed(
            f"secrets of endpoint {endpoint['name']!r} are sealed by key {sealed_parts(sealed[0])[0]}, and this "
            "gateway has none: give it the brokers' DUEQ_SECRETS_KEY or DUEQ_SECRETS_KEY_FILE"
        )
    return endpoint


def _texts(endpoint: Mapping[str, Any]) -> list[str]:
    return [*(secret for secret, _ in endpoint["secrets"]), *endpoint["headers"].values()]


def _changed(endpoint: Mapping[str, Any], change: Callable[[str, str], str]) -> dict[str, Any]:
    """Return a document with each secret and each value of a header changed, given its text and what names it."""
    return {
        **endpoint,
        "secrets": [[change(secret, secret_id(secret)), until] for secret, until in endpoint["secrets"]],
        "headers": {name: change(value, "") for name, value in endpoint["headers"].items()},
    }


def _key(text: str) -> bytes:
    try:
        key = b64decode(text, validate=True) if re.fullmatch(r"[A-Za-z0-9+/=]+", text) else b""
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise InvalidRequest(f"{_WORDS}; one here is not, of {len(text)} characters")
    return key


def _name(key: bytes) -> str:
    """Return what names a key and does not tell it."""
    return hashlib.sha256(b"dueq key id\0" + key).hexdigest()[:8]


def _cipher() -> Callable[[bytes], Any]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV
    except ImportError as error:
        raise InvalidRequest(
            f"sealing secrets needs the package {error.name}: pip install 'dueq[sealing]'"
        ) from error
    return AESSIV
