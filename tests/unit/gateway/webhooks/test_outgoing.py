"""What a request says, and that receivers believe it."""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("standardwebhooks")

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from multidict import CIMultiDict
from standardwebhooks import Webhook, WebhookVerificationError

from dueq import Target
from dueq.client.endpoints import new_secret
from dueq.gateway.webhooks.outgoing import Request, passes, request_of
from dueq_codecs.target import TargetRefused

URL = "https://example.com/hook"


def now_ms() -> int:
    """The present: a signature is believed for five minutes."""
    return int(time.time() * 1000)


@dataclass
class Message:
    id: str = "0000018bcfe5680000000000AB"
    payload: bytes = b'{"a": "\xc3\xa9"}'
    key: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    topic: str = "bills"
    due: int = 5
    released_at: int = 6
    attempt: int = 2


def endpoint(*secrets: tuple[str, int], **headers: str) -> dict[str, Any]:
    return {
        "name": "billing", "url": URL, "timeout_ms": 15_000, "targets": False, "secrets": list(secrets),
        "headers": headers,
    }  # fmt: skip


def headers_of(message: Message, used: dict[str, Any], now_ms: int) -> CIMultiDict[str]:
    return request_of(message, used, now_ms).headers


def test_a_receiver_with_the_usual_package_believes_it() -> None:
    secret, message = new_secret(), Message()
    headers = dict(headers_of(message, endpoint((secret, 0)), now_ms()))
    assert Webhook(secret).verify(message.payload, headers) == {"a": "é"}
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(b'{"a": 2}', headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(message.payload, headers)


def test_while_a_secret_is_rotated_both_verify() -> None:
    new, old, ended = new_secret(), new_secret(), new_secret()
    at_ms = now_ms()
    used = endpoint((new, 0), (old, at_ms + 1), (ended, at_ms))
    message = Message()
    headers = dict(headers_of(message, used, at_ms))
    assert len(headers["webhook-signature"].split()) == 2
    for secret in (new, old):
        assert Webhook(secret).verify(message.payload, headers) == json.loads(message.payload)
    with pytest.raises(WebhookVerificationError):
        Webhook(ended).verify(message.payload, headers)


def test_it_says_which_message_it_is() -> None:
    headers = headers_of(Message(key="order 7%é"), endpoint((new_secret(), 0)), now_ms())
    assert {name: headers[name] for name in headers if name.startswith("dueq-")} == {
        "dueq-topic": "bills", "dueq-due": "5", "dueq-released-at": "6", "dueq-attempt": "2",
        "dueq-key": "order 7%25%C3%A9",
    }  # fmt: skip
    assert headers["webhook-id"] == Message().id
    assert "." not in headers["webhook-id"]
    assert headers["accept-encoding"] == "identity"
    assert headers["content-type"] == "application/octet-stream"


def test_headers_of_the_message_go_along_but_set_nothing_of_the_gateway() -> None:
    own = {
        "content_type": "text/csv", "x-tenant": "acme\r\nhost: evil", "Host": "evil", "webhook-id": "evil",
        "DUEQ-due": "9", "transfer-encoding": "chunked", "a b": "no name", "X-Tenant-2": "é",
    }  # fmt: skip
    headers = headers_of(Message(headers=own), endpoint((new_secret(), 0), **{"x-tenant-2": "set"}), now_ms())
    assert headers["content-type"] == "text/csv"
    assert headers["x-tenant"] == "acme%0D%0Ahost: evil"
    assert headers.getall("x-tenant-2") == ["set"]
    assert headers["webhook-id"] == Message().id
    assert headers["dueq-due"] == "5"
    assert not {"host", "transfer-encoding", "a b"} & {name.lower() for name in headers}


def test_nothing_goes_along_that_a_receiver_could_take_for_what_the_gateway_says() -> None:
    """By CGI and WSGI names come in capitals and with underscores: `webhook_id` replaced or followed `webhook-id`."""
    own = {"webhook_id": "evil", "dueq.attempt": "9", "User_Agent": "evil", "accept_encoding": "gzip"}
    used = endpoint((new_secret(), 0), webhook_timestamp="1", x_tenant="acme") | {"targets": True}
    headers = headers_of(Message(headers=own), used, now_ms())
    assert headers["x_tenant"] == "acme"
    payload, marked = Target("https://example.org/", headers={"webhook_signature": "v1,evil"}).around(
        b"x", own
    )
    for found in (headers, headers_of(Message(payload=payload, headers=marked), used, now_ms())):
        seen = [name.upper().replace("-", "_").replace(".", "_") for name in found]
        assert len(seen) == len(set(seen))
        assert "evil" not in found.values()


def test_a_filter_wants_one_of_the_values_of_each_header() -> None:
    wanted = {"kind": ["invoice", "reminder"], "tenant": ["acme"]}
    assert passes(Message(headers={"kind": "reminder", "tenant": "acme"}), wanted)
    assert not passes(Message(headers={"kind": "reminder"}), wanted)
    assert not passes(Message(headers={"kind": "other", "tenant": "acme"}), wanted)
    assert passes(Message(), {})


def test_a_message_goes_to_the_endpoint_by_a_post() -> None:
    message = Message()
    request = request_of(message, endpoint((new_secret(), 0)), now_ms())
    assert request == Request("POST", URL, request.headers, message.payload, 15.0)


def test_a_message_with_a_target_goes_there_without_the_headers_of_the_endpoint() -> None:
    secret = new_secret()
    target = Target(
        "https://example.org/task", "PUT", {"x-a": "1", "content-type": "text/plain"}, deadline=60.0
    )
    payload, headers = target.around(b'{"task": 1}', {"x-own": "2"})
    used = endpoint((secret, 0), authorization="Bearer secret") | {"targets": True}
    request = request_of(Message(payload=payload, headers=headers), used, now_ms())
    assert (request.method, request.url, request.timeout_s) == ("PUT", "https://example.org/task", 60.0)
    assert request.body == b'{"task": 1}'
    assert (request.headers["x-a"], request.headers["x-own"]) == ("1", "2")
    assert request.headers.getall("content-type") == ["text/plain"]
    assert "authorization" not in request.headers
    assert "dueq_target" not in request.headers
    assert Webhook(secret).verify(request.body, dict(request.headers)) == {"task": 1}


def test_a_target_needs_an_endpoint_that_allows_it() -> None:
    payload, headers = Target("https://example.org/").around(b"")
    with pytest.raises(TargetRefused, match="the endpoint 'billing' allows no targets"):
        request_of(Message(payload=payload, headers=headers), endpoint((new_secret(), 0)), now_ms())


@pytest.mark.parametrize(
    ("said", "payload", "text"),
    [
        ("5", b"{}", "is the length of a target in the payload, not '5'"),
        ("-1", b"{}", "not '-1'"),
        ("2", b"{}", "a target has deadline_ms, headers, method, url"),
        ("2", b"{{", "a target is JSON"),
        ("1", b"\xff", "a target is JSON"),
        ("90000", b"[" * 90_000, "a target is JSON"),
        ("99000", b"[" * 99_000, "not '99000'"),
    ],
)
def test_a_target_that_is_not_well_formed_is_refused(said: str, payload: bytes, text: str) -> None:
    used = endpoint((new_secret(), 0)) | {"targets": True}
    with pytest.raises(TargetRefused, match=text):
        request_of(Message(payload=payload, headers={"dueq_target": said}), used, now_ms())


def test_a_private_key_signs_for_who_has_the_public_one() -> None:
    key = Ed25519PrivateKey.generate()
    public = key.public_key()
    secret = "whsk_" + b64encode(key.private_bytes_raw() + public.public_bytes_raw()).decode()
    message, shared = Message(), new_secret()
    headers = headers_of(message, endpoint((secret, 0), (shared, 0)), now_ms())
    first, second = headers["webhook-signature"].split()
    version, _, signature = first.partition(",")
    assert (version, second[:3]) == ("v1a", "v1,")
    signed = f"{message.id}.{headers['webhook-timestamp']}.".encode() + message.payload
    public.verify(b64decode(signature), signed)
    with pytest.raises(InvalidSignature):
        public.verify(b64decode(signature), signed + b" ")
    assert Webhook(shared).verify(message.payload, dict(headers)) == {"a": "é"}
