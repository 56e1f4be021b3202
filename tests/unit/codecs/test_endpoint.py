"""The document of an endpoint: what may be said, and what is shown of it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from dueq import limits
from dueq_codecs.endpoint import fault_of_endpoint, fault_of_url, key_of, sendable, shown
from dueq_codecs.topic_settings import AS_CREATED, SettingsRefused, decode_settings

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
WHOLE: dict[str, Any] = {
    "name": "billing", "version": 1, "url": "https://example.com/hook", "timeout_ms": 15_000, "in_flight": 64,
    "headers": {"authorization": "Bearer of bad news"}, "filter": {"kind": ["invoice", "reminder"]}, "disabled": "",
    "targets": False,
    "secrets": [[SECRET, 0]],
}  # fmt: skip


def test_a_whole_document_and_what_is_shown_of_it_are_well_formed() -> None:
    assert fault_of_endpoint(WHOLE) is None
    assert fault_of_endpoint(shown(WHOLE)) is None
    assert shown(shown(WHOLE)) == shown(WHOLE)
    assert fault_of_endpoint(None) is None


def test_logs_and_answers_have_no_secret_and_no_value_of_a_header() -> None:
    settings = AS_CREATED.changed({"endpoint": WHOLE}, "a" * 32)
    document = settings.encode()
    assert SECRET not in document
    assert "bad news" not in document
    assert decode_settings(document).endpoint == shown(WHOLE)
    assert settings.fields()["endpoint"] == WHOLE


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "a b"}, "the name of an endpoint has 1 to 255"),
        ({"name": ".."}, "and is not . or .., unlike '..'"),
        ({"timeout_ms": 99}, "timeout_ms of endpoint is 100 to 1800000 ms, not 99"),
        ({"targets": 1}, "targets of endpoint is true or false, not 1"),
        ({"in_flight": 0}, "in_flight of endpoint is 1 to 1024 requests, not 0"),
        ({"headers": {"Webhook-Id": "1"}}, "the header Webhook-Id is not to be set"),
        ({"headers": {"a b": "1"}}, "'a b' is no name of an HTTP header"),
        ({"headers": {"a": "1\r\nhost: b"}}, "the value of the header a is not printable"),
        ({"headers": {"a": "1\n"}}, "the value of the header a is not printable"),
        ({"headers": {"a": "1" * 1024}}, "headers have at most 1024 bytes, not 1025"),
        ({"filter": {"kind": []}}, "has a list of values for the header 'kind'"),
        ({"filter": {"kind": ["x" * 600]}}, "filter of endpoint has at most 512 bytes"),
        ({"secrets": []}, "an endpoint has 1 to 4 secrets"),
        ({"secrets": [5]}, "a secret of an endpoint is itself, and until when"),
        ({"secrets": [{"0": SECRET, "1": 0}]}, "a secret of an endpoint is itself, and until when"),
        ({"secrets": [[SECRET]]}, "a secret of an endpoint is itself, and until when"),
        ({"secrets": [[SECRET, "0"]]}, "a secret of an endpoint is itself, and until when"),
        ({"secrets": [[SECRET, -1]]}, "a secret of an endpoint is itself, and until when"),
        ({"secrets": [["whsec_c2hvcnQ=", 0]]}, "24 to 64 bytes, not of 5"),
        ({"secrets": [["whsk_c2hvcnQ=", 0]]}, "a private key is whsk_ and the base64 of 64 bytes"),
        ({"secrets": [["tell nobody", 0]]}, "a secret is whsec_ and the base64"),
        ({"colour": "red"}, "missing or unknown are colour"),
    ],
)
def test_a_bad_part_is_refused_by_name(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsRefused, match=text) as refused:
        AS_CREATED.changed({"endpoint": {**WHOLE, **changes}}, "a" * 32)
    assert "tell nobody" not in str(refused.value)


def test_what_is_shown_cannot_be_stored_as_a_change() -> None:
    with pytest.raises(SettingsRefused, match="1 to 4 secrets"):
        AS_CREATED.changed({"endpoint": shown(WHOLE)}, "a" * 32)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/", "example.com", "https://", "https://user:pass@example.com/", "https://example.com/#x",
        "https://example.com:0/", "https://example.com:70000/", "https://exa mple.com/", "https://example.com\\@a.b/",
        "https://exämple.com/", "https://example.com/" + "x" * 1024, "https://[::1/", 7, "",
    ],
)  # fmt: skip
def test_a_bad_url_is_refused(url: object) -> None:
    assert fault_of_url(url) is not None


def test_the_longest_document_fits_into_a_change() -> None:
    long = {
        **WHOLE, "name": "n" * 255, "url": "https://example.com/" + "x" * 1004,
        "headers": {"h" * 24: "v" * 1000}, "secrets": [["whsec_" + "A" * 84 + "AA==", 1 << 47]] * 4,
        "filter": {"f": ["x" * 480]}, "disabled": "d" * 200,
    }  # fmt: skip
    backoff = {"first_ms": 5000, "factor": 4.0, "longest_ms": 21_600_000, "jitter": 0.2, "doublings": None}
    settings = AS_CREATED.changed({"endpoint": long, "backoff": backoff}, "a" * 32)
    assert len(settings.encode()) < limits.SETTINGS_BYTES_MAX


def test_a_key_is_the_bytes_behind_the_prefix() -> None:
    assert key_of(SECRET) == b"0123456789abcdef0123456789abcdef"


def test_only_plain_headers_of_messages_can_be_sent() -> None:
    assert sendable("x-tenant")
    for name in (
        "host",
        "Content-Length",
        "webhook-id",
        "dueq-due",
        "dueq_target",
        "a b",
        "",
        "transfer-encoding",
        "é",
        # A receiver by CGI or WSGI sees these as it sees those with hyphens.
        "webhook_id",
        "Webhook_Signature",
        "webhook.timestamp",
        "dueq.due",
        "content_length",
    ):
        assert not sendable(name)


def test_of_a_private_key_the_public_one_is_shown() -> None:
    private = "whsk_" + b64encode(b"s" * 32 + b"p" * 32).decode()
    assert fault_of_endpoint({**WHOLE, "secrets": [[private, 0]]}) is None
    [[name, _]] = shown({**WHOLE, "secrets": [[private, 0]]})["secret_ids"]
    assert name == "whpk_" + b64encode(b"p" * 32).decode()


def test_headers_whose_names_only_begin_like_reserved_ones_are_sent() -> None:
    headers = dict.fromkeys(("Test", "Hostname", "Expect-CT", "Connection-Id", "Upgraded", "webhook"), "1")
    assert fault_of_endpoint({**WHOLE, "headers": headers}) is None
