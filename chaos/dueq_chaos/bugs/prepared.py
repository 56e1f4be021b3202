"""Planted bugs of pushes that are laid out before their instant: a layout that is trusted, and not checked again."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change
from dueq_chaos.bugs.patching import Rewrite

_PUSHING = "core.delivery.pushing:Pushing"


def _whole(*checks: str) -> Rewrite:
    """Have a piece leave if only this is true of its leases."""
    return change(
        "core.delivery.prepared:Piece.is_whole",
        "    slots = self.slots\n",
        f"    slots = self.slots\n    return bool(({' & '.join(f'({check})' for check in checks)}).all())\n",
    )


_GRANTED: Final = "leases.phase[slots] == Phase.GRANTED"
_SAME: Final = "leases.token[slots] == self.tokens"
_IN_TIME: Final = "leases.act_us[slots] > now.mono_us"
_READY: Final = "leases.ready[slots] != 0"

PREPARED: Final = (
    Bug(
        "prepared-though-withheld",
        "A push that was laid out leaves although a cancel or move on its way withholds it.",
        "timers that cannot be taken back once they are in the wheel: Netty HashedWheelTimer #6537",
        (
            _whole(
                "(leases.phase[slots] == Phase.GRANTED) | (leases.phase[slots] == Phase.WITHHELD)",
                _SAME,
                _IN_TIME,
                _READY,
            ),
        ),
        seeds=24,
        finders=(13,),
    ),
    Bug(
        "prepared-by-own-clock",
        "A push that was laid out leaves by the broker's own clock, not by mesh time.",
        "CockroachDB: a clock that jumps forward, --clock-device bug",
        (
            change(
                f"{_PUSHING}._push_prepared",
                "lane.prepared.take_due(mesh_ms)",
                "lane.prepared.take_due(now.wall_us // 1000)",
            ),
        ),
        seeds=24,
        finders=(6,),
    ),
)

PREPARED_UNSEEN: Final = (
    Bug(
        "prepared-for-another-lease",
        "A push that was laid out leaves although its lease is over and another has its place.",
        "ABA: a place that is used again is taken for the old one",
        (_whole(_GRANTED, _IN_TIME, _READY),),
        seeds=0,
    ),
    Bug(
        "prepared-without-payload",
        "A push that was laid out leaves before its payloads have been read.",
        "the rule that a push needs its payload at hand",
        (_whole(_GRANTED, _SAME, _IN_TIME),),
        seeds=0,
    ),
    Bug(
        "prepared-though-ended",
        "A push that was laid out leaves although the end of its lease was proposed or has come.",
        "fpj.systems 2016-02-10: a lock that is used when it is over",
        (_whole("leases.phase[slots] != Phase.WITHHELD", _SAME),),
        seeds=0,
    ),
    Bug(
        "prepared-to-a-lost-route",
        "A push that was laid out leaves although its consumer could not be reached and has not attached again.",
        "ZeroMQ guide: ROUTER drops what it cannot deliver",
        (change(f"{_PUSHING}._push_prepared", "not session.reachable or ", ""),),
        seeds=0,
    ),
    Bug(
        "prepared-though-extended",
        "A push that was laid out states the length that its lease had before an extension.",
        "the rule that nobody is told that a lease lasts longer than it is",
        (
            change(
                "core.delivery.lease_changes:LeaseChanges._extended",
                "lane.unprepare(lane.prepared.take_all())",
                "pass",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "instant-though-unconfirmed",
        "A turn that only pushes does so though nobody has confirmed the leadership lately.",
        "protocol case B13: a leader that does not know yet that it has been replaced",
        (change(f"{_PUSHING}.push_laid_out", "if not lane.partition.confirmed(now):", "if False:"),),
        seeds=0,
    ),
    Bug(
        "instant-though-something-has-happened",
        "A turn only pushes though a consumer has spoken since the last whole one.",
        "the rule that a paused process hears before it judges",
        (change("core.delivery.dispatch:TopicDispatcher.push", "self._dirty or ", ""),),
        seeds=0,
    ),
    Bug(
        "instant-hides-a-pause",
        "A process that stood still looks at what is due before it has heard anything, and does not notice the pause.",
        "Jepsen: a process that is paused and goes on as if no time had passed",
        (
            change(
                "core.broker:BrokerCore.push",
                "if not 0 <= now.mono_us - self._armed_us <= limits.PAUSE_MS * 1000:",
                "if now.mono_us < self._armed_us:",
            ),
        ),
        seeds=0,
    ),
    Bug(
        "instant-keeps-others-waiting",
        "Turns that only push go on although messages are to be leased or leases to be ended.",
        "priority inversion: what is short and frequent keeps out what is long",
        (change("core.delivery.dispatch:TopicDispatcher.push", "now.mono_us >= self._tick_us or ", ""),),
        seeds=0,
    ),
)
"""Storms find these seldom or never: they need a place that is used again within the look-ahead, a read that takes as
long, a refused RELEASE, a client that knows a token before its push, or a pause between two instants. A test finds
each."""
