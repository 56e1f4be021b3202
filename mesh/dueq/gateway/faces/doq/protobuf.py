"""The messages of doq's gRPC API (package `queue`), as classes that are made at run time: there is no generated code.

A field is "type name", in the order of the numbers; `map` is map<string, string>.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE: Final = "queue.DOQ"

_PACKAGE: Final = "queue"
_ADDRESSED: Final = ("string queueName", "uint64 id")
_MESSAGE: Final = (
    "bool success", "string queueName", "uint64 id", "string group", "int64 priority", "string content", "map metadata",
)  # fmt: skip
_ENQUEUE: Final = (
    "string queueName", "uint64 id", "string group", "int64 priority", "string content", "map metadata",
)  # fmt: skip
_SUCCESS: Final = ("bool success",)
_MESSAGES: Final[dict[str, tuple[str, ...]]] = {
    "QueueSettings": ("Strategy strategy", "uint32 max_unacked", "uint32 ack_timeout"),
    "Stats": ("double enqueueRPS", "double dequeueRPS", "double ackRPS", "double nackRPS"),
    "GenerateIDsRequest": ("int32 number",),
    "GenerateIDsResponse": ("bool success", "repeated uint64 ids"),
    "CreateQueueRequest": ("string name", "string type", "QueueSettings settings"),
    "CreateQueueResponse": _SUCCESS,
    "UpdateQueueRequest": ("string name", "QueueSettings settings"),
    "UpdateQueueResponse": _SUCCESS,
    "DeleteQueueRequest": ("string name",),
    "DeleteQueueResponse": _SUCCESS,
    "GetQueueRequest": ("string name",),
    "GetQueueResponse": (
        "string name", "string type", "QueueSettings settings", "Stats stats", "int64 ready", "int64 unacked",
        "int64 total",
    ),
    "GetQueuesRequest": ("string type",),
    "GetQueuesResponse": ("repeated GetQueueResponse queues",),
    "EnqueueRequest": _ENQUEUE,
    "EnqueueResponse": _MESSAGE,
    "DequeueRequest": ("string queueName", "bool ack"),
    "DequeueResponse": _MESSAGE,
    "GetRequest": _ADDRESSED,
    "GetResponse": _MESSAGE,
    "DeleteRequest": _ADDRESSED,
    "DeleteResponse": _SUCCESS,
    "AckRequest": _ADDRESSED,
    "AckResponse": _SUCCESS,
    "NackRequest": (*_ADDRESSED, "int64 priority", "map metadata"),
    "NackResponse": _SUCCESS,
    "UpdatePriorityRequest": (*_ADDRESSED, "int64 priority"),
    "UpdatePriorityResponse": _SUCCESS,
    "TouchRequest": _ADDRESSED,
    "TouchResponse": _SUCCESS,
}  # fmt: skip
STRATEGIES: Final = ("STRATEGY_UNSPECIFIED", "ROUND_ROBIN", "WEIGHTED")

_Field: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "bool": _Field.TYPE_BOOL,
    "double": _Field.TYPE_DOUBLE,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}


def classes() -> dict[str, Any]:
    """Return the class of each message, by its name."""
    file = descriptor_pb2.FileDescriptorProto(name="doq.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        made = file.message_type.add(name=name)
        for number, text in enumerate(fields, 1):
            _add(made, text, number)
    settings = next(made for made in file.message_type if made.name == "QueueSettings")
    strategy = settings.enum_type.add(name="Strategy")
    for number, name in enumerate(STRATEGIES):
        strategy.value.add(name=name, number=number)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


def _add(made: Any, text: str, number: int) -> None:
    *repeated, kind, name = text.split()
    field = made.field.add(name=name, number=number)
    field.label = _Field.LABEL_REPEATED if repeated or kind == "map" else _Field.LABEL_OPTIONAL
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind == "Strategy":
        field.type, field.type_name = _Field.TYPE_ENUM, f".{_PACKAGE}.QueueSettings.Strategy"
    elif kind == "map":
        entry = made.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add(entry, "string key", 1)
        _add(entry, "string value", 2)
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{made.name}.{entry.name}"
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
