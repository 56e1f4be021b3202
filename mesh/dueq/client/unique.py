"""What callers say of unique keys."""

from __future__ import annotations

from typing import Final

from dueq.errors import InvalidRequest
from dueq_codecs.meta import KEY_BYTES_MAX
from dueq_codecs.records import OnDuplicate

_DUPLICATES: Final = {"refuse": OnDuplicate.REFUSE, "keep": OnDuplicate.KEEP, "replace": OnDuplicate.REPLACE}


def duplicates(on_duplicate: str | None, *, hidden: bool) -> OnDuplicate:
    """Return what is done about unique keys that name messages already.

    Args:
        on_duplicate: as the caller says it; None: the usual.
        hidden: the messages are of a job that is not committed yet.

    Raises:
        InvalidRequest: it is none of these, or nothing can be replaced.
    """
    if on_duplicate is None:
        return OnDuplicate.NONE
    if not isinstance(on_duplicate, str) or on_duplicate not in _DUPLICATES:
        raise InvalidRequest(f"on_duplicate is one of {', '.join(_DUPLICATES)}, not {on_duplicate!r:.80}")
    if hidden and on_duplicate == "replace":
        raise InvalidRequest(
            "on_duplicate is 'replace', and the job is hidden until it is committed: until then nothing is replaced"
        )
    return _DUPLICATES[on_duplicate]


def one_of(message_id: object, key: object) -> None:
    """Check that a call names one message: by its id or by its key.

    Raises:
        InvalidRequest: it names none, or both.
    """
    if message_id is None and key is None:
        raise InvalidRequest("no message is named: give its id, or its key")
    if message_id is not None and key is not None:
        raise InvalidRequest(
            f"a message is named by its id or by its key, not by both: {message_id!r:.80} and {key!r:.80}"
        )


def unique_key(key: object) -> str:
    """Return a key that names a message.

    Raises:
        InvalidRequest: it is no text of 1 to 255 bytes.
    """
    if not isinstance(key, str):
        raise InvalidRequest(f"a key is a str, not {type(key).__name__}: {key!r:.80}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the key {key!r:.80} is not Unicode text: {error.reason}") from None
    if not 1 <= size <= KEY_BYTES_MAX:
        raise InvalidRequest(f"a key has 1 to {KEY_BYTES_MAX} bytes of UTF-8, not {size}: {key!r:.80}")
    return key
