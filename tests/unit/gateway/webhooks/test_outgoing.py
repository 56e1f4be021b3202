"""What a request says, and that receivers believe it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("standardwebhooks")

from standardwebhooks import Webhook, WebhookVerificationError

from dueq.client.endpoints import new_secret
from dueq.gateway.webhooks.outgoing import headers_of, passes

NOW_MS = int(time.time() * 1000)


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
    return {"secrets": list(secrets), "headers": headers}


def test_a_receiver_with_the_usual_package_believes_it() -> None:
    secret, message = new_secret(), Message()
    headers = dict(headers_of(message, endpoint((secret, 0)), NOW_MS))
    assert Webhook(secret).verify(message.payload, headers) == {"a": "é"}
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(b'{"a": 2}', headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(message.payload, headers)


def test_while_a_secret_is_rotated_both_verify() -> None:
    new, old, ended = new_secret(), new_secret(), new_secret()
    used = endpoint((new, 0), (old, NOW_MS + 1), (ended, NOW_MS))
    message = Message()
    headers = dict(headers_of(message, used, NOW_MS))
    assert len(headers["webhook-signature"].split()) == 2
    for secret in (new, old):
        assert Webhook(secret).verify(message.payload, headers) == json.loads(message.payload)
    with pytest.raises(WebhookVerificationError):
        Webhook(ended).verify(message.payload, headers)


def test_it_says_which_message_it_is() -> None:
    headers = headers_of(Message(key="order 7%é"), endpoint((new_secret(), 0)), NOW_MS)
    assert {name: headers[name] for name in headers if name.startswith("dueq-")} == {
        "dueq-topic": "bills", "dueq-due": "5", "dueq-released-at": "6", "dueq-attempt": "2",
        "dueq-key": "order 7%25%C3%A9",
    }  # fmt: skip
    assert headers["webhook-id"] == Message().id
    assert "." not in headers["webhook-id"]
    assert headers["content-type"] == "application/octet-stream"


def test_headers_of_the_message_go_along_but_set_nothing_of_the_gateway() -> None:
    own = {
        "content_type": "text/csv", "x-tenant": "acme\r\nhost: evil", "Host": "evil", "webhook-id": "evil",
        "DUEQ-due": "9", "transfer-encoding": "chunked", "a b": "no name", "X-Tenant-2": "é",
    }  # fmt: skip
    headers = headers_of(Message(headers=own), endpoint((new_secret(), 0), **{"x-tenant-2": "set"}), NOW_MS)
    assert headers["content-type"] == "text/csv"
    assert headers["x-tenant"] == "acme%0D%0Ahost: evil"
    assert headers.getall("x-tenant-2") == ["set"]
    assert headers["webhook-id"] == Message().id
    assert headers["dueq-due"] == "5"
    assert not {"host", "transfer-encoding", "a b"} & {name.lower() for name in headers}


def test_a_filter_wants_one_of_the_values_of_each_header() -> None:
    wanted = {"kind": ["invoice", "reminder"], "tenant": ["acme"]}
    assert passes(Message(headers={"kind": "reminder", "tenant": "acme"}), wanted)
    assert not passes(Message(headers={"kind": "reminder"}), wanted)
    assert not passes(Message(headers={"kind": "other", "tenant": "acme"}), wanted)
    assert passes(Message(), {})
