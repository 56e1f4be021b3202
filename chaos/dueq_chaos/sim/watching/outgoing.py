"""What leaves a broker for clients: pushes, and answers that keep leases alive or tell what a record has come to.

Nothing leaves early, or after its expiry, or under a lease that was not committed for this consumer; and a leader that
was replaced stops soon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from dueq.core.delivery.pulls import NAME_BYTES, PROCESS_BYTES
from dueq.limits import PUSH_CONFIRM_MS
from dueq_chaos.sim.judging.handed import Handed
from dueq_chaos.sim.judging.history import MessageKey, name_of
from dueq_chaos.sim.judging.ledger import Ledger
from dueq_chaos.sim.watching import job_rules
from dueq_chaos.sim.watching.promises import Promises
from dueq_codecs.messages import ChangeReply, ConsumerReply, Push

if TYPE_CHECKING:
    from dueq_chaos.sim.environment.mesh import SimMesh

_REPLACED_US: Final = PUSH_CONFIRM_MS * 1010
"""How long a replaced leader may act towards consumers: what its ISR has confirmed, by a clock that drifts."""
_EXPIRY_ERROR_US: Final = 2_000
"""By so much a leader's view of mesh time may be behind where every clock is right: instants are whole milliseconds."""


class Outgoing:
    """Looks at what the brokers of a mesh send to clients. Every method says what is wrong; "" when nothing is.

    Args:
        mesh: its brokers.
        ledger: the committed records.
        promises: what brokers have said.
        handed: who was given what.
        led: the newest epoch in which a broker has led a partition, 0: none; None: it was never seen.
        clock_error_us: how early a push may be because clocks are compared by frames.
        unproved_us: how long frames take on this network. A clock that is ahead by no more may look right.

    Attributes:
        newest: by partition, the newest epoch in which anything was committed, and since when.
    """

    def __init__(
        self, mesh: SimMesh, ledger: Ledger, promises: Promises, handed: Handed,
        led: Callable[[str, int], int | None], clock_error_us: int, unproved_us: int,
    ) -> None:  # fmt: skip
        self._mesh, self._ledger, self._promises, self._handed = mesh, ledger, promises, handed
        self._led, self._clock_error_us, self._unproved_us = led, clock_error_us, unproved_us
        self.newest: dict[int, tuple[int, int]] = {}

    def committed(self, uid: int, epoch: int) -> None:
        """A leader has committed something in this epoch."""
        if self.newest.get(uid, (0, 0))[0] < epoch:
            self.newest[uid] = (epoch, self._mesh.world.now_us)

    # -------------------------------------------------------------- pushes

    def pushed(self, name: str, push: Push) -> str:
        """Invariant 3: never early, and only under a lease that was committed for this consumer, half of it left."""
        own = push.leader == name  # the others pass on what they were sent
        if own:
            if wrong := self.handed_over(name, push):
                return wrong
            if little := self._promises.too_little_left(push):
                return f"{name} pushes {little}"
        wall_us = self._mesh.world.wall_us + self._may_be_ahead_us(push.leader)
        rows = zip(
            push.uid.tolist(), push.sequence.tolist(), push.row.tolist(), push.token.tolist(), push.due.tolist(),
            push.lease_left_ms.tolist(), strict=True,
        )  # fmt: skip
        for at, (uid, sequence, row, token, due, left_ms) in enumerate(rows):
            key = (uid, sequence, row)
            early_us = due * 1000 - wall_us
            wrong = f"{early_us} us before it is due" if early_us > 0 else ""
            wrong = wrong or (self._own_row(name, push, at, key, token, left_ms) if own else "")
            if not wrong:
                until_us = self._mesh.world.wall_us + left_ms * 1000
                self._mesh.history.leased(key, token, until_us)
                wrong = job_rules.pushed_too_soon(self._mesh, self._ledger, uid, sequence)
            holder = self._ledger.holder(uid, token, sequence, row)
            if not wrong and not self._is_for(holder, push.consumer_id):
                wrong = "there is no committed lease of it for this consumer"
            if wrong:
                return f"{name} pushes {name_of(key)} token {token}: {wrong}"
        return ""

    def _is_for(self, holder: bytes, consumer_id: bytes) -> bool:
        """Whether a lease is that of a consumer, or of the process that pulls by a name and whose pull this is."""
        process = consumer_id[:PROCESS_BYTES]
        return holder == consumer_id or (
            holder[:NAME_BYTES] in self._mesh.pull_names and holder[NAME_BYTES:] == process
        )

    def handed_over(self, name: str, push: Push) -> str:
        """A push leaves its leader, for the consumer or for the broker that passes it on."""
        wrong = self._handed.leaves(push)
        return f"{name} pushes {wrong}" if wrong else ""

    def _own_row(self, name: str, push: Push, at: int, key: MessageKey, token: int, left_ms: int) -> str:
        uid, sequence, row = key
        is_silent = self._mesh.silences.holds(push.topic, self._mesh.world.wall_us)
        if is_silent and not self._ledger.naive(uid).was_triggered(token, sequence << 16 | row):
            return "its topic was paused, and nobody has asked to resume it"
        return (
            self._expired(key)
            or self._other_headers(push, at, uid, sequence << 16 | row, token)
            or self._replaced(name, uid)
            or self._longer(name, key, left_ms)
        )

    def _other_headers(self, push: Push, at: int, uid: int, key: int, token: int) -> str:
        """Say what is wrong with the headers that a row comes with in place of its own."""
        found = push.headings[int(push.heading[at])] if len(push.heading) else ""
        expected = self._ledger.naive(uid).shown.get((token, key), "")
        return "" if found == expected else f"with the headers {found!r}, not {expected!r}"

    def _may_be_ahead_us(self, leader: str) -> int:
        """How far a leader's view of mesh time may be ahead: by all of an error that frames cannot show."""
        ahead_us = self._mesh.nodes[leader].wall_error_us
        return self._clock_error_us + (ahead_us if 0 < ahead_us <= self._unproved_us else 0)

    def _longer(self, name: str, key: MessageKey, left_ms: int) -> str:
        """No consumer is told that a lease lasts longer than it is long."""
        uid, sequence, row = key
        core = self._mesh.nodes[name].core
        partition = core.partition(uid) if core is not None else None
        if partition is None:
            return ""
        entries = partition.timeline.rows(np.array([sequence << 16 | row], np.uint64))
        length_ms = int(entries["lease_ms"][0])
        if not length_ms or left_ms <= length_ms:
            return ""
        return f"says that {left_ms} ms are left of a lease of {length_ms}"

    def _expired(self, key: MessageKey) -> str:
        """Where all clocks are right nothing leaves after its expiry."""
        entry = self._ledger.naive(key[0]).live.get(key[1] << 16 | key[2])
        expires_us = entry.expires * 1000 if entry is not None else 0
        if self._clock_error_us or not 0 < expires_us < self._mesh.world.wall_us - _EXPIRY_ERROR_US:
            return ""
        return f"{self._mesh.world.wall_us - expires_us} us after its expiry"

    def _replaced(self, name: str, uid: int) -> str:
        """Its ISR has confirmed it lately, and none of them commits in a newer epoch any more after that."""
        led, newest = self._led(name, uid), self.newest.get(uid)
        if led is None or newest is None or led >= newest[0]:
            return ""
        since_us = self._mesh.world.now_us - newest[1]
        return (
            f"it was replaced, epoch {newest[0]} commits since {since_us // 1000} ms"
            if since_us > _REPLACED_US
            else ""
        )

    # -------------------------------------------------------------- answers

    def kept_alive(self, name: str, reply: ConsumerReply) -> str:
        """An answer keeps leases alive at their holder. It is allowed only while no other leader can end them."""
        core = self._mesh.nodes[name].core
        if reply.leader != name or core is None:
            return ""  # it passes on what it was sent
        for uid, (epoch, _) in self.newest.items():
            led = self._led(name, uid)
            if led is None or led >= epoch:
                continue
            partition = core.partition(uid)
            if partition is None or partition.topic.name != reply.topic or not partition.replica.serving:
                continue
            high, low = (int.from_bytes(reply.consumer_id[at : at + 8], "big") for at in (0, 8))
            leased = partition.timeline.leased()
            held = (leased["consumer_high"] == high) & (leased["consumer_low"] == low)
            session = partition.dispatcher._consumers.by_id.get(reply.consumer_id)
            # A consumer that has said goodbye holds nothing any more, also if it attaches anew in the same turn.
            left = session is None or session.attach != reply.attach or not session.rows_out
            if held.any() and not left and (wrong := self._replaced(name, uid)):
                return f"{name} answers a consumer that has leases of p{uid}: {wrong}"
        return ""

    def answered(self, name: str, reply: ChangeReply) -> str:
        """An answer is the result of applying a committed record."""
        if reply.uid not in self._mesh.coordinator.nodes:
            return ""  # its topic was deleted, which not every broker knows yet: it is not accounted for any more
        if reply.sequence and reply.sequence not in self._ledger.epochs(reply.uid):
            return f"{name} answers of record {reply.sequence} of p{reply.uid}, which is not committed"
        return ""
