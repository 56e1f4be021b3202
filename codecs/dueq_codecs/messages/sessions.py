"""How a connection begins: who speaks, and by which clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from dueq_codecs.codes import Code

PROTOCOL_VERSION = 1


class Role(IntEnum):
    """The sender of a Hello."""

    CLIENT = 0
    BROKER = 1


@dataclass(slots=True)
class Hello:
    """The first frame on a connection, and the client's keep-alive and clock measurement after it."""

    role: Role
    name: str
    """A broker's id, or the client id in hex."""
    cluster_id: str = ""
    """Empty: any cluster."""
    incarnation: int = 0
    attach: int = 0
    """Grows with every new connection of one (name, incarnation); the highest wins."""
    protocol_min: int = PROTOCOL_VERSION
    protocol_max: int = PROTOCOL_VERSION
    sent_wall_us: int = 0
    agent: str = ""
    principal: str = ""


@dataclass(slots=True)
class HelloReply:
    """The broker's answer; with the sender's instants the four timestamps of an offset measurement."""

    code: Code
    text: str = ""
    cluster_id: str = ""
    broker_id: str = ""
    incarnation: int = 0
    protocol: int = PROTOCOL_VERSION
    feature_level: int = 1
    echo_wall_us: int = 0
    received_wall_us: int = 0
    sent_wall_us: int = 0
    """Both 0: the broker has not compared its clock with others yet, so this measures nothing."""
    mesh_offset_us: int = 0
    """Add this to the broker's wall clock to get mesh time."""
