"""Pulls: a consumer for one answer, whose leases last without it.

    PULL ──► credit stands in line ──► leased, detached ──► pushed at one instant ──► answered: ended
                  │ nothing is ready for `wait_ms`                                        ▲
                  └───────────────────────────────────────────────────────────────────────┘

A pull waits for messages as consumers do, and its pushes go the same way. All its messages are due at one instant,
so its answer need not wait. It is over when all of them have left; those that cannot leave soon go back, uncounted.
From then on its leases belong to no session, so neither silence nor a goodbye ends them.

A lost answer is repaired as for consumers: the pull is repeated with a larger `attach` and the leases that have
arrived. The holder's other leases are pushed again under the same token. In the same way a pull by a name gets what an
earlier one of its process had. What one of another process had comes under new tokens (`renewals`): a RELEASE that this
process has sent may still be on its way. So such a lease names both: the first half of `holder`, which is the name, and
the first half of the pull's id, which is the process.

If several pulls have one name, the last one waits on (`pull_names`). The others are told so, and again if they ask
again.

A pull is never believed to wait for longer than PULL_WAIT_MS after it was last heard of. A client that waits for longer
repeats it, or lists it with others in a WAITING, which costs next to nothing.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final

import numpy as np

from dueq import limits
from dueq.core.delivery.consumers import Consumers, ConsumerSession
from dueq.core.delivery.departed import Departed
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.leases import NEVER_US, NO_SLOTS, Phase, total
from dueq.core.delivery.pull_names import PullNames
from dueq.core.delivery.renewals import Renewals
from dueq.core.delivery.resending import Resending, held_by
from dueq.core.ports.entry import FLAG_DETACHED, keys_of
from dueq.core.ports.events import Route
from dueq.core.state.entry_rows import Slots
from dueq.instant import Now
from dueq_codecs.fields import ID_BYTES
from dueq_codecs.messages import BrokerMessage, Code, ConsumerFrame, ConsumerReply, Push
from dueq_codecs.records import LEVEL_OF_KINDS

GATHER_US: Final = 50_000
"""How long the rest of an answer may follow its first push."""
CHUNK_US: Final = 200_000
"""The same after a chunk: a long payload that always comes with short ones would never be pulled if it went back."""
GRACE_US: Final = 1_000_000
"""How long after a pull's time, or after the last chunk, the messages dealt to it may still be committed and pushed."""
HEARD_US: Final = 200_000
"""A pull that waits is told after this time that it has arrived."""
KEPT_US: Final = 2_000_000
"""How long it is remembered where the pushes of a pull went, since they may come back unsent."""
ENDED_MAX: Final = 65_536
"""Ended pulls that are remembered, so that a late frame opens none of them again."""
NAME_BYTES: Final = 8
"""Of a `holder`."""
PROCESS_BYTES: Final = 8
"""Of the id of a pull."""
_FOLLOWED: Final = "another pull of this name has followed"


class Pull:
    """One pull that is not over.

    Attributes:
        session: what is dealt to it, and where its pushes go.
        name: to which its messages are leased; empty: to it alone.
        number: of its last frame.
        until_us: (mono) how long it waits for a message.
        heard_us: (mono) when it is to be told that it has arrived; NEVER_US: it was.
        first_us: (mono) when its first push left; NEVER_US: none has.
        armed_us: (mono) when it is looked at next; NEVER_US: when something happens.
    """

    __slots__ = ("armed_us", "first_us", "heard_us", "name", "number", "session", "until_us")

    def __init__(self, session: ConsumerSession, name: bytes) -> None:
        self.session, self.name = session, name
        self.number = 0
        self.until_us = self.heard_us = self.first_us = self.armed_us = NEVER_US

    @property
    def is_ending(self) -> bool:
        """Something was pushed to it, or its time is over and nothing new is dealt to it."""
        return self.first_us != NEVER_US or self.session.push_number > 0 or not self.session.credit

    @property
    def next_us(self) -> int:
        """(mono) when to look at it though nothing has happened."""
        end_us = self.until_us if self.first_us == NEVER_US else self.first_us + GATHER_US
        return min(end_us, self.heard_us)


class Pulls:
    """The pulls of one topic at this leader.

    Args:
        topic, broker_id, incarnation: named in every reply.
        lanes: the led partitions, by uid; the dispatcher's own.
        send: takes a reply on its way.
    """

    def __init__(
        self,
        topic: str,
        broker_id: str,
        incarnation: int,
        consumers: Consumers,
        lanes: dict[int, Lane],
        resending: Resending,
        renewals: Renewals,
        send: Callable[[Route, BrokerMessage], None],
    ) -> None:
        self._topic = topic
        self._broker_id, self._incarnation = broker_id, incarnation
        self._consumers, self._lanes = consumers, lanes
        self._resending, self._renewals = resending, renewals
        self._send = send
        self._open: dict[bytes, Pull] = {}
        self._named: dict[bytes, Pull] = {}  # the open pull of each name
        self._over = Departed(ENDED_MAX)
        self._names = PullNames()
        # Sessions of pulls that ended lately, and when.
        self._recent: OrderedDict[bytes, tuple[int, ConsumerSession]] = OrderedDict()
        self._timers: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._open)

    @property
    def next_us(self) -> int:
        """(mono) when `step` has something to do."""
        return self._timers[0][0] if self._timers else NEVER_US

    # -------------------------------------------------------------- frames

    def frame(self, route: Route, frame: ConsumerFrame, now: Now) -> None:
        """Begin a pull, or begin it anew; it is answered when it is over."""
        code, text = self._fault(frame)
        if code is not Code.OK:
            self._reply(route, frame.consumer_id, frame.attach, frame.number, code, text, now=now)
            return
        if self._over.has_ended(frame.consumer_id, frame.attach, now.mono_us):
            return
        pull = self._open.get(frame.consumer_id)
        if pull is not None and frame.attach <= pull.session.attach:
            return
        if pull is None and self._is_followed(frame, now):
            code, text = Code.UNKNOWN_SESSION, _FOLLOWED
            self._reply(route, frame.consumer_id, frame.attach, frame.number, code, text, ended=True, now=now)
            return
        goes_on = pull is None and self._goes_on(route, frame, now)
        may_renew = not self._names.has_later(_name_of(frame), frame.life)
        if pull is None:
            pull = self._begin(frame, now)
        session = pull.session
        session.route = route
        session.begin_attach(frame)
        session.heard_us = now.mono_us
        session.restate(frame)
        pull.number = frame.number
        pull.until_us = now.mono_us + frame.wait_ms * 1000
        pull.heard_us = NEVER_US if goes_on else now.mono_us + HEARD_US
        pull.first_us = NEVER_US
        session.dealt_ms = None
        self._bring_back(pull, frame, may_renew, now)
        self._consumers.offer(session, now)
        self._arm(pull)

    def waiting(self, route: Route, frame: ConsumerFrame, now: Now) -> None:
        """A client says which of its pulls go on waiting; it is told which of these do not wait here."""
        code, text = self._fault_of_list(frame)
        over: list[int] = []
        if code is Code.OK:
            names = (frame.pulls[at : at + ID_BYTES] for at in range(0, len(frame.pulls), ID_BYTES))
            listed = zip(names, frame.pull_attach.tolist(), frame.pull_wait_ms.tolist(), strict=True)
            for place, (name, attach, wait_ms) in enumerate(listed):
                pull = self._open.get(name)
                if pull is None or pull.session.attach != attach or pull.session.route != route:
                    over.append(place)
                elif not pull.is_ending:
                    pull.until_us = now.mono_us + wait_ms * 1000
                    pull.session.heard_us = now.mono_us
                    self._arm(pull)
                    self._consumers.offer(pull.session, now)
        self._reply(route, frame.consumer_id, frame.attach, frame.number, code, text, over=over, now=now)

    def _fault_of_list(self, frame: ConsumerFrame) -> tuple[Code, str]:
        if not self._lanes:
            return Code.NOT_LEADER, f"no partition of {self._topic!r} is led here"
        if len(frame.pull_attach) > limits.PULLS_MAX:
            text = f"{len(frame.pull_attach)} pulls are listed: more than {limits.PULLS_MAX}"
            return Code.INVALID_REQUEST, text
        longest_ms = max(frame.pull_wait_ms.tolist(), default=0)
        if longest_ms > limits.PULL_WAIT_MS:
            return Code.INVALID_REQUEST, f"a pull waits {limits.PULL_WAIT_MS} ms, not {longest_ms}"
        return Code.OK, ""

    def _goes_on(self, route: Route, frame: ConsumerFrame, now: Now) -> bool:
        """Whether the pull has just had an answer by the same way: then it need not be told that it has arrived."""
        ended_us, session = self._recent.get(frame.consumer_id, (0, None))
        return session is not None and session.route == route and ended_us > now.mono_us - KEPT_US

    def _fault(self, frame: ConsumerFrame) -> tuple[Code, str]:
        most = limits.PULL_ROWS_MAX
        if not self._lanes:
            return Code.NOT_LEADER, f"no partition of {self._topic!r} is led here"
        if frame.credit > most:
            return Code.INVALID_REQUEST, f"a pull is of at most {most} messages, not {frame.credit}"
        if len(frame.held_uid) > limits.CONSUMER_LEASES_MAX:
            text = f"{len(frame.held_uid)} leases are held: more than {limits.CONSUMER_LEASES_MAX}"
            return Code.INVALID_REQUEST, text
        if frame.wait_ms > limits.PULL_WAIT_MS:
            return Code.INVALID_REQUEST, f"a pull waits {limits.PULL_WAIT_MS} ms, not {frame.wait_ms}"
        if any(lane.partition.level < LEVEL_OF_KINDS for lane in self._lanes.values()):
            return Code.BUSY, "some replica runs an older version, which knows no detached leases"
        if len(self._open) >= limits.PULLS_MAX and frame.consumer_id not in self._open:
            return Code.BUSY, f"{limits.PULLS_MAX} pulls of the topic wait at this leader"
        return Code.OK, ""

    def _is_followed(self, frame: ConsumerFrame, now: Now) -> bool:
        """Whether another pull of its name has followed."""
        if not (name := _name_of(frame)):
            return False
        other = self._named.get(name)
        life = 0 if other is None else other.session.life
        return self._names.is_followed(name, frame.consumer_id, frame.life, life, now.mono_us)

    def _begin(self, frame: ConsumerFrame, now: Now) -> Pull:
        name, consumer_id = _name_of(frame), frame.consumer_id
        if name:
            consumer_id = name + consumer_id[:PROCESS_BYTES]
            other = self._named.get(name)
            if other is not None:
                self._end(other, now, Code.UNKNOWN_SESSION, _FOLLOWED)
            self._names.begins(name, frame.consumer_id, frame.life, now.mono_us)
        pull = Pull(self._consumers.open_pull(frame.consumer_id, consumer_id, now), name)
        self._open[frame.consumer_id] = pull
        if name:
            self._named[name] = pull
        return pull

    def _bring_back(self, pull: Pull, frame: ConsumerFrame, may_renew: bool, now: Now) -> None:
        """Bring what the holder has of earlier answers, and did not list; `may_renew`: no later pull had its name."""
        session = pull.session
        held = held_by(frame)
        high, process = np.frombuffer(session.consumer_id, ">u8").tolist()
        for lane in self._lanes.values():
            leases = lane.leases
            if not len(leases):
                continue
            rows, phase = leases.entry[: leases.high], leases.phase[: leases.high]
            mine = rows["consumer_high"] == high
            if not pull.name:
                mine &= rows["consumer_low"] == process
            mine &= ((phase == Phase.PUSHED) | (phase == Phase.AGAIN)) & (rows["flags"] & FLAG_DETACHED != 0)
            slots = np.flatnonzero(mine)
            if not len(slots):
                continue
            pairs = held.get(lane.uid, {})
            keys, tokens = keys_of(rows.take(slots)).tolist(), leases.token[slots].tolist()
            lacks = np.array([pairs.get(key) != token for key, token in zip(keys, tokens, strict=True)])
            leases.stay_pushed(slots[~lacks])
            slots = slots[lacks]
            own = rows["consumer_low"][slots] == process
            others = self._renewals.choose(lane, slots[~own], session) if may_renew else NO_SLOTS
            self._take_over(lane, np.concatenate((slots[own], others)), session, now)
            self._resending.push_again(lane, slots[own])
            self._renewals.want(lane, others)

    def _take_over(self, lane: Lane, slots: Slots, session: ConsumerSession, now: Now) -> None:
        leases = lane.leases
        others = slots[leases.owner[slots] != session.number_here]
        if len(others):
            sizes = leases.entry["size"][others]
            self._consumers.give_back(leases.owner[others], sizes, now)
            leases.owner[others] = session.number_here
            session.rows_out += len(others)
            session.bytes_out += total(sizes)
        if len(slots):
            self._consumers.note_pull(session)

    def goodbye(self, frame: ConsumerFrame, now: Now) -> bool:
        """Nobody waits for this pull any more; its pushed messages stay leased. Returns whether it was open."""
        pull = self._open.get(frame.consumer_id)
        ends = pull is not None and pull.session.attach <= frame.attach
        if pull is not None and ends:
            pull.number = frame.number
            self._end(pull, now)
        self._over.note(frame.consumer_id, frame.attach, now.mono_us)
        return ends

    # -------------------------------------------------------------- what happens

    def route_lost(self, route: Route, unsent: BrokerMessage, now: Now) -> None:
        """Nothing arrives there: messages that have not left go to others, and so do those of a push that came back."""
        for pull in [pull for pull in self._open.values() if pull.session.route == route]:
            self._close(pull, now)
        if not isinstance(unsent, Push):
            return
        _, session = self._recent.get(unsent.consumer_id, (0, None))
        if session is not None and unsent.attach == session.attach:
            self._resending.return_unsent(session, unsent.number, now)

    def moved(self, now: Now) -> None:
        """Another broker leads what this one has led: pulls without an answer are to look for it."""
        for pull in list(self._open.values()):
            if not pull.session.rows_out or not self._lanes:
                self._end(pull, now, Code.NOT_LEADER, "a partition has another leader")

    def shift(self, gap_us: int) -> None:
        """The process was paused."""
        for pull in self._open.values():
            pull.session.shift(gap_us)
            for name in ("until_us", "heard_us", "first_us", "armed_us"):
                if (at_us := getattr(pull, name)) < NEVER_US:
                    setattr(pull, name, at_us + gap_us)
        self._timers = [(at_us + gap_us, name) for at_us, name in self._timers]
        recent = self._recent.items()
        self._recent = OrderedDict(
            (name, (ended_us + gap_us, session)) for name, (ended_us, session) in recent
        )

    # -------------------------------------------------------------- work

    def step(self, now: Now) -> None:
        """Answer the pulls that are over: to be called when all has been leased and pushed that can be now."""
        names = [session.pull for session in self._consumers.dealt_pulls.values()]
        dealt = len(names)
        while self._timers and self._timers[0][0] <= now.mono_us:
            at_us, name = heappop(self._timers)
            pull = self._open.get(name)
            if pull is not None and pull.armed_us == at_us:
                pull.armed_us = NEVER_US
                names.append(name)
        coming = self._coming(names)
        for place, name in enumerate(names):
            pull = self._open.get(name)
            if pull is not None:
                self._look(pull, coming[pull.session.number_here], now)
                if place >= dealt and name in self._open:
                    self._arm(pull, now)

    def _look(self, pull: Pull, coming: int, now: Now) -> None:
        session = pull.session
        if pull.first_us == NEVER_US and session.push_number:
            pull.first_us = now.mono_us
            self._arm(pull)
        if session.push_number:
            if not coming or now.mono_us >= max(pull.first_us + GATHER_US, session.chunk_us + CHUNK_US):
                self._end(pull, now, whole=not coming)
        elif coming:
            if now.mono_us >= pull.until_us:
                session.credit = 0
            if now.mono_us >= max(pull.until_us, session.chunk_us) + GRACE_US:
                self._end(pull, now)
        elif now.mono_us >= pull.until_us:
            self._end(pull, now)
        else:
            self._wait_on(pull, now)

    def _wait_on(self, pull: Pull, now: Now) -> None:
        """Nothing is on its way to it, perhaps not any more: it stands in line again."""
        session = pull.session
        session.dealt_ms = None
        self._consumers.dealt_pulls.pop(session.number_here, None)
        self._consumers.offer(session, now)
        if now.mono_us >= pull.heard_us:
            pull.heard_us = NEVER_US
            session.heard_us = now.mono_us
            assert session.route is not None
            self._reply(session.route, session.pull, session.attach, pull.number, Code.OK, "", now=now)

    def _coming(self, names: list[bytes]) -> Counter[int]:
        """Return how many leases of these pulls have not been pushed, by the numbers of their sessions."""
        sessions = [self._open[name].session for name in names if name in self._open]
        numbers = {session.number_here for session in sessions if session.rows_out}
        coming: Counter[int] = Counter()
        for lane in self._lanes.values() if numbers else ():
            if len(lane.leases):
                coming.update([owner for owner in lane.leases.coming().tolist() if owner in numbers])
        return coming

    def _arm(self, pull: Pull, now: Now | None = None) -> None:
        """Look at it in time; `now`: after that, since it was looked at."""
        at_us = pull.next_us
        if now is not None and at_us <= now.mono_us:
            at_us = now.mono_us + GATHER_US
        if at_us < pull.armed_us:
            pull.armed_us = at_us
            heappush(self._timers, (at_us, pull.session.pull))

    # -------------------------------------------------------------- ends

    def _end(
        self, pull: Pull, now: Now, code: Code = Code.OK, text: str = "", *, whole: bool = False
    ) -> None:
        """Answer; messages that have not left go back; `whole`: there are none."""
        session = pull.session
        route, sent = session.route, session.push_number
        self._close(pull, now, whole=whole)
        if route is not None:
            number = pull.number
            self._reply(
                route, session.pull, session.attach, number, code, text, sent=sent, ended=True, now=now
            )

    def _close(self, pull: Pull, now: Now, *, whole: bool = False) -> None:
        session = pull.session
        del self._open[session.pull]
        if self._named.get(pull.name) is pull:
            del self._named[pull.name]
            self._names.ends(pull.name, session.pull, now.mono_us)
        for lane in self._lanes.values() if session.rows_out and not whole else ():
            slots = _unpushed(lane, session)
            again = lane.leases.phase[slots] == Phase.AGAIN
            lane.leases.stay_pushed(slots[again])
            if len(slots) > int(again.sum()):
                lane.end_now(slots[~again], now)
        self._renewals.forget(session)
        self._consumers.drop(session)
        self._over.note(session.pull, session.attach, now.mono_us)
        self._recent.pop(session.pull, None)
        self._recent[session.pull] = now.mono_us, session
        while len(self._recent) > limits.PULLS_MAX or self._is_old(now):
            self._recent.popitem(last=False)

    def _is_old(self, now: Now) -> bool:
        return bool(self._recent) and next(iter(self._recent.values()))[0] < now.mono_us - KEPT_US

    def _reply(
        self,
        route: Route,
        name: bytes,
        attach: int,
        number: int,
        code: Code,
        text: str,
        *,
        sent: int = 0,
        ended: bool = False,
        over: Sequence[int] = (),
        now: Now,
    ) -> None:
        self._send(
            route,
            ConsumerReply(
                self._topic, name, attach, number, code, text, 0, sent, self._broker_id, 0, self._incarnation,
                now.mono_us, ended, np.array(over, np.uint32),
            ),
        )  # fmt: skip


def _name_of(frame: ConsumerFrame) -> bytes:
    """Return the name by which a pull is leased to; empty: it is leased to this pull alone."""
    return frame.holder[:NAME_BYTES] if frame.holder != frame.consumer_id else b""


def _unpushed(lane: Lane, session: ConsumerSession) -> Slots:
    """Return the slots of a pull's leases that have not been pushed (again)."""
    slots = lane.leases.of_owner(session.number_here)
    phase = lane.leases.phase[slots]
    waits = ((phase >= Phase.PROPOSED) & (phase <= Phase.WITHHELD)) | (phase == Phase.AGAIN)
    found: Slots = slots[waits]
    return found
