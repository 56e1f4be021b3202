"""Unique keys and idempotency keys: the hashes of rows, and the partitions that are at home for them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dueq.client.core.asking.directory import Topic
from dueq.client.core.ports.events import Insert
from dueq.errors import InvalidRequest
from dueq_codecs.groups import home_of_group
from dueq_codecs.meta import keys_of_payloads
from dueq_codecs.records import NO_U64, OnDuplicate
from dueq_codecs.rules import homes_of_keys, key_hashes, once_hashes
from dueq_codecs.topic_settings import decode_settings


def has_unique_keys(topic: Topic) -> bool:
    """Whether a key names at most one message of a topic."""
    return _are_unique(topic.info.settings)


@lru_cache(maxsize=64)
def _are_unique(settings: str) -> bool:
    """The same of a topic's settings: to decode them costs as much as the hashes of two hundred keys."""
    return '"keys":"unique"' in settings and decode_settings(settings).keys == "unique"


def groups_have_keys(topic: Topic) -> bool:
    """Whether each first level of groups has unique keys of its own: a fair topic in several partitions."""
    return topic.info.kind == "fair" and topic.home_partitions > 1


def with_hashes(event: Insert, topic: Topic) -> Insert:
    """Return rows with the hashes of their keys, if the topic's keys are unique.

    Raises:
        InvalidRequest: they cannot be kept unique so.
    """
    if not has_unique_keys(topic):
        if event.on_duplicate != OnDuplicate.NONE:
            raise InvalidRequest(
                f"the keys of topic {event.topic!r} are free, and on_duplicate is for unique ones: create a topic with"
                ' keys="unique"'
            )
        return event
    if not event.keyed:
        return event
    keys = keys_of_payloads(event.payloads)
    if not any(keys):
        return replace(event, on_duplicate=OnDuplicate.NONE, key_high=NO_U64, key_low=NO_U64)
    if event.partition is not None and len(topic.uids) > 1:
        raise InvalidRequest(
            f"the keys of topic {event.topic!r} are unique, and say to which partition their messages go: this call"
            " has rows for one partition"
        )
    levels: list[str] = []
    if groups_have_keys(topic):
        names = [event.groups[place] for place in event.group.tolist()] if event.groups else [""] * len(keys)
        levels = [name.partition(".")[0] for name in names]
        for row, (key, level) in enumerate(zip(keys, levels, strict=True)):
            if key and not level:
                raise InvalidRequest(
                    f"row {row}: a message with a key has a group in the fair topic {event.topic!r}, which has"
                    f" {topic.home_partitions} partitions"
                )
    high, low = key_hashes(keys, levels)
    does = event.on_duplicate or OnDuplicate.REFUSE
    return replace(event, key_high=high, key_low=low, on_duplicate=does)


def homes(event: Insert, topic: Topic) -> npt.NDArray[np.intp]:
    """Return the place in the topic of each row's home, −1 where the row may go anywhere.

    A row's group decides if it has one, and else the hash of its unique key, and else that of its idempotency key. A
    row with a key has the same home whichever rows come with it.
    """
    if event.groups:
        found = np.array([home_of_group(name, topic.home_partitions) for name in event.groups], np.intp)[
            event.group
        ]
        grouped = np.array([bool(name) for name in event.groups])[event.group]
    else:
        found = np.full(len(event.due), -1, np.intp)
        grouped = np.zeros(len(found), np.bool_)
    for high, low in ((event.once_high, event.once_low), (event.key_high, event.key_low)):
        if len(high):
            at_home = homes_of_keys(high, topic.home_partitions).astype(np.intp)
            found = np.where(((high | low) != 0) & ~grouped, at_home, found)
    return found


def home_of_key(key: str, group: str | None, topic: Topic) -> tuple[int, str]:
    """Return the uid of the partition that is home to a key, and the key's hash in hex.

    Raises:
        InvalidRequest: a key names no single message in this topic, or the group is missing that it belongs to.
    """
    if not has_unique_keys(topic):
        raise InvalidRequest(
            f"the keys of topic {topic.info.name!r} are free, so {key!r:.80} does not name one message: use its id"
        )
    levels = [(group or "").partition(".")[0]] if groups_have_keys(topic) else []
    if levels == [""]:
        raise InvalidRequest(
            f"the fair topic {topic.info.name!r} has {topic.home_partitions} partitions, in which each first level of"
            f" groups has keys of its own: name the group of {key!r:.80}"
        )
    high, low = key_hashes([key.encode()], levels)
    if levels:
        home = home_of_group(levels[0], topic.home_partitions)
    else:
        home = int(homes_of_keys(high, topic.home_partitions)[0])
    return topic.uids[home], f"{int(high[0]):016x}{int(low[0]):016x}"


def home_of_once(name: bytes, key: str, group: str | None, topic: Topic) -> tuple[int, str]:
    """Return the uid of the partition that knows an idempotency key, and the key's hash in hex.

    Args:
        name: the idempotency key.
        key, group: of its message; empty: it has none.
        topic: where it is.
    """
    high, low = once_hashes([name])
    if group:
        home = home_of_group(group, topic.home_partitions)
    else:
        decides = key_hashes([key.encode()])[0] if key and has_unique_keys(topic) else high
        home = int(homes_of_keys(decides, topic.home_partitions)[0])
    return topic.uids[home], f"{int(high[0]):016x}{int(low[0]):016x}"
