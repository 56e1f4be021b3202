"""Bodies with very many faults cost little."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastapi")

from pydantic import BaseModel, ValidationError

from dueq.gateway.faces.cloud_tasks.task import TaskDocument
from dueq.gateway.faces.doq.model import NewMessage
from dueq.gateway.v1.endpoints import NewEndpoint
from dueq.gateway.v1.messages import AskedMessage
from dueq.gateway.v1.recurrences import Terms
from dueq.gateway.v1.topics import NewTopic

MANY = {f"a{number}": 1 for number in range(10_000)}


@pytest.mark.parametrize(
    ("model", "document"),
    [
        (AskedMessage, {"payload": "x", "headers": MANY}),
        (NewTopic, {"name": "t", "labels": MANY}),
        (NewEndpoint, {"topic": "t", "url": "https://example.com", "filter": MANY}),
        (NewMessage, {"priority": 1, "content": "x", "metadata": MANY}),
        (TaskDocument, {"httpRequest": {"headers": MANY}}),
        (Terms, {"at": [[]] * 900}),
    ],
)
def test_very_many_faults_are_one(model: type[BaseModel], document: Any) -> None:
    with pytest.raises(ValidationError) as found:
        model.model_validate(document)
    assert found.value.error_count() == 1


def test_faults_are_named_while_they_can_be_counted() -> None:
    with pytest.raises(ValidationError) as found:
        AskedMessage.model_validate({name: [] for name in AskedMessage.model_fields})
    assert {each["loc"][0] for each in found.value.errors()} == AskedMessage.model_fields.keys() - {"json_"}
