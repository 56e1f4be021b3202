"""A client of a gateway that holds every answer against the description of the API."""

from __future__ import annotations

import json
import re
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator

JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}


class Caller:
    """Sends requests to one gateway."""

    def __init__(self, url: str) -> None:
        self.url, self.address = url, urlsplit(url).netloc
        self._described = Description(self._answer("GET", "/openapi.json", None, {})[2])

    def __call__(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        """Return (status, document); the answer is as the API's description says."""
        encoded = body if isinstance(body, bytes | None) else json.dumps(body)
        sent = headers if headers is not None else JSON if body is not None else {}
        status, kind, document, _ = self._answer(method, path, encoded, sent, True)
        self._described.check(method, path, status, kind, document)
        return status, document

    def headers(self, method: str, path: str) -> dict[str, str]:
        """Return the headers of an answer, their names in small letters."""
        found: dict[str, str] = self._answer(method, path, None, {}, True)[3]
        return found

    def _answer(self, method: str, path: str, body: Any, headers: dict[str, str], whole: bool = False) -> Any:
        with closing(HTTPConnection(self.address, timeout=60)) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        kind = answer.headers.get_content_type()
        if kind == "application/x-ndjson":
            document: Any = [json.loads(line) for line in text.splitlines()]
        else:
            document = json.loads(text) if text else None
        return answer.status, kind, document, {name.lower(): value for name, value in answer.getheaders()}


class Description:
    """The OpenAPI document of a gateway."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._schemas = closed({"$defs": document["components"]["schemas"]})["$defs"]
        by_places = sorted(document["paths"].items(), key=lambda each: str(each[0]).count("{"))
        self._paths = [(_pattern(path), operations) for path, operations in by_places]

    def check(self, method: str, path: str, status: int, kind: str, body: Any) -> None:
        """Fail unless an answer is one that is described."""
        found = [
            operations for pattern, operations in self._paths if pattern.fullmatch(path.partition("?")[0])
        ]
        operation = next((each[method.lower()] for each in found if method.lower() in each), None)
        if operation is None:
            assert kind == "application/problem+json", f"{method} {path} is not described"
            self._hold({"$ref": "#/components/schemas/Problem"}, body)
            return
        answers = operation["responses"]
        described = answers.get(str(status), answers.get("default") if status >= 400 else None)
        assert described is not None, f"{method} {path}: {status} is not described: {body}"
        if "content" not in described:
            assert body is None, f"{method} {path}: {status} has a body"
            return
        assert kind in described["content"], f"{method} {path}: {status} has a body of type {kind}"
        if kind.endswith("json") and kind != "application/x-ndjson":
            self._hold(described["content"][kind]["schema"], body)

    def _hold(self, schema: dict[str, Any], body: Any) -> None:
        text = json.dumps(closed(schema)).replace("#/components/schemas/", "#/$defs/")
        definitions = json.loads(json.dumps(self._schemas).replace("#/components/schemas/", "#/$defs/"))
        Draft202012Validator({**json.loads(text), "$defs": definitions}).validate(body)


def _pattern(path: str) -> re.Pattern[str]:
    """A path with places in braces; names of groups, jobs, passes and recurrences, and keys, may have slashes."""
    parts = re.split(r"\{(\w+)\}", path)
    long = bool({"group", "job", "key"} & set(parts)) or "/passes/" in path or "/recurrences/" in path
    places = ["(.+)" if long and place > 1 else "([^/]+)" for place in range(1, len(parts), 2)]
    return re.compile(
        "".join(re.escape(text) + place for text, place in zip(parts[::2], [*places, ""], strict=True))
    )


def closed(schema: Any) -> Any:
    """A schema whose objects have no other fields than those that it names."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(value) for name, value in schema.items()}
    if isinstance(found.get("properties"), dict) and "additionalProperties" not in found:
        found["additionalProperties"] = False
    return found
