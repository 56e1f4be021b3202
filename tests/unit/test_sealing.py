"""Secrets of endpoints: sealed by brokers, opened by gateways that have the key."""

from __future__ import annotations

import logging
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from dueq import InvalidRequest, limits
from dueq.config import BrokerConfig
from dueq.errors import SecretsSealed
from dueq.sealing import Keys, opened
from dueq_codecs.endpoint import (
    all_sealed,
    fault_of_endpoint,
    is_sealed,
    sealed_parts,
    sealed_text,
    secret_id,
    shown,
)

OLD, NEW = (b64encode(bytes([number]) * 32).decode() for number in (1, 2))
SECRET = "whsec_" + b64encode(bytes(range(32))).decode()
PRIVATE = "whsk_" + b64encode(bytes(range(64))).decode()


def endpoint(**changes: Any) -> dict[str, Any]:
    return {
        "name": "billing", "version": 1, "url": "https://example.com/", "timeout_ms": 15_000, "in_flight": 64,
        "headers": {"authorization": "Bearer t0p"}, "filter": {}, "targets": False, "disabled": "",
        "secrets": [[SECRET, 0], [PRIVATE, 1_800_000_000_000]],
    } | changes  # fmt: skip


def test_what_is_sealed_tells_nothing_and_opens_to_what_it_was() -> None:
    keys = Keys([OLD])
    sealed = keys.sealed(endpoint())
    assert fault_of_endpoint(sealed) is None
    text = repr(sealed)
    assert not any(each in text for each in (SECRET, SECRET[6:], PRIVATE[5:], "t0p"))
    assert shown(sealed) == shown(endpoint())
    assert keys.opened(sealed) == endpoint()
    assert keys.sealed(sealed) == sealed
    assert Keys([OLD]).sealed(endpoint()) == sealed


def test_a_longest_header_fits_sealed_too() -> None:
    longest = endpoint(headers={"a": "x" * 1023})
    assert fault_of_endpoint(longest) is None
    sealed = Keys([OLD]).sealed(longest)
    assert fault_of_endpoint(sealed) is None
    assert fault_of_endpoint(Keys([OLD]).sealed(endpoint(headers={"a": "x" * 1024}))) is not None


@pytest.mark.parametrize("value", ["1", "on", "yes"])
def test_a_short_header_is_sealed_and_opens_to_what_it_was(value: str) -> None:
    keys, short = Keys([OLD]), endpoint(headers={"x-flag": value})
    sealed = keys.sealed(short)
    assert is_sealed(sealed["headers"]["x-flag"])
    assert fault_of_endpoint(sealed) is None
    assert keys.opened(sealed) == short


def test_an_empty_header_has_nothing_to_seal() -> None:
    """Older versions of `cryptography` refuse to seal nothing: such a header ended the broker."""
    keys, empty = Keys([OLD]), endpoint(headers={"x-flag": ""})
    sealed = keys.sealed(empty)
    assert sealed["headers"] == {"x-flag": ""}
    assert all_sealed(sealed)
    assert keys.opened(sealed) == empty


def test_a_new_key_seals_and_the_old_one_still_opens() -> None:
    sealed = Keys([OLD]).sealed(endpoint())
    both = Keys([NEW, OLD])
    assert both.opened(sealed) == endpoint()
    again = both.sealed(sealed)
    assert Keys([NEW]).opened(again) == endpoint()
    with pytest.raises(SecretsSealed, match=r"sealed by key .{8}, and the keys here are .{8}"):
        Keys([OLD]).opened(again)
    # Who has only the old key leaves it as it is.
    assert Keys([OLD]).sealed(again) == again


def test_what_an_old_key_has_sealed_for_another_endpoint_stays_as_it_is() -> None:
    """A client that copied such a secret while keys were changed ended each broker that it asked."""
    copied = Keys([OLD]).sealed(endpoint()) | {"name": "shipping"}
    keys = Keys([NEW, OLD])
    assert keys.sealed(copied) == copied
    with pytest.raises(SecretsSealed, match="not sealed for it"):
        keys.opened(copied)


def test_without_a_key_it_is_said_what_is_missing() -> None:
    assert opened(endpoint(), None) == endpoint()
    with pytest.raises(SecretsSealed, match=r"'billing' are sealed by key .{8}, and this gateway has none"):
        opened(Keys([OLD]).sealed(endpoint()), None)
    with pytest.raises(SecretsSealed, match="this gateway has none"):
        opened(Keys([OLD]).sealed(endpoint(secrets=[])), None)


def test_what_is_sealed_opens_for_its_endpoint_and_secret_only() -> None:
    keys = Keys([OLD])
    sealed = keys.sealed(endpoint())
    with pytest.raises(SecretsSealed, match="was not sealed for it, or damaged"):
        keys.opened({**sealed, "name": "other"})
    key, name, data = sealed_parts(sealed["secrets"][0][0])
    assert name == secret_id(SECRET)
    for wrong in (
        sealed_text(key, "0" * 12, data),
        sealed_text(key, name, data[:-1] + bytes([data[-1] ^ 1])),
    ):
        with pytest.raises(SecretsSealed, match="was not sealed for it, or damaged"):
            keys.opened({**sealed, "secrets": [[wrong, 0]]})


@pytest.mark.parametrize(
    "text",
    [
        "sealed",
        "sealed.12345678..AA",
        "sealed.1234567.aaaaaaaaaaaa." + "A" * 32,
        "sealed.12345678.." + "A" * 4096,
        "sealed.12345678.." + "A" * 25,  # base64 of no number of bytes
        "sealed.12345678.." + "A" * 25 + "=",
        "sealed.12345678.." + "A" * 20,  # 15 bytes: shorter than the seal of nothing
    ],
)
def test_what_is_not_well_formed_is_no_sealed_secret(text: str) -> None:
    assert not is_sealed(text)
    assert fault_of_endpoint(endpoint(secrets=[[text, 0]])) is not None
    assert fault_of_endpoint(endpoint(headers={"x-flag": text[:1000]})) is None  # a value as any other


@pytest.mark.parametrize("keys", [[], ["x"], [OLD[:-4]], [OLD + "AAAA"], ["é" * 44], [OLD] * 17])
def test_what_is_no_key_is_refused_and_not_told(keys: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="a key is the base64 of 32 bytes") as refused:
        Keys(keys)
    assert not any(key in str(refused.value) for key in keys if len(key) > 8)


def test_keys_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{NEW}\n{OLD}\n")
    sealed = Keys([OLD]).sealed(endpoint())
    for keys in (Keys.load(f"{NEW},{OLD}", None), Keys.load("", file)):
        assert keys is not None
        assert keys.opened(sealed) == endpoint()
    assert Keys.load(" ", None) is None
    with pytest.raises(InvalidRequest, match="not both"):
        Keys.load(OLD, file)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        Keys.load("", tmp_path / "none")
    file.write_text("A" * (limits.SECRETS_KEY_FILE_BYTES_MAX + 1))
    with pytest.raises(InvalidRequest, match="is no file of keys"):
        Keys.load("", file)


def test_the_configuration_of_a_broker_shows_no_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig.load({"id": "b1", "data": tmp_path}, None, {"DUEQ_SECRETS_KEY": OLD})
    logging.getLogger("test").warning("%s", config)
    assert config.secrets_key == OLD
    assert OLD not in caplog.text
