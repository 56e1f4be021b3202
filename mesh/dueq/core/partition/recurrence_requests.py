"""Is this request about a recurrence well formed and within its limits? Everything that can be said without state."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from typing import Any, NamedTuple

from dueq.core.partition.requests import Refusal, invalid
from dueq.core.ports.membership import Topic
from dueq.core.state.order import order_of
from dueq.core.state.recurrence_table import ACTION, ACTIONS, BODY, CREATE, PAYLOAD, UPDATE
from dueq.errors import InvalidRequest
from dueq.recurring.checking import check_name, check_payload, check_terms
from dueq.recurring.terms import packed, terms_of, unpacked
from dueq_codecs.messages import ChangeRequest, Code
from dueq_codecs.topic_settings import TopicSettings


class Wish(NamedTuple):
    """A client's wish about a recurrence.

    Attributes:
        name: of the recurrence.
        action: one of `ACTIONS`.
        terms: what it says from now on (create), or what of it changes (update).
        payload: of its messages from now on; None: as before.
    """

    name: str
    action: str
    terms: dict[str, Any]
    payload: bytes | None


def wish_of(request: ChangeRequest) -> Wish:
    """Return what a request asks for.

    Raises:
        InvalidRequest: it is not well formed.
    """
    check_name(request.name)
    terms = unpacked(request.document)
    action = terms.pop(ACTION, "")
    if action not in ACTIONS:
        raise InvalidRequest(
            f"what is done to a recurrence is one of {', '.join(ACTIONS)}, not {action!r:.80}"
        )
    if PAYLOAD in terms and not isinstance(terms[PAYLOAD], str):
        raise InvalidRequest(f"the payload of a recurrence is base64, not {terms[PAYLOAD]!r:.80}")
    text = terms.pop(PAYLOAD, None)
    if BODY in terms:
        raise InvalidRequest("the terms of a recurrence name no shared body: the request does")
    if text is not None and request.shared:
        raise InvalidRequest("a recurrence has a payload of its own, or a shared body")
    said = [*terms, *([PAYLOAD] if text is not None else []), *([BODY] if request.shared else [])]
    if said and action not in (CREATE, UPDATE):
        raise InvalidRequest(f"{action} takes no terms, and there is {said[0]!r:.80}")
    if not said and action == UPDATE:
        raise InvalidRequest("there is nothing to change: name a term of the recurrence, or its payload")
    try:
        payload = b64decode(text, validate=True) if text is not None else None
    except (Base64Error, ValueError):
        raise InvalidRequest(f"the payload of a recurrence is base64, not {text!r:.80}") from None
    return Wish(request.name, action, terms, payload)


def check_recurrence(request: ChangeRequest, topic: Topic, settings: TopicSettings) -> Refusal | None:
    """Return why a request about a recurrence is refused, or None.

    Whether a recurrence fires at all is judged for all of time: a request that is repeated later has the same answer.
    """
    try:
        wish = wish_of(request)
        terms = terms_of(packed(wish.terms))
        if wish.action == CREATE:
            check_terms(terms, terms.start_ms, 0)
    except InvalidRequest as error:
        return invalid(str(error))
    order = order_of(topic.kind)
    for name, has_it in (("rank", order.has_ranks), ("group", order.has_groups)):
        if wish.terms.get(name) and not has_it:
            return invalid(f"topic {topic.name} is of kind {topic.kind}: its messages have no {name}s")
    if request.shared_size > settings.payload_bytes_max:
        return Refusal(
            Code.PAYLOAD_TOO_LARGE,
            f"a shared body of {request.shared_size} bytes is over the topic's {settings.payload_bytes_max}",
        )
    if too_long := check_payload(wish.payload or b"", topic.name, settings.payload_bytes_max):
        return Refusal(Code.PAYLOAD_TOO_LARGE, too_long)
    return None
