"""Payloads in JSON: text, JSON or base64 in; text or base64 out."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

from pydantic import BaseModel, Field

from dueq.client.core.ports.shared_body import NamedBody
from dueq.gateway import shared_bodies
from dueq.gateway.problems import Unfit
from dueq.gateway.v1.model import Answer, Asked


class Content(Asked):
    """A payload in one of three forms."""

    payload: str | None = Field(default=None, description="A text: its UTF-8 is the payload.")
    json_: Any = Field(default=None, alias="json", description="JSON: the payload is it without spaces.")
    base64: str | None = Field(default=None, description="Any bytes, in base64 with padding.")


class SharingContent(Content):
    """A payload in one of three forms, or a shared body."""

    body: str | None = Field(
        default=None,
        description="The payload is a shared body: what `POST /v1/topics/T/bodies` was answered with.",
    )


class Shown(Answer):
    """A payload that is shown: as `payload` if it is text, else as `base64`."""

    payload: str | None = None
    base64: str | None = None


def body_of(content: SharingContent, where: str) -> NamedBody | None:
    """Return the shared body that is the payload; None: the payload is of another form.

    Raises:
        Unfit: there are both, or it is not named.
    """
    forms = sorted(
        form.rstrip("_") for form in content.model_fields_set & {"payload", "json_", "base64", "body"}
    )
    if "body" not in forms:
        return None
    if len(forms) != 1:
        said = ", ".join(forms)
        raise Unfit(f"{where} has one of payload, json, base64 and body, not {said}", said, None, where)
    return shared_bodies.named(_text(content.body, f"{where}.body"), f"{where}.body")


def payload_of(content: Content, where: str = "body", optional: bool = False) -> bytes | None:
    """Return the payload.

    Raises:
        Unfit: none or several forms are given, or the one does not hold what it says.
    """
    forms = content.model_fields_set & {"payload", "json_", "base64"}
    if not forms and optional:
        return None
    if len(forms) != 1:
        said = ", ".join(sorted(form.rstrip("_") for form in forms)) or "none"
        raise Unfit(f"{where} has one of payload, json and base64, not {said}", said, None, where)
    if "base64" in forms:
        return _of_base64(content.base64, f"{where}.base64")
    try:
        if "json_" in forms:
            return json.dumps(
                content.json_, ensure_ascii=False, allow_nan=False, separators=(",", ":")
            ).encode()
        return _text(content.payload, f"{where}.payload").encode()
    except UnicodeEncodeError as error:
        raise Unfit(f"{where} is not Unicode text: {error.reason}", None, None, where) from None
    except ValueError as error:
        raise Unfit(f"{where}.json cannot be written: {error}", None, None, f"{where}.json") from None


def _of_base64(text: str | None, where: str) -> bytes:
    try:
        return b64decode(_text(text, where), validate=True)
    except ValueError as error:
        raise Unfit(f"{where} is not base64: {error}", text, None, where) from None


def _text(text: str | None, where: str) -> str:
    if text is None:
        raise Unfit(f"{where} is a text, not null", None, None, where)
    return text


def shown(payload: bytes | None) -> dict[str, str]:
    """Return a payload as fields of an answer; none, if there is no payload."""
    if payload is None:
        return {}
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(payload).decode("ascii")}


def describe(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's JSON schema, to be put where FastAPI does not look."""
    return model.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
