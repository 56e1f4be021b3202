"""`If-Match`: a message, an endpoint or a topic is changed only if it is as it was seen; or the header is refused."""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple

from fastapi import Depends, Header

from dueq.errors import VersionDiffers
from dueq.gateway.problems import Refusal

_ETAG: Final = re.compile(r'"([0-9A-Za-z]{26})\.([0-9]{1,19})"')


class Seen(NamedTuple):
    """A message as somebody has seen it."""

    id: str
    version: int


async def _seen(
    if_match: Annotated[
        str | None,
        Header(
            description="The ETag that the message must have, else it is left as it is (412).",
            examples=['"01KAR0000000002M0000000001.17"'],
        ),
    ] = None,
) -> Seen | None:
    """Return the version that `If-Match` names; None: any.

    Raises:
        Refusal: it is no ETag.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    found = _ETAG.fullmatch(if_match.strip())
    if found is None or int(found[2]) >= 1 << 63:
        raise Refusal(400, f"if-match is one ETag of a message, or *, not {if_match!r:.80}", if_match)
    return Seen(found[1], int(found[2]))


IfMatch = Annotated[Seen | None, Depends(_seen)]


def version_of(seen: Seen | None, message_id: str) -> int | None:
    """Return the version that a message must have; None: any.

    Raises:
        VersionDiffers: another message was seen.
    """
    if seen is None:
        return None
    if seen.id != message_id:
        raise VersionDiffers(f"if-match names message {seen.id}, not {message_id:.40}")
    return seen.version


def etag(message_id: str, version: int) -> str:
    """Return the ETag of a message."""
    return f'"{message_id}.{version}"'


_NAMED: Final = re.compile(r'"([A-Za-z0-9._-]{1,255})\.([0-9]{1,15})"')


async def _unseen(
    if_match: Annotated[
        str | None,
        Header(description="`*` or none: this is not done by version, so an ETag is refused (400)."),
    ] = None,
) -> None:
    """Refuse an `If-Match` that cannot be heeded.

    Raises:
        Refusal: it names a version.
    """
    if if_match is not None and if_match.strip() != "*":
        raise Refusal(
            400, f"if-match is not heeded here: leave it out, or say *, not {if_match!r:.80}", if_match
        )


Unseen = Depends(_unseen)
"""For what is done whatever the version: who names one is told, since it would be ignored."""


def version_seen(if_match: str | None, name: str, what: str) -> int | None:
    """Return the version in the ETag of what has a name; None: any.

    Args:
        what: it is, for the refusal.

    Raises:
        Refusal: it is no ETag of this one.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    found = _NAMED.fullmatch(if_match.strip())
    if found is None or found[1] != name:
        raise Refusal(
            400, f"if-match is the ETag of {what} {name!r:.80}, or *, not {if_match!r:.80}", if_match
        )
    return int(found[2])
