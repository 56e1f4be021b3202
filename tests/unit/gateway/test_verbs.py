"""Everything that the SDK does, HTTP does; or there is a reason."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from pydantic import BaseModel

from dueq.client.aio import AsyncClient, AsyncMessage, AsyncProducer
from dueq.client.aio.passes import AsyncPass
from dueq.gateway.v1 import groups, leases, messages, recurrences, topics

ROOT = Path(__file__).resolve().parents[3]
TOPIC = "/v1/topics/{topic}"

ROUTES = {
    "AsyncClient.create_topic": "POST /v1/topics",
    "AsyncClient.delete_topic": f"DELETE {TOPIC}",
    "AsyncClient.topics": "GET /v1/topics",
    "AsyncClient.describe": f"GET {TOPIC}",
    "AsyncClient.update_topic": f"PATCH {TOPIC}",
    "AsyncClient.pause": f"POST {TOPIC}/pause",
    "AsyncClient.resume": f"POST {TOPIC}/resume",
    "AsyncClient.purge": f"POST {TOPIC}/purge",
    "AsyncClient.forecast": f"GET {TOPIC}/forecast",
    "AsyncClient.status": "GET /v1/status",
    "AsyncClient.statistics": "GET /v1/statistics",
    "AsyncClient.get": f"GET {TOPIC}/messages/{{message_id}}",
    "AsyncClient.browse": f"GET {TOPIC}/messages",
    "AsyncClient.browse_pages": f"GET {TOPIC}/messages",
    "AsyncClient.leased": f"GET {TOPIC}/messages",
    "AsyncClient.trigger": f"POST {TOPIC}/messages/{{message_id}}/trigger",
    "AsyncClient.trigger_many": f"POST {TOPIC}/messages/trigger",
    "AsyncClient.begin_job": f"POST {TOPIC}/messages",
    "AsyncClient.commit_job": f"POST {TOPIC}/jobs/{{job}}/commit",
    "AsyncClient.abort_job": f"POST {TOPIC}/jobs/{{job}}/abort",
    "AsyncClient.cancel_job": f"POST {TOPIC}/jobs/{{job}}/cancel",
    "AsyncClient.job": f"GET {TOPIC}/jobs/{{job}}",
    "AsyncClient.jobs": f"GET {TOPIC}/jobs",
    "AsyncClient.count_where": f"POST {TOPIC}/where",
    "AsyncClient.cancel_where": f"POST {TOPIC}/where",
    "AsyncClient.shift_where": f"POST {TOPIC}/where",
    "AsyncClient.move_where": f"POST {TOPIC}/where",
    "AsyncClient.change_where": f"POST {TOPIC}/where",
    "AsyncClient.redrive_where": f"POST {TOPIC}/dead/redrive",
    "AsyncClient.discard_where": f"POST {TOPIC}/dead/discard",
    "AsyncClient.pass_named": f"GET {TOPIC}/passes/{{name}}",
    "AsyncPass.refresh": f"GET {TOPIC}/passes/{{name}}",
    "AsyncPass.stop": f"DELETE {TOPIC}/passes/{{name}}",
    "AsyncClient.create_recurrence": f"PUT {TOPIC}/recurrences/{{name}}",
    "AsyncClient.update_recurrence": f"PATCH {TOPIC}/recurrences/{{name}}",
    "AsyncClient.delete_recurrence": f"DELETE {TOPIC}/recurrences/{{name}}",
    "AsyncClient.pause_recurrence": f"POST {TOPIC}/recurrences/{{name}}/pause",
    "AsyncClient.resume_recurrence": f"POST {TOPIC}/recurrences/{{name}}/resume",
    "AsyncClient.trigger_recurrence": f"POST {TOPIC}/recurrences/{{name}}/trigger",
    "AsyncClient.recurrence": f"GET {TOPIC}/recurrences/{{name}}",
    "AsyncClient.recurrences": f"GET {TOPIC}/recurrences",
    "AsyncClient.set_endpoint": "PUT /v1/endpoints/{name}",
    "AsyncClient.endpoints": "GET /v1/endpoints",
    "AsyncClient.endpoint": "GET /v1/endpoints/{name}",
    "AsyncClient.rotate_endpoint": "POST /v1/endpoints/{name}/rotate",
    "AsyncClient.pause_endpoint": "POST /v1/endpoints/{name}/pause",
    "AsyncClient.resume_endpoint": "POST /v1/endpoints/{name}/resume",
    "AsyncClient.delete_endpoint": "DELETE /v1/endpoints/{name}",
    "AsyncClient.set_group": f"PUT {TOPIC}/groups/{{group}}",
    "AsyncClient.groups": f"GET {TOPIC}/groups",
    "AsyncClient.pull": f"POST {TOPIC}/receive",
    "AsyncClient.settle": f"POST {TOPIC}/ack",
    "AsyncMessage.ack": f"POST {TOPIC}/ack",
    "AsyncMessage.nack": f"POST {TOPIC}/nack",
    "AsyncMessage.release": f"POST {TOPIC}/release",
    "AsyncMessage.extend": f"POST {TOPIC}/extend",
    "AsyncProducer.schedule": f"POST {TOPIC}/messages",
    "AsyncProducer.schedule_many": f"POST {TOPIC}/messages",
    "AsyncProducer.schedule_stream": f"POST {TOPIC}/messages",
    "AsyncProducer.cancel": f"DELETE {TOPIC}/messages/{{message_id}}",
    "AsyncProducer.move": f"POST {TOPIC}/messages/{{message_id}}/move",
    "AsyncProducer.change": f"POST {TOPIC}/messages/{{message_id}}/change",
    "AsyncProducer.cancel_many": f"POST {TOPIC}/messages/cancel",
    "AsyncProducer.move_many": f"POST {TOPIC}/messages/move",
    "AsyncProducer.change_many": f"POST {TOPIC}/messages/change",
    "AsyncProducer.redrive_many": f"POST {TOPIC}/messages/redrive",
    "AsyncProducer.discard_many": f"POST {TOPIC}/messages/discard",
}
REASONS = {
    "AsyncClient.close": "HTTP has no connection to a mesh that its caller closes",
    "AsyncClient.producer": "a producer has no state in the mesh",
    "AsyncClient.consumer": "its session lasts as long as a connection; by HTTP leases are detached",
    "AsyncProducer.body": "many requests with one body are for bulk loads, which the SDK makes",
    "AsyncProducer.close_body": "as `body`",
    "AsyncProducer.close": "a producer has no state in the mesh",
    "AsyncPass.wait": "a caller asks how far it is",
}


def verbs() -> set[str]:
    """The public methods of the SDK."""
    return {
        f"{kind.__name__}.{name}"
        for kind in (AsyncClient, AsyncProducer, AsyncPass, AsyncMessage)
        for name, found in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_every_verb_of_the_sdk_has_a_route_or_a_reason() -> None:
    assert verbs() == set(ROUTES) | set(REASONS)


BODIES: list[tuple[Callable[..., Any], type[BaseModel], set[str]]] = [
    (AsyncClient.create_topic, topics.NewTopic, set()),
    (AsyncClient.update_topic, topics.TopicChanges, {"if_version"}),
    (AsyncClient.set_group, groups.GroupChanges, {"group"}),
    (AsyncClient.create_recurrence, recurrences.Terms, {"name"}),
    (AsyncClient.update_recurrence, recurrences.Terms, {"name"}),
    (AsyncClient.pull, leases.Wanted, set()),
    (AsyncProducer.schedule, messages.AskedMessage, {"on_duplicate"}),
]


@pytest.mark.parametrize(("verb", "model", "elsewhere"), BODIES)
def test_what_a_verb_takes_its_body_has(
    verb: Callable[..., Any], model: type[BaseModel], elsewhere: set[str]
) -> None:
    """Members of the path or the query are not in the body."""
    parameters = set(inspect.signature(verb).parameters) - {"self", "topic", "timeout"} - elsewhere
    assert parameters <= set(model.model_fields)


def test_the_routes_are_there() -> None:
    paths = json.loads((ROOT / "docs/reference/openapi.json").read_text(encoding="utf-8"))["paths"]
    there = {f"{method.upper()} {path}" for path, operations in paths.items() for method in operations}
    assert not set(ROUTES.values()) - there
