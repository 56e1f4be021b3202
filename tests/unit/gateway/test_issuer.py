"""Tokens for the requests of tasks: whoever fetches the issuer's keys believes them, and nobody else's."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("google.auth")

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from google.auth import jwt

from dueq.errors import InvalidRequest
from dueq.gateway.faces.cloud_tasks.issuer import Identity, Issuer

URL, AT = "https://tasks.example", "https://shop.example/pay"


def new_key(bits: int = 2048) -> bytes:
    return pem(rsa.generate_private_key(65537, bits))


def pem(key: Any) -> bytes:
    found: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return found


def believed(token: str, keys: dict[str, Any], audience: str) -> dict[str, Any]:
    """What a receiver reads that has fetched the keys, by Google's own package."""
    certs = {each["kid"]: public(each) for each in keys["keys"]}
    said: dict[str, Any] = jwt.decode(token, certs, audience=audience)
    return said


def public(key: dict[str, str]) -> bytes:
    e, n = (int.from_bytes(urlsafe_b64decode(key[name] + "==")) for name in ("e", "n"))
    made = rsa.RSAPublicNumbers(e, n).public_key()
    return made.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture(scope="module")
def key() -> bytes:
    return new_key()


def test_a_token_says_who_sends_to_whom(key: bytes) -> None:
    issuer = Issuer(URL + "/", key)
    said = believed(issuer.token(Identity("a@b", ""), AT), issuer.keys(), AT)
    assert {name: said[name] for name in ("iss", "email", "email_verified", "sub")} == {
        "iss": URL,
        "email": "a@b",
        "email_verified": True,
        "sub": "a@b",
    }
    assert said["exp"] - said["iat"] == 3600
    for_another = issuer.token(Identity("a@b", "other"), AT)
    assert believed(for_another, issuer.keys(), "other")["aud"] == "other"
    with pytest.raises(ValueError, match="audience"):
        believed(for_another, issuer.keys(), AT)


def test_old_keys_are_believed_while_they_are_changed(key: bytes) -> None:
    old, both = Issuer(URL, key), Issuer(URL, new_key() + key)
    assert believed(old.token(Identity("a@b", ""), AT), both.keys(), AT)
    with pytest.raises(ValueError, match=r"(?i)certificate|key"):
        believed(both.token(Identity("a@b", ""), AT), old.keys(), AT)


def test_nothing_private_is_published(key: bytes) -> None:
    assert {name for each in Issuer(URL, key).keys()["keys"] for name in each} == {
        "kty", "alg", "use", "n", "e", "kid",
    }  # fmt: skip
    assert "PRIVATE" not in json.dumps(Issuer(URL, key).configuration())


@pytest.mark.parametrize(
    "keys", [b"", b"no key", new_key(1024), pem(ec.generate_private_key(ec.SECP256R1()))]
)
def test_what_is_no_key_is_refused(keys: bytes) -> None:
    with pytest.raises(InvalidRequest, match="RSA private keys of at least 2048 bits"):
        Issuer(URL, keys)


def test_an_issuer_is_given_whole_or_not_at_all(key: bytes, tmp_path: Path) -> None:
    assert Issuer.load("", None) is None
    file = tmp_path / "key.pem"
    file.write_bytes(key)
    assert Issuer.load(URL, file) is not None
    for url, given in ((URL, None), ("", file), (URL, tmp_path / "none"), ("tasks.example", file)):
        with pytest.raises(InvalidRequest):
            Issuer.load(url, given)
