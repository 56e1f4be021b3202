"""Pulls: messages for one answer, asked of the leaders of a topic.

First the leaders are asked one after the other for what is ready, from a random one on; the first that has something
ends the call. If none has, or one is silent, and the caller waits, all of them are asked at once to wait; the first
that answers ends the call, and the others are told that nobody waits any more. Messages that they send nevertheless are
given back and not counted. A leader that has ended while others still wait is asked again. Who waits for long is listed
(`waiting`).

An answer that is lost is repaired by asking again with a larger `attach` and what has arrived: the leader pushes the
rest under the same tokens, a new leader too. If the answer comes nevertheless, and whole, it ends the call. Else it
would lie here for seconds, while an earlier pull of the same name may settle what is in it. Whose a message is that
comes to one of several pulls by a name is decided in `pull_names`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from dueq import limits
from dueq.client.core.asking.directory import Directory, Topic
from dueq.client.core.changing.request_windows import RequestWindows
from dueq.client.core.changing.settlements import Settlements
from dueq.client.core.consuming.asked import Asked, PullCall
from dueq.client.core.consuming.pull_names import PullNames
from dueq.client.core.consuming.session import LeaderClock
from dueq.client.core.consuming.waiting import LONGEST_US, WaitingPulls, leaders_of
from dueq.client.core.links.calls import Calls
from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Link, Links
from dueq.client.core.links.refusals import FINAL, error_of
from dueq.client.core.ports.change import Part
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.events import GiveBack, Pull
from dueq.client.core.ports.timers import Timer
from dueq.errors import Disconnected, DueqError, OutcomeUnknown, Superseded
from dueq_codecs.messages import Code, ConsumerAction, ConsumerFrame, ConsumerReply, Push, PushChunk
from dueq_codecs.records import RecordKind

SILENCE_US: Final = 1_000_000
"""A leader that has not answered for this long is asked again, or left out."""
PATIENCE_US: Final = 3_000_000
"""The same for one that has said that it waits, after its time; and for one that has sent a chunk, after that."""
MISSING_US: Final = 50_000
"""How long pushes may follow the end of an answer."""
AGAIN_US: Final = 100_000
_ORDER_BITS: Final = 12
"""Pulls of one process that begin at one instant have their order too."""
SHORT_US: Final = 1_000
"""No leader waits for less."""
TAIL_US: Final = 5_000_000
"""How long what comes for a pull that is over is given back."""
DAMAGED_DELAY_MS: Final = 1_000


class Pulling:
    """All Pull calls."""

    def __init__(
        self, context: Context, calls: Calls, links: Links, directory: Directory, windows: RequestWindows,
        settlements: Settlements,
    ) -> None:  # fmt: skip
        self._context, self._calls, self._links = context, calls, links
        self._directory, self._windows, self._settlements = directory, windows, settlements
        self._open: dict[bytes, PullCall] = {}
        self._by_call: dict[int, PullCall] = {}
        self._names = PullNames()
        self._process = hashlib.blake2b(context.client_id, digest_size=8, person=b"dueq.process").digest()
        self._unordered: dict[bytes, PullCall] = {}  # those by a name that have asked nobody yet, in order
        self._clocks: dict[str, LeaderClock] = {}
        self._count = self._ordered = 0
        name = hashlib.blake2b(context.client_id, digest_size=16, person=b"dueq.waiting").digest()
        self._waiting = WaitingPulls(context, links, directory, self, self._clock, name)

    # -------------------------------------------------------------- calls

    def pull(self, event: Pull) -> None:
        """Begin a call."""
        self._count += 1
        name = self._process + self._count.to_bytes(8, "big")
        pulling = PullCall(event, name, self._count, self._context.mono_us)
        self._open[name] = self._by_call[event.call] = pulling
        if event.holder:
            self._unordered[name] = pulling
        self._calls.begin(event.call, event.deadline_us, lambda: self._expired(pulling))
        self._directory.ensure(
            event.topic, lambda topic: self._found(pulling, topic), lambda: not pulling.over
        )

    def abandon(self, call: int) -> None:
        """Nobody waits any more."""
        pulling = self._by_call.get(call)
        if pulling is not None and not pulling.over:
            self._calls.forget(call)
            self._finish(pulling, keep=0)

    def give_back(self, event: GiveBack) -> None:
        """Its answer has reached nobody."""
        pulling = self._by_call.get(event.pull.call) or PullCall(event.pull, b"", 0, self._context.mono_us)
        left = self._names.not_later_s(pulling, event.deliveries)
        self._settle(pulling, RecordKind.RELEASE, left)

    def knows(self, name: bytes) -> bool:
        """Whether answers with this name are to a pull, or to those that wait."""
        return name in self._open or name == self._waiting.name

    def is_open(self, name: bytes) -> bool:
        """Whether pushes with this name are of a pull."""
        return name in self._open

    def _found(self, pulling: PullCall, topic: Topic | DueqError) -> None:
        if pulling.over:
            return
        if isinstance(topic, DueqError):
            self._fail(pulling, topic)
            return
        leaders = leaders_of(topic)
        if not leaders:
            self._look_again(pulling)
        elif len(leaders) == 1 and not pulling.asked:
            self.ask_all(pulling, leaders)
        elif not pulling.asked:
            turn = self._context.jittered(2 * len(leaders)) % len(leaders)
            pulling.left = leaders[turn:] + leaders[:turn]
            self._ask_next(pulling)

    def _look_again(self, pulling: PullCall) -> None:
        """Leaders are not as they were thought to be: ask who leads."""
        if pulling.timer is not None:
            pulling.timer.cancel()

        def look() -> None:
            self._directory.refresh(pulling.event.topic, lambda topic: self._found(pulling, topic))

        pulling.timer = self._context.after(self._context.jittered(AGAIN_US), look)

    def _ask_next(self, pulling: PullCall) -> None:
        """Ask the next leader for what is ready; once all have nothing, let all of them wait."""
        if pulling.left:
            leader = pulling.left.pop(0)
            self._ask(pulling, Asked(leader, 0, pulling.event.count))
        elif not pulling.heard:
            self._look_again(pulling)
        elif self._context.mono_us >= pulling.until_us:
            self._complete(pulling)
        else:
            topic = self._directory.get(pulling.event.topic)
            leaders = leaders_of(topic) if topic is not None else []
            if leaders:
                self.ask_all(pulling, leaders)
            else:
                self._look_again(pulling)

    def ask_all(self, pulling: PullCall, leaders: Sequence[str]) -> None:
        """Let those of the leaders wait that have not been asked."""
        left_us = pulling.left_us(self._context.mono_us)
        wait_us = min(left_us, LONGEST_US)
        if left_us > LONGEST_US:
            self._waiting.begin(pulling)
        for leader in leaders:
            if leader not in pulling.asked:
                self._ask(pulling, Asked(leader, wait_us, pulling.event.count))

    # -------------------------------------------------------------- questions

    def _ask(self, pulling: PullCall, asked: Asked) -> None:
        """Ask a leader, or ask it again."""
        self._order(pulling)
        self._give_back_over(pulling)
        if pulling.got and not pulling.attaches:
            self._complete(pulling)  # an earlier one by its name had it
        if pulling.over:
            return
        event, now_us = pulling.event, self._context.mono_us
        pulling.asked[asked.leader] = asked
        pulling.attaches += 1
        asked.ask(pulling.attaches)
        asked.begun_us, asked.until_us = now_us, now_us + asked.wait_us
        link = self._links.route(asked.leader, avoid=asked.link)
        # A leader that has just answered by this link does not say that it waits.
        goes_on = link is not None and pulling.answered.pop(asked.leader, 0) == link.number and not asked.link
        silence_us = asked.wait_us + PATIENCE_US if goes_on else SILENCE_US
        asked.set_timer(self._context.after(silence_us, lambda: self._silent(pulling, asked)))
        if link is None:
            asked.link = 0
            self._directory.refresh(event.topic)
            return
        asked.link = link.number
        frame = ConsumerFrame(
            ConsumerAction.PULL, event.topic, pulling.name, asked.attach, asked.attach, asked.credit,
            event.credit_bytes, event.lease_ms, 0, asked.leader, holder=pulling.holder,
            wait_ms=asked.wait_us // 1000, life=pulling.order,
        )  # fmt: skip
        settled = self._settlements.of(event.topic) if pulling.order else ()
        held = self._names.listed(pulling, settled)
        frame.held_uid = np.array([row[0] for row in held], np.uint32)
        frame.held_sequence = np.array([row[1] for row in held], np.uint64)
        frame.held_row = np.array([row[2] for row in held], np.uint16)
        frame.held_token = np.array([row[3] for row in held], np.uint64)
        self._links.send(link, frame)

    def _order(self, pulling: PullCall) -> None:
        """Have pulls by names follow each other as they were begun, whichever of them asks first."""
        while pulling.name in self._unordered:
            first = self._unordered.pop(next(iter(self._unordered)))
            first.order = first.event.order or self._next_order()
            for earlier in self._names.asks(first):
                self._superseded(earlier)

    def _next_order(self) -> int:
        instant_us = self._context.clock.mesh_us(self._context.now)
        self._ordered = max(self._ordered + 1, instant_us << _ORDER_BITS)
        return self._ordered

    def _silent(self, pulling: PullCall, asked: Asked) -> None:
        """No answer: ask again where somebody waits for it, else the next."""
        if pulling.asked.get(asked.leader) is not asked or pulling.over:
            return
        patience_us = asked.alive_us + PATIENCE_US - self._context.mono_us
        if asked.alive_us and patience_us > 0:  # it has confirmed since that it waits, or its chunks come
            asked.set_timer(self._context.after(patience_us, lambda: self._silent(pulling, asked)))
            return
        self._waiting.in_trouble(pulling)
        self._directory.refresh(pulling.event.topic)
        if self._context.mono_us >= pulling.until_us and not asked.question.pushes and not pulling.got:
            self._ended(pulling, asked)
            return
        self.ask_again(pulling, asked)
        topic = self._directory.get(pulling.event.topic)
        if topic is not None and not pulling.got and not pulling.over:
            pulling.left = []
            self.ask_all(pulling, leaders_of(topic))

    def ask_again(self, pulling: PullCall, asked: Asked) -> None:
        """Repeat a question for the time that is left; once something has come, for what is missing of that alone."""
        asked.credit = 0 if pulling.got else pulling.event.count
        asked.wait_us = 0 if pulling.got else min(pulling.left_us(self._context.mono_us), LONGEST_US)
        self._ask(pulling, asked)

    # -------------------------------------------------------------- answers

    def replied(self, reply: ConsumerReply, link: Link) -> None:
        """A leader says that the pull waits, or is over, or why there is none."""
        if reply.consumer_id == self._waiting.name:
            self._waiting.replied(reply)
            return
        pulling = self._open[reply.consumer_id]
        asked = pulling.asked.get(reply.leader or link.broker_id)
        if pulling.over or asked is None:
            return
        if reply.attach != asked.attach:
            self._replied_late(pulling, asked, reply)
            return
        code = reply.code
        if code is Code.OK:
            pulling.heard = True
            self._clock(asked.leader).answered(asked.begun_us, reply.incarnation, reply.mono_us)
            if reply.ended:
                pulling.answered[asked.leader] = asked.link
                asked.question.sent = reply.push_sent
                self._maybe_ended(pulling, asked)
            else:
                asked.heard = True
                after_us = asked.until_us + PATIENCE_US - self._context.mono_us
                asked.set_timer(self._context.after(max(after_us, 0), lambda: self._silent(pulling, asked)))
        else:
            self.refused(pulling, asked, code, reply.text)

    def _replied_late(self, pulling: PullCall, asked: Asked, reply: ConsumerReply) -> None:
        """A leader has answered the question before the present one: what has come whole need not wait for more."""
        if reply.attach == asked.before.attach and reply.code is Code.OK and reply.ended and reply.push_sent:
            asked.before.sent = reply.push_sent
            self._maybe_answered_late(pulling, asked)

    def _maybe_answered_late(self, pulling: PullCall, asked: Asked | None) -> None:
        if asked is not None and asked.before.is_answered:
            self._complete_late(pulling)

    def refused(self, pulling: PullCall, asked: Asked, code: Code, text: str) -> None:
        """A leader lets the pull not wait."""
        if code is Code.UNKNOWN_SESSION:
            pulling.followed = bool(pulling.event.holder) and not self._names.has_later(pulling)
            self._superseded(pulling)
        elif code in FINAL:
            self._fail(pulling, error_of(code, text))
        else:
            pulling.refusal = error_of(code, text)
            self._waiting.in_trouble(pulling)
            self._drop(pulling, asked)
            if not pulling.asked:
                pulling.left = []
                self._look_again(pulling)

    def pushed(self, push: Push, body: bytes | memoryview, link: Link) -> None:
        """Messages have come."""
        pulling = self._open[push.consumer_id]
        leader = push.leader or link.broker_id
        asked = pulling.asked.get(leader)
        question = asked.numbered(push.attach) if asked is not None else None
        present = asked is not None and question is asked.question
        since_us = asked.begun_us if asked is not None and present else pulling.begun_us
        at_us = self._clock(leader).instant_us(push.incarnation, push.mono_us)
        released_us = since_us if at_us is None else max(at_us, since_us)
        fresh, damaged, complete = pulling.arrivals.push(push, body, released_us)
        if damaged and not pulling.followed:
            _, damaged = self._names.whose(pulling, damaged)
            self._settle(pulling, RecordKind.NACK, damaged, DAMAGED_DELAY_MS)
        taker, fresh = self._names.whose(pulling, fresh)
        if taker is not pulling and fresh:
            taker.take(fresh)
            self._complete_late(taker)
            fresh = []
        if pulling.over:
            if not pulling.followed:
                self._settle(pulling, RecordKind.RELEASE, fresh)
            return
        pulling.got += fresh
        self._give_back_over(pulling)
        if question is not None and complete:
            question.pushes.add(push.number)
        if asked is not None and present and complete:
            self._maybe_ended(pulling, asked)
        elif not present:
            if fresh:  # of a question that may get no answer any more
                self._context.after(PATIENCE_US, lambda: self._complete_late(pulling))
            self._maybe_answered_late(pulling, asked)

    def chunk_pushed(self, chunk: PushChunk, body: bytes | memoryview) -> None:
        """A part of a long payload has come: its leader need not be asked again."""
        pulling = self._open[chunk.consumer_id]
        pulling.arrivals.chunk(chunk, body)
        for asked in pulling.asked.values():  # each question has a number of its own
            asked.brought(chunk, self._context.mono_us)

    def link_down(self, number: int) -> None:
        """Ask by another link what was asked by this one."""
        for pulling in list(self._open.values()):
            for asked in [asked for asked in pulling.asked.values() if asked.link == number]:
                if not pulling.over:
                    self._waiting.in_trouble(pulling)
                    self._ask(pulling, asked)

    def topic_changed(self, topic: Topic) -> None:
        """The leaders are known anew."""
        self._waiting.topic_changed(topic)

    def topic_gone(self, name: str, error: DueqError) -> None:
        """The topic is no more."""
        for pulling in list(self._open.values()):
            if pulling.event.topic == name and not pulling.over:
                self._fail(pulling, error)

    def _clock(self, leader: str) -> LeaderClock:
        return self._clocks.setdefault(leader, LeaderClock())

    def _maybe_ended(self, pulling: PullCall, asked: Asked) -> None:
        if asked.question.sent < 0:
            return
        if asked.question.is_answered:
            self._ended(pulling, asked)
            return

        def ask_again() -> None:
            if pulling.asked.get(asked.leader) is asked and not pulling.over:
                asked.credit = asked.wait_us = 0  # only what is missing
                self._ask(pulling, asked)

        asked.set_timer(self._context.after(MISSING_US, ask_again))

    def _ended(self, pulling: PullCall, asked: Asked) -> None:
        """A leader has answered, or is given up."""
        self._drop(pulling, asked)
        self._give_back_over(pulling)
        if pulling.got:
            self._complete(pulling)
        elif not pulling.asked:
            self._ask_next(pulling)
        elif pulling.left_us(self._context.mono_us) >= SHORT_US:
            self.ask_all(pulling, [asked.leader])  # the others wait on

    def _drop(self, pulling: PullCall, asked: Asked) -> None:
        asked.set_timer(None)
        if pulling.asked.get(asked.leader) is asked:
            del pulling.asked[asked.leader]

    # -------------------------------------------------------------- ends

    def _complete_late(self, pulling: PullCall) -> None:
        """Hand over what came for an earlier question, or to an earlier pull."""
        self._give_back_over(pulling)
        if pulling.got and not pulling.over:
            self._complete(pulling)

    def _give_back_over(self, pulling: PullCall) -> None:
        """A lease that is over is never handed out: by now another may have its message."""
        now_us = self._context.mono_us
        over = [delivery for delivery in pulling.got if delivery.deadline_us <= now_us]
        if over:
            pulling.got = [delivery for delivery in pulling.got if delivery.deadline_us > now_us]
            self._settle(pulling, RecordKind.RELEASE, over)

    def _complete(self, pulling: PullCall) -> None:
        self._give_back_over(pulling)
        got = pulling.got[: pulling.event.count]
        for delivery in got:
            delivery.handed = True
        self._finish(pulling, keep=len(got))
        self._calls.complete(pulling.event.call, got)

    def _superseded(self, pulling: PullCall) -> None:
        text = f"another pull of this name of {pulling.event.topic!r} has followed"
        self._fail(pulling, Superseded(text))

    def _fail(self, pulling: PullCall, error: DueqError) -> None:
        self._finish(pulling, keep=len(pulling.got) if pulling.followed else 0)
        self._calls.fail(pulling.event.call, error)

    def _expired(self, pulling: PullCall) -> None:
        """The caller's time is over: what has come is handed over, and nothing is an answer if anybody gave it."""
        if pulling.got or pulling.heard:
            self._complete(pulling)
            return
        text = self._links.troubles() or "no leader answered"
        unreached = Disconnected(f"no leader of {pulling.event.topic!r} could be asked in time ({text})")
        self._fail(pulling, pulling.refusal or unreached)

    def _finish(self, pulling: PullCall, keep: int) -> None:
        """The call is over: leaders that may still bring something are told, and what is too much goes back."""
        pulling.over = True
        self._unordered.pop(pulling.name, None)
        self._names.ends(pulling)
        self._waiting.end(pulling)
        if pulling.timer is not None:
            pulling.timer.cancel()
        for asked in list(pulling.asked.values()):
            self._drop(pulling, asked)
            link = self._links.route(asked.leader)
            if link is not None:
                event = pulling.event
                self._links.send(
                    link,
                    ConsumerFrame(
                        ConsumerAction.GOODBYE, event.topic, pulling.name, asked.attach, asked.attach + 1, 0,
                        0, event.lease_ms, 0, asked.leader,
                    ),
                )  # fmt: skip
        self._settle(pulling, RecordKind.RELEASE, pulling.got[keep:])
        pulling.got = []
        self._context.after(TAIL_US, lambda: self._forget(pulling))

    def _forget(self, pulling: PullCall) -> None:
        self._open.pop(pulling.name, None)
        self._by_call.pop(pulling.event.call, None)
        self._names.forget(pulling)

    def _settle(
        self, pulling: PullCall, kind: RecordKind, deliveries: Sequence[Delivery], amount_ms: int = 0
    ) -> None:
        """Give messages back; nobody waits for that."""
        timers: dict[Part, Timer] = {}

        def done(part: Part, mine: list[Delivery]) -> None:
            timers.pop(part).cancel()
            if part.error is not None and not isinstance(part.error, OutcomeUnknown):
                self._names.not_returned(pulling, mine)

        if not pulling.event.holder:
            pulling.give_up(deliveries)
        for uid in dict.fromkeys(delivery.uid for delivery in deliveries):
            mine = [delivery for delivery in deliveries if delivery.uid == uid]
            amounts = [amount_ms] * len(mine) if kind is RecordKind.NACK else []
            self._names.returns(pulling, mine)
            part = Part(
                kind,
                pulling.event.topic,
                uid,
                self._context.settling_id,
                len(mine),
                partial(done, mine=mine),
                first=np.array([delivery.first for delivery in mine], np.uint64),
                target_sequence=np.array([delivery.sequence for delivery in mine], np.uint64),
                target_row=np.array([delivery.row for delivery in mine], np.uint16),
                token=np.array([delivery.token for delivery in mine], np.uint64),
                amount_ms=np.array(amounts, np.uint64),
            )
            if pulling.event.holder:
                self._settlements.add(part)
            # Beyond the brokers' memory of requests a repetition proves nothing.
            timers[part] = self._context.after(
                limits.DEDUP_MS * 1000,
                lambda part=part: self._windows.expire(part),  # type: ignore[misc]
            )
            self._windows.submit(part)
