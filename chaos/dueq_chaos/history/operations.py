"""The format of a history: one JSON object a line, UTF-8, each line ended by a newline.

The first line of a file is the header, `{"dueq_history": 1}`; it may hold more for people to read. Every other line
has `event`, and two instants taken together when it was written:

* `us`: Unix µs of the writing client's own wall clock;
* `mono`: µs of one monotonic clock that all writers of the history share (CLOCK_MONOTONIC on one machine). All order
  is by `mono`.

A client's operation is two lines, written before the call and after it, so that a crash leaves what was under way:

* `{"event": "invoke", "client", "op", "kind", "us", "mono", …columns}`
* `{"event": "complete", "client", "op", "us", "mono", …columns}`

`client` names one producer or one consumer, and is unique in all files checked together; `op` is an integer that the
client never uses again. Columns are arrays with one entry a message; a column of equal entries may be the entry alone.
An invocation and its completion have the same number of rows. A batch of many messages is one operation.

| kind | columns of the invocation | columns of the completion |
| --- | --- | --- |
| `schedule` | `due`, `crc`, `size`; `topic` | `id` ("" where none was told), `outcome` |
| `move` | `id`, `due` | `outcome` |
| `cancel` | `id` | `outcome` |
| `receive` | `topic` | `id`, `due`, `token`, `attempt`, `released`, `lease_ms`, `crc`, `size` |
| `ack`, `release` | `id`, `token` | `outcome` |
| `nack`, `extend` | `id`, `token`; `ms`: the delay, the lease's new length | `outcome` |
| `close` | – | – |

`topic` and `ms` are one value for the operation; `topic` may be left out when there is only one.

* `id`: the message id, 1–32 ASCII characters.
* `due`: Unix ms.
* `crc`, `size`: CRC-32 and length in bytes of the payload. An insert of unknown outcome whose message is delivered
  under an id that no client was told is recognized by these two. So make every payload unique.
* `token`: the lease; of two leases of one message the later has the larger.
* `attempt`: 1 for the first delivery.
* `released`: Unix µs by the mesh's clock at which the message left its leader, as the delivery says.
* `lease_ms`: the rest of the lease when the line was written, by the client's reckoning, rounded down.
* `outcome`: `done`; `leased`, `not_found`, `stale` (applied, and it changed nothing); `refused` (an error that says
  that nothing was changed); `unknown` (it may have happened, or happen later, or never). Left out: all `done`.
  A completion may hold `error`, the error's name and text, for people to read.

`receive` hands messages to the user: a message that is in no completion of it was not delivered. `close` gives back all
messages that the consumer still has. Every settling (ack, nack, release) must be recorded; one that is not recorded
counts as not done. An operation with rows that were `refused` or `unknown` may be completed again (a retry of the same
request): the last completion counts, and holds all rows. An operation without completion has an unknown outcome.

Two kinds of lines are single:

* `{"event": "lost", "client", "id", "token", …}`: the SDK told the consumer that these leases are over.
* `{"event": "note", "text", …}`: anything worth reading beside a message's story: a fault, a recovery.

A run ends with a quiet: no more faults, a mesh that serves, and consumers that go on receiving until all due messages
have come, and then stop. A message that is still missing when the last of them stops is lost: a history cannot tell a
mesh that has forgotten from one that was switched off too early.

A last line without its newline was cut off by a crash, and is ignored.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

VERSION: Final = 1
ID_LENGTH_MAX: Final = 32
FOREVER: Final = (1 << 63) - 1
"""The completion (µs) of an operation that was never completed, or whose outcome is not known."""


class Kind(IntEnum):
    """The kind of an operation that a client asked for."""

    SCHEDULE = 0
    MOVE = 1
    CANCEL = 2
    RECEIVE = 3
    ACK = 4
    NACK = 5
    RELEASE = 6
    EXTEND = 7
    CLOSE = 8
    LOST = 9


class Told(IntEnum):
    """The outcome that a client was told of one row."""

    DONE = 0
    LEASED = 1
    NOT_FOUND = 2
    STALE = 3
    REFUSED = 4
    UNKNOWN = 5


KINDS: Final = {kind.name.lower(): kind for kind in Kind if kind is not Kind.LOST}
OUTCOMES: Final = {told.name.lower(): told for told in Told}
INVOKED: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.SCHEDULE: ("due", "crc", "size"),
    Kind.MOVE: ("id", "due"),
    Kind.CANCEL: ("id",),
    Kind.RECEIVE: (),
    Kind.ACK: ("id", "token"),
    Kind.NACK: ("id", "token"),
    Kind.RELEASE: ("id", "token"),
    Kind.EXTEND: ("id", "token"),
    Kind.CLOSE: (),
    Kind.LOST: ("id", "token"),
}
"""Columns of an invocation, by kind."""
DELIVERED: Final = ("id", "due", "token", "attempt", "released", "lease_ms", "crc", "size")
"""Columns of the completion of a `receive`."""
