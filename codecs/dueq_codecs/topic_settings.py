"""The settings of a topic that can be changed while it is in use.

The coordinator holds one document for each topic, and the log of each partition has it as a SETTINGS record. A
document is JSON in canonical form: equal settings have equal bytes. Every change makes a new version. A setting that
only a newer build knows is kept as it is.

A new setting is a field of `TopicSettings` and a line in `SETTINGS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple

from dueq_codecs.backoff import fault_of_backoff
from dueq_codecs.documents import decode_document
from dueq_codecs.endpoint import fault_of_endpoint, shown
from dueq_codecs.records import ATTEMPTS_MAX

INSTANT_MS_MAX: Final = (1 << 48) - 1
"""Latest instant, Unix ms."""
PAYLOAD_BYTES_MAX: Final = 64 << 20
"""Longest payload that a topic may allow."""
RATE_MIN: Final = 0.001
"""Lowest rate of a limited topic, messages a second; rates count to this."""
RATE_MAX: Final = 1_000_000
"""Highest rate of a limited topic, messages a second, and largest burst."""

KEYS: Final = ("free", "unique")
"""The values of a topic's setting `keys`."""
LABELS_MAX: Final = 32
"""Most labels of a topic."""
LABEL_NAME_MAX: Final = 63
"""Longest name of a label, bytes of UTF-8."""
LABEL_BYTES_MAX: Final = 2048
"""Most bytes of UTF-8 that all names and values of a topic's labels have together."""
REMEMBER_MS_MAX: Final = 30 * 24 * 3600 * 1000
"""Longest time for which a unique key stays taken after its message is finished."""


class SettingsRefused(ValueError):
    """A setting is not known, or its value is outside its limits; the text names the value and the limit."""


class Words(NamedTuple):
    """The values of a setting that is one of some words."""

    words: tuple[str, ...]


class Document(NamedTuple):
    """The values of a setting that has parts.

    Attributes:
        fault: says what is wrong with a value, or None.
    """

    fault: Callable[[object], str | None]


class Numbers(NamedTuple):
    """The values of a setting that is a whole number."""

    low: int
    high: int
    unit: str


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """All settings of one topic."""

    version: int = 0
    """Grows by one with each change; 0: as the topic was created."""
    update: str = ""
    """32 hex digits of the change that made this version: a client that repeats it recognises its own work."""
    paused: bool = False
    """Messages are taken, and none is delivered."""
    paused_until_ms: int = 0
    """When a pause ends by itself, Unix ms by mesh time; 0: not before it is resumed."""
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    """The longest payload."""
    horizon_ms: int = 0
    """How far ahead a message may be due; 0: no cap."""
    rate: float = 0
    """Messages a second that are delivered at most; 0: no limit. Only a topic of one partition has one."""
    burst: int = 0
    """How many of them may be delivered at once; 0: as many as in a second."""
    keys: str = "free"
    """"unique": a key names at most one message of the topic that is not finished. Fixed when the topic is created."""
    remember_ms: int = 0
    """How long a unique key stays taken after its message is finished, by the partition's age."""
    max_attempts: int = 0
    """How often a message is delivered before it is dead; 0: as often as it takes."""
    backoff: Mapping[str, Any] | None = None
    """How long a message waits after an attempt, see `dueq_codecs.backoff`; None: not at all."""
    expired: str = "finish"
    """The fate of a message that is not delivered in time: "finish", or "dead"."""
    dead_retention_ms: int = 14 * 24 * 3600 * 1000
    """How long a dead message stays."""
    endpoint: Mapping[str, Any] | None = None
    """Where gateways send the topic's messages, see `dueq_codecs.endpoint`; None: nowhere."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Notes of the topic's owner; the mesh only keeps them."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a newer build."""

    @property
    def silent_until_ms(self) -> int:
        """Nothing is delivered before this instant (Unix ms by mesh time); 0: the topic is not paused."""
        return (self.paused_until_ms or INSTANT_MS_MAX) if self.paused else 0

    def changed(self, changes: Mapping[str, Any], update: str) -> TopicSettings:
        """Return the next version, with these changes.

        Args:
            changes: new values by the settings' names.
            update: 32 hex digits that name the change.

        Raises:
            SettingsRefused: a name is not known, or a value is outside its limits; nothing was changed.
        """
        for name, value in changes.items():
            _check(name, value)
        if changes.get("keys", self.keys) != self.keys:
            raise SettingsRefused(
                f"keys is fixed when a topic is created: it is {self.keys!r}, not {changes['keys']!r}"
            )
        return self._next(changes, update)

    def begun(self, changes: Mapping[str, Any], creation: str) -> TopicSettings:
        """Return the settings of a topic that is created with these changes: version 1, or 0 where nothing is changed.

        Args:
            changes: values by the settings' names.
            creation: 32 hex digits that name the creation.

        Raises:
            SettingsRefused: a name is not known, or a value is outside its limits.
        """
        for name, value in changes.items():
            _check(name, value)
        return self._next(changes, creation) if changes else self

    def _next(self, changes: Mapping[str, Any], update: str) -> TopicSettings:
        found = replace(self, **changes, version=self.version + 1, update=update)
        if found.remember_ms and found.keys != "unique":
            raise SettingsRefused(f"remember_ms is {found.remember_ms}, and the topic's keys are free")
        if found.paused_until_ms and not found.paused:
            raise SettingsRefused(f"paused_until_ms is {found.paused_until_ms}, and the topic is not paused")
        if changes.get("endpoint") is not None and "secrets" not in changes["endpoint"]:
            raise SettingsRefused("an endpoint has 1 to 4 secrets")
        if found.burst and not found.rate:
            raise SettingsRefused(f"burst is {found.burst}, and the topic has no rate")
        return found

    def fields(self) -> dict[str, Any]:
        """Return the settings as plain JSON values, with all secrets: for the coordinator."""
        known = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "others"}
        return {**self.others, **known}

    def encode(self) -> str:
        """Return the document, without the secrets of the endpoint: for logs, and for everybody who asks."""
        found = self.fields()
        if self.endpoint is not None:
            found["endpoint"] = shown(self.endpoint)
        return json.dumps(found, sort_keys=True, separators=(",", ":"))


def fault_of_labels(value: object) -> str | None:
    """Say what is wrong with labels, or None."""
    if not isinstance(value, Mapping):
        return f"labels are texts by name, not {value!r:.80}"
    if len(value) > LABELS_MAX:
        return f"a topic has at most {LABELS_MAX} labels, not {len(value)}"
    size = 0
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            return f"a label is a text by a name, not {name!r:.80}: {text!r:.80}"
        try:
            lengths = len(name.encode()), len(text.encode())
        except UnicodeEncodeError as error:
            return f"the label {name!r:.80} is not Unicode text: {error.reason}"
        if not 1 <= lengths[0] <= LABEL_NAME_MAX:
            return f"the name of a label has 1 to {LABEL_NAME_MAX} bytes of UTF-8, not {lengths[0]}: {name!r:.80}"
        size += sum(lengths)
    return (
        f"labels have at most {LABEL_BYTES_MAX} bytes together, not {size}"
        if size > LABEL_BYTES_MAX
        else None
    )


def fault_of_rate(value: object) -> str | None:
    """Say why this is no rate of a topic, or None."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if fits and (value == 0 or RATE_MIN <= value <= RATE_MAX):  # type: ignore[operator]
        return None
    return f"rate is 0, or {RATE_MIN} to {RATE_MAX} messages a second, not {value!r:.80}"


SETTINGS: Final[dict[str, Numbers | Words | Document | None]] = {
    "paused": None,
    "paused_until_ms": Numbers(0, INSTANT_MS_MAX, "Unix ms"),
    "payload_bytes_max": Numbers(1, PAYLOAD_BYTES_MAX, "bytes"),
    "horizon_ms": Numbers(0, INSTANT_MS_MAX, "ms"),
    "rate": Document(fault_of_rate),
    "burst": Numbers(0, RATE_MAX, "messages"),
    "keys": Words(KEYS),
    "remember_ms": Numbers(0, REMEMBER_MS_MAX, "ms"),
    "max_attempts": Numbers(0, ATTEMPTS_MAX, "deliveries"),
    "backoff": Document(fault_of_backoff),
    "expired": Words(("finish", "dead")),
    "dead_retention_ms": Numbers(1000, INSTANT_MS_MAX, "ms"),
    "labels": Document(fault_of_labels),
    "endpoint": Document(fault_of_endpoint),
}
"""The settings that a change may name, with the values of each; None: true or false."""

AS_CREATED: Final = TopicSettings()


def decode_settings(document: str) -> TopicSettings:
    """Return the settings of a document.

    Raises:
        SettingsRefused: it is no such document.
    """
    try:
        found = decode_document(document)
    except ValueError as error:
        raise SettingsRefused(f"settings are a JSON object, not {document[:200]!r}: {error}") from error
    return settings_of(found)


def settings_of(found: Mapping[str, Any]) -> TopicSettings:
    """Return the settings of `TopicSettings.fields`; those missing there are as in a new topic.

    Raises:
        SettingsRefused: a value is not of its type, or outside its limits.
    """
    names = SETTINGS.keys() | {"version", "update"}
    known = {name: value for name, value in found.items() if name in names}
    others = {name: value for name, value in found.items() if name not in names}
    for name in known.keys() & SETTINGS.keys():
        _check(name, known[name])
    version, update = known.get("version", 0), known.get("update", "")
    if type(version) is not int or version < 0 or not isinstance(update, str):
        raise SettingsRefused(f"a version of settings is 0 or more, not {version!r} of update {update!r}")
    return TopicSettings(**known, others=others)


def _check(name: str, value: object) -> None:
    if name not in SETTINGS:
        raise SettingsRefused(f"there is no setting {name!r:.80}; there are {', '.join(SETTINGS)}")
    limits = SETTINGS[name]
    if limits is None:
        if type(value) is not bool:
            raise SettingsRefused(f"{name} is true or false, not {value!r:.80}")
    elif isinstance(limits, Document):
        if (fault := limits.fault(value)) is not None:
            raise SettingsRefused(fault)
    elif isinstance(limits, Words):
        if value not in limits.words:
            raise SettingsRefused(f"{name} is one of {', '.join(limits.words)}, not {value!r:.80}")
    elif type(value) is not int or not limits.low <= value <= limits.high:
        raise SettingsRefused(f"{name} is {limits.low} to {limits.high} {limits.unit}, not {value!r:.80}")
