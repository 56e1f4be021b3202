"""Requests that schemathesis makes of the API's description: whatever is asked, the answer is one that is described.

`HTTP_EXAMPLES` says how many requests each operation gets: with 2,000 that takes about an hour. `pytest -s` shows how
many were made, by status.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("schemathesis")

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import checks
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi import checks as openapi

from dueq.local import LocalMesh
from tests.integration.http_caller import Caller

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = int(os.environ.get("HTTP_EXAMPLES", "4"))
TOPIC = "fuzz"
CHECKS = [
    checks.not_a_server_error,
    openapi.status_code_conformance,
    openapi.content_type_conformance,
    openapi.response_schema_conformance,
]


def described() -> dict[str, Any]:
    """The description of `/v1`, without what never ends."""
    document: dict[str, Any] = json.loads((ROOT / "docs/reference/openapi.json").read_text(encoding="utf-8"))
    document["paths"] = {
        path: operations
        for path, operations in document["paths"].items()
        if path.startswith("/v1/") and not path.endswith("/stream")
    }
    return document


@schemathesis.serializer("application/x-ndjson")
def lines(context: object, value: Any) -> bytes:
    """The description says of NDJSON that it is a text."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def configured() -> SchemathesisConfig:
    """Every value at its bounds, too, if there is time for that."""
    found = SchemathesisConfig()
    found.projects.default.phases.coverage.enabled = EXAMPLES >= 100
    return found


_PATIENCE_S = 60
"""More than the gateway has: a mesh that is over a limit is asked again until then."""
answered: Counter[int] = Counter()
"""Answers so far, by status."""
schema = schemathesis.openapi.from_dict(described(), config=configured())


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[str]:
    """The address of a gateway whose mesh nobody else needs."""
    with LocalMesh(brokers=1, zookeeper=False, store="memory", gateway=True) as found:
        url = found.description()["gateway"]["url"]
        Caller(url)("POST", "/v1/topics", {"name": TOPIC})
        yield url
        by_status = ", ".join(f"{count:,} of {status}" for status, count in sorted(answered.items()))
        print(f"\n{answered.total():,} requests: {by_status}")


@schema.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=EXAMPLES < 100
)
def test_every_answer_is_described(fuzzed: str, case: Any) -> None:
    soften(case)
    answer = case.call(base_url=fuzzed, timeout=_PATIENCE_S)
    answered[answer.status_code] += 1
    case.validate_response(answer, checks=CHECKS)


def soften(case: Any) -> None:
    """Most requests are about a topic that is there; none waits, nor makes a thousand partitions."""
    if "topic" in (case.path_parameters or {}) and case.method != "DELETE":
        case.path_parameters["topic"] = TOPIC
    body = case.body
    if isinstance(body, dict):
        if "wait" in body and case.path.endswith("/receive"):
            body["wait"] = 0
        if isinstance(body.get("partitions"), int) and body["partitions"] > 2:
            body["partitions"] = 2
