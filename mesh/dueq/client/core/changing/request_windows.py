"""Changing requests in flight: numbered, gathered, routed, repeated.

A *window* holds the requests of one client id to one partition. They count from 1 (or from where `_forget_windows`
has left off), and the partition's leader knows a repeated one by its number. A request keeps number, digest and rows
through all attempts, so that it takes effect once, however often it is sent.
At most REQUESTS_IN_FLIGHT_MAX numbers lie between the oldest open request and the newest: no retry within a
call can fall out of the brokers' window.

While few requests of a window are open a part goes out at once; beyond that, parts of one kind wait and share
the next request. So one caller waits for nobody, and fifty callers make one batch. Leaders answer patient
acks late, so a part that cannot wait does not count them as open. A decision about a lease waits for answers
no longer than for company: an answer takes as long as the slowest disk, and a lease may end before. Parts
that any partition may take are gathered before they have a window (`sticky_batcher`). Parts with unique keys wait
also for callers that were just answered (`returning`).
"""

from __future__ import annotations

from typing import Final

from dueq import limits
from dueq.client.core.asking.directory import Directory, Topic
from dueq.client.core.changing.bringing import Bringing
from dueq.client.core.changing.sticky_batcher import StickyBatcher
from dueq.client.core.changing.uploads import Uploads
from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Links
from dueq.client.core.links.refusals import FINAL, error_of
from dueq.client.core.ports.change import GATHER_FROM, NEVER_US, Change, Part, RequestWindow
from dueq.client.core.ports.faults import fault_of_change
from dueq.client.core.ports.timers import Timer
from dueq.errors import Busy, Disconnected, DueqError, NotLeader, OutcomeUnknown, TopicNotFound
from dueq_codecs.messages import BrokerMessage, ChangeReply, Code, Reply

SILENCE_US: Final = 1_000_000
SILENCE_US_MAX: Final = 4_000_000
REPEAT_US: Final = limits.DEDUP_MS * 1000 - 60_000_000
"""How long after its first attempt a request may be repeated; brokers forget it a while later."""
BACK_OFF_US_MIN: Final = 20_000
BACK_OFF_US_MAX: Final = 500_000
FEW: Final = 64
"""So few windows, or topics, are not worth a look at which have gone."""


class RequestWindows:
    """All changing requests of a client and of its consumers."""

    def __init__(self, context: Context, links: Links, directory: Directory, uploads: Uploads) -> None:
        self._context, self._links, self._directory, self._uploads = context, links, directory, uploads
        self._bringing = Bringing(context.client_id, self.submit, self._brought, self._not_brought)
        self._own_ids = frozenset((context.client_id, context.settling_id, self._bringing.client_id))
        self._windows: dict[tuple[bytes, int], RequestWindow] = {}
        self._first_sequence = 1
        """Of new windows of our own client ids: no forgotten one has used it."""
        self._batchers: dict[str, StickyBatcher] = {}
        self._windows_look_at = self._batchers_look_at = FEW
        self._asked: dict[int, Change] = {}
        self._parked: dict[Change, None] = {}
        self._full: dict[RequestWindow, None] = {}
        self._out_bytes = 0

    # -------------------------------------------------------------- what callers do

    def submit(self, part: Part) -> None:
        """Send a part; `part.done` is called once with its answer."""
        if part.long and not len(part.upload):
            self._uploads.start(part, self._uploaded, self._not_uploaded)
            return
        if part.anywhere and not part.alone:
            part.uid = 0
            batcher = self.batcher(part.topic)
            batcher.push(part, self._context.mono_us)
            self._gather(batcher)
            return
        window = self._window(part.client_id, part.uid)
        window.push(part, self._context.mono_us)
        self._pump(window)

    def batcher(self, topic: str) -> StickyBatcher:
        """Return the state that this client's inserts into a topic share."""
        batcher = self._batchers.get(topic)
        if batcher is None:
            if len(self._batchers) >= self._batchers_look_at:
                self._forget_batchers()
            batcher = self._batchers[topic] = StickyBatcher(self._context.client_id)
        return batcher

    def repeat(self, part: Part) -> None:
        """Send a failed part again: the same request if its outcome is not known, else a new one."""
        change, known = part.change, not isinstance(part.error, OutcomeUnknown)
        part.error = None
        if change is not None and change.first_us is not None and len(part.key_high):
            # Nobody remembers the request itself any more, but its keys do.
            part.retry = part.retry or (not known and self._context.mono_us - change.first_us >= REPEAT_US)
            known = known or part.retry
        if change is None or known:
            part.change = None
            self.submit(part)
            return
        change.waiting[part] = None
        if change.sequence not in change.window.open:
            self._open(change)
            self._send(change)

    def expire(self, part: Part) -> None:
        """The caller's time is over: fail the part with what is known about it."""
        if part.resolved:
            return
        change = part.change
        if change is None:
            part.fail(self._unsent(part))
            return
        self._uploads.stop(part)
        if change.link:
            # Sent and not answered: its outcome is unknown, whatever a later repetition of the request is
            # told.
            change.uncertain = True
        error = self._unknown(change) if change.uncertain else change.refusal or self._unreached(part)
        change.waiting.pop(part, None)
        if not change.waiting:
            self._close(change)
        elif not change.uncertain:
            # Otherwise its rows would be sent with others, after the caller was told that they were not.
            self._share_anew(change)
        part.fail(error)

    def abandon(self, part: Part) -> None:
        """Nobody wants the answer: do not send parts that were not sent yet."""
        if not part.resolved:
            self.expire(part)

    # -------------------------------------------------------------- what happens

    def answered(self, message: BrokerMessage) -> bool:
        """Take an answer; False if it is to nothing here."""
        if not isinstance(message, ChangeReply | Reply):
            return False
        change = self._asked.get(message.request_id)
        if change is None:
            return False
        if message.code is Code.OK:
            change.window.heard(change.sequence, self._context.mono_us)
            self._maybe_succeeded(change, message)
        elif message.code is Code.UNKNOWN_UPLOAD and not len(change.request.upload):
            self._context.refuse(message, "the request names no upload")
        elif message.code is Code.UNKNOWN_BODY and self._bringing.wants(change):
            change.link, change.refusal = 0, error_of(message.code, message.text)
            change.set_timer(None)
        elif message.code in FINAL:
            # From a record: earlier attempts, if any has arrived, have done nothing either.
            settled = isinstance(message, ChangeReply) and message.epoch > 0
            self._refused(change, error_of(message.code, message.text), settled=settled)
        elif message.code is Code.OUTCOME_UNKNOWN and isinstance(message, ChangeReply) and message.epoch > 0:
            self._forgotten(change, message)
        else:
            self._postponed(change, message)
        return True

    def link_up(self) -> None:
        """Send what waited for a link."""
        for change in list(self._parked):
            self._send(change)

    def link_down(self, number: int) -> None:
        """Requests that went by that link may or may not have arrived: ask for the leader and repeat them."""
        for change in [change for change in self._asked.values() if change.link == number]:
            change.uncertain, change.link = True, 0
            self._directory.refresh(change.request.topic)
            self._later(change, self._context.jittered(BACK_OFF_US_MIN))

    def topic_changed(self, topic: Topic) -> None:
        """New leaders are known: send what waited for one, and what went to an earlier leader, which may
        never answer.

        The same broker in a later epoch is another leader: a relayed request may have died with its first
        life. (Its own link would have reported that.)
        """
        name = topic.info.name
        for change in [change for change in self._asked.values() if change.request.topic == name]:
            uid = change.request.uid
            leader = topic.leader(uid)
            link = self._links.get(change.link)
            relayed = link is not None and link.broker_id != change.to
            earlier = change.to != leader or (relayed and change.epoch < topic.epoch(uid))
            # Without a timer it waits for its payloads to be uploaded.
            moved = bool(leader and change.to) and change.timer is not None and earlier
            if moved and change.link:
                change.uncertain = True
            if moved or change in self._parked:
                self._send(change)

    def topic_gone(self, name: str, error: DueqError) -> None:
        """The topic is no more."""
        for change in [change for change in self._asked.values() if change.request.topic == name]:
            self._refused(change, error)

    # -------------------------------------------------------------- sending

    def _window(self, client_id: bytes, uid: int) -> RequestWindow:
        window = self._windows.get((client_id, uid))
        if window is None:
            if len(self._windows) >= self._windows_look_at:
                self._forget_windows()
            window = self._windows[client_id, uid] = RequestWindow(uid)
            if client_id in self._own_ids:
                window.next_sequence = self._first_sequence
        return window

    def _forget_windows(self) -> None:
        """Let go of windows of topics that are no more, unless something is under way in them.

        Should a partition come back, as brokers that were behind had not heard of it, no number is used twice. What
        `NumberedProducer` sends has numbers from 1 on whatever was forgotten, so its windows stay.
        """
        known = self._directory.uids()
        for (client_id, uid), window in list(self._windows.items()):
            if client_id in self._own_ids and uid not in known and not window.open and not window.waiting:
                self._first_sequence = max(self._first_sequence, window.next_sequence)
                del self._windows[client_id, uid]
        self._windows_look_at = max(2 * len(self._windows), FEW)

    def _forget_batchers(self) -> None:
        """The same for what is known of inserts into a topic."""
        for topic, batcher in list(self._batchers.items()):
            if not self._directory.knows(topic) and not batcher.open and not batcher.waiting:
                del self._batchers[topic]
        self._batchers_look_at = max(2 * len(self._batchers), FEW)

    def _pump(self, window: RequestWindow) -> None:
        while window.may_send(self._context.mono_us):
            if self._out_bytes >= limits.CLIENT_OUT_BYTES_MAX and window.head.bytes:
                self._full[window] = None
                return
            change = Change(window, window.take(), self._context.next_request(), window.next_sequence)
            if any(part.long for part in change.parts):
                change.set_uploads()
            window.next_sequence += 1
            self._open(change)
            self._send(change)
        self._wait(window)

    def _wait(self, window: RequestWindow) -> None:
        """Look again when the first of the waiting parts has waited long enough."""
        at_us, now_us = window.look_us, self._context.mono_us
        if window.timer is not None and window.timer.at_us != at_us:
            window.timer.cancel()
            window.timer = None
        if window.timer is None and now_us < at_us < NEVER_US:
            window.timer = self._context.after(at_us - now_us, lambda: self._overdue(window))

    def _overdue(self, window: RequestWindow) -> None:
        window.timer = None
        self._pump(window)

    def _open(self, change: Change) -> None:
        change.window.open[change.sequence] = change
        self._asked[change.request.request_id] = change
        self._out_bytes += change.bytes
        if change.anywhere:
            self.batcher(change.request.topic).open += 1

    def _gather(self, batcher: StickyBatcher) -> None:
        """Give the next partition the waiting rows, or set a timer for when they have waited long enough."""
        if not batcher.waiting:
            return
        if not batcher.uids:
            self._look_up(batcher)
            return
        now_us = self._context.mono_us
        until_us = batcher.waits_until_us()
        if until_us > now_us:
            if batcher.timer is None or batcher.timer.at_us > until_us:
                self._look_again(
                    batcher, self._context.after(until_us - now_us, lambda: self._waited(batcher))
                )
            return
        self._look_again(batcher, None)
        parts = batcher.take()
        window = self._free_window(batcher)
        for part in parts:
            part.uid = window.uid
            window.push(part, self._context.mono_us)
        self._pump(window)

    def _look_up(self, batcher: StickyBatcher) -> None:
        """Inserts are repeated into a topic that was forgotten since: ask for its partitions."""

        def found(topic: Topic | DueqError) -> None:
            if isinstance(topic, Topic):
                batcher.uids = topic.uids
                self._gather(batcher)
                return
            for part in batcher.take():
                part.fail(topic)

        name = next(iter(batcher.waiting)).topic
        self._directory.ensure(name, found, lambda: bool(batcher.waiting))

    def _free_window(self, batcher: StickyBatcher) -> RequestWindow:
        """The next partition's window, unless it has unanswered requests."""
        client_id = self._context.client_id
        window = self._window(client_id, batcher.next_uid())
        for _ in batcher.uids[1:]:
            if len(window.open) < GATHER_FROM:
                break
            window = self._window(client_id, batcher.next_uid())
        return window

    @staticmethod
    def _look_again(batcher: StickyBatcher, timer: Timer | None) -> None:
        if batcher.timer is not None:
            batcher.timer.cancel()
        batcher.timer = timer

    def _waited(self, batcher: StickyBatcher) -> None:
        batcher.timer = None
        self._gather(batcher)

    def _send(self, change: Change) -> None:
        request, now_us = change.request, self._context.mono_us
        if change.first_us is not None and now_us - change.first_us >= REPEAT_US and change.uncertain:
            for part in list(change.waiting):
                self.expire(part)
            return
        leader = self._directory.leader(request.topic, request.uid)
        link = self._links.route(leader, avoid=change.link) if leader else None
        if link is None:
            change.link = 0
            self._park(change)
            return
        self._parked.pop(change, None)
        change.attempts += 1
        if change.first_us is None:
            change.first_us = now_us
        change.link, change.to = link.number, leader
        change.epoch = self._directory.epoch(request.topic, request.uid)
        self._links.send(link, request, change.bodies)
        silence_us = min(SILENCE_US << min(change.attempts - 1, 2), SILENCE_US_MAX)
        self._await_answer(change, now_us, silence_us)

    def _park(self, change: Change) -> None:
        """No leader, or no link: wait for news, and ask for them."""
        self._parked[change] = None
        change.set_timer(self._context.after(BACK_OFF_US_MAX, lambda: self._send(change)))
        self._directory.refresh(change.request.topic)

    def _await_answer(self, change: Change, sent_us: int, silence_us: int) -> None:
        """Repeat a request after a silence.

        While requests before it are answered OK, a loaded leader has yet to come to it: the silence begins with the
        last such answer, as TCP's timer does (RFC 6298, 5.3), but ends SILENCE_US_MAX after it was sent.
        """
        since_us = max(sent_us, change.window.heard_before_us(change.sequence))
        until_us, now_us = min(since_us + silence_us, sent_us + SILENCE_US_MAX), self._context.mono_us
        if until_us <= now_us:
            self._silent(change)
            return
        change.set_timer(
            self._context.after(until_us - now_us, lambda: self._await_answer(change, sent_us, silence_us))
        )

    def _silent(self, change: Change) -> None:
        change.uncertain = True
        self._directory.refresh(change.request.topic)
        self._send(change)

    def _later(self, change: Change, delay_us: int) -> None:
        change.set_timer(self._context.after(delay_us, lambda: self._send(change)))

    # -------------------------------------------------------------- answers

    def _maybe_succeeded(self, change: Change, reply: ChangeReply | Reply) -> None:
        fault = "it says nothing of rows"
        if isinstance(reply, ChangeReply):
            fault = fault_of_change(change.request, reply) or ""
            if not fault:
                self._succeeded(change, reply)
                return
        # It may well have taken effect: the repetition is told what came of it.
        change.uncertain = True
        self._context.refuse(reply, fault)

    def _succeeded(self, change: Change, reply: ChangeReply) -> None:
        for part in self._close(change):
            part.succeed(reply)

    def _refused(self, change: Change, error: DueqError, *, settled: bool = False) -> None:
        """A final refusal. Of many callers only the one at fault shall get it.

        Args:
            change: what was refused.
            error: why.
            settled: no attempt has changed anything; else that holds only if this was the first.
        """
        if change.uncertain and not settled:
            unknown = self._unknown(change, f"; an attempt that came later was refused: {error}")
            unknown.__cause__ = error
            error = unknown
        if len(change.parts) > 1 and not change.uncertain and not isinstance(error, TopicNotFound):
            for part in change.waiting:
                part.alone = True
            self._share_anew(change)
            return
        for part in self._close(change):
            part.fail(error)

    def _forgotten(self, change: Change, reply: ChangeReply) -> None:
        """From a record: no leader will ever know. An open request would keep those after the next 128 from going."""
        request = change.request
        text = f"whether {request.kind.name} {request.sequence} of {request.rows} rows at partition {request.uid} of"
        error = OutcomeUnknown(
            f"{text} {request.topic!r} has taken effect is not known any more: {reply.text}"
        )
        for part in self._close(change):
            part.fail(error)

    def _share_anew(self, change: Change) -> None:
        """Nothing of a request was appended: parts that are still wanted go with other requests."""
        for part in self._close(change):
            part.change = None
            self.submit(part)

    def _postponed(self, change: Change, reply: ChangeReply | Reply) -> None:
        code, request = reply.code, change.request
        change.link = 0
        back_off_us = min(BACK_OFF_US_MIN << min(change.attempts, 6), BACK_OFF_US_MAX)
        if code is Code.UNKNOWN_UPLOAD:
            self._upload_again(change)
            return
        if code is Code.NOT_LEADER:
            hint = reply.leader if isinstance(reply, ChangeReply) else ""
            news = hint not in ("", change.to)
            self._directory.hint(request.topic, request.uid, hint if news else "")
            if news and change.attempts <= 2:
                self._send(change)
                return
            self._directory.refresh(request.topic)
        elif code is Code.OUTCOME_UNKNOWN:
            change.uncertain = True
            self._directory.refresh(request.topic)
        elif code is Code.TOPIC_NOT_FOUND:
            self._directory.refresh(request.topic, lambda topic: self._verified(change, topic))
        else:
            change.refusal = error_of(code, reply.text, reply.retry_after_ms)
            back_off_us = max(back_off_us, reply.retry_after_ms * 1000)
        self._later(change, self._context.jittered(back_off_us))

    def _verified(self, change: Change, topic: Topic | DueqError) -> None:
        """A broker did not know the partition: check whether it is really gone."""
        request = change.request
        if (
            isinstance(topic, Topic)
            and request.uid not in topic.partitions
            and request.request_id in self._asked
        ):
            text = f"topic {request.topic!r} was made anew; partition {request.uid} is no more"
            self._refused(change, TopicNotFound(text))

    def _close(self, change: Change) -> list[Part]:
        """The request is answered, or nobody waits for it; returns the parts that did, and takes them off it.

        A part that kept waiting for it would keep it open if another part repeats it and gives up.
        """
        parts, change.waiting = list(change.waiting), {}
        change.set_timer(None)
        self._parked.pop(change, None)
        self._bringing.forget(change)
        for part in change.parts:
            self._uploads.stop(part)  # begun again while another copy of the request was in flight
        if self._asked.pop(change.request.request_id, None) is not None:
            self._out_bytes -= change.bytes
            if change.anywhere:
                batcher = self.batcher(change.request.topic)
                batcher.answered(len(change.parts), self._context.mono_us)
                self._gather(batcher)
        change.window.answered(change, self._context.mono_us)
        self._pump(change.window)
        if self._full and self._out_bytes < limits.CLIENT_OUT_BYTES_MAX:
            windows, self._full = list(self._full), {}
            for window in windows:
                self._pump(window)
        return parts

    # -------------------------------------------------------------- uploads and shared bodies

    def _uploaded(self, part: Part) -> None:
        """All long payloads of a part are on the brokers' disks."""
        if part.resolved:
            return
        change = part.change
        if change is None:
            self.submit(part)
        elif change.request.request_id in self._asked:
            change.set_uploads()
            self._send(change)

    def _not_uploaded(self, part: Part, error: DueqError) -> None:
        """A long payload is refused; a copy of its request may have been appended before."""
        change = part.change
        if change is None:
            part.fail(error)
        elif change.request.request_id in self._asked:
            self._refused(change, error)

    def _brought(self, change: Change) -> None:
        """The partition has the shared body now."""
        if change.request.request_id in self._asked:
            self._send(change)

    def _not_brought(self, change: Change, error: DueqError) -> None:
        """The partition does not take the shared body."""
        if change.request.request_id in self._asked:
            self._refused(change, error)

    def _upload_again(self, change: Change) -> None:
        change.set_timer(None)
        for part in change.parts:
            self._uploads.start(part, self._uploaded, self._not_uploaded)

    # -------------------------------------------------------------- error texts

    def _where(self, part: Part) -> str:
        return f"partition {part.uid} of {part.topic!r}" if part.uid else f"topic {part.topic!r}"

    def _unsent(self, part: Part) -> DueqError:
        upload_error = self._uploads.stop(part)
        if upload_error is not None:
            return upload_error
        if not part.uid:
            self.batcher(part.topic).remove(part)
        else:
            self._window(part.client_id, part.uid).remove(part)
        if not self._links.up():
            return self._unreached(part)
        text = f"{part.kind.name} of {part.rows} rows waited in vain for its turn at {self._where(part)}"
        return Busy(f"{text}; nothing was sent, a retry can help")

    def _unreached(self, part: Part) -> DueqError:
        troubles = self._links.troubles()
        if self._links.up():
            return NotLeader(
                f"{self._where(part)} has no leader just now; nothing was changed, a retry can help"
            )
        return Disconnected(
            f"no broker could be reached for {self._where(part)} ({troubles}); nothing was sent"
        )

    def _unknown(self, change: Change, why: str = "") -> OutcomeUnknown:
        request = change.request
        return OutcomeUnknown(
            f"no answer to {request.kind.name} {request.sequence} of {request.rows} rows at partition "
            f"{request.uid} of {request.topic!r} after {change.attempts} attempts: it may or may not have "
            f"taken effect; retry() repeats the same request safely for 15 minutes{why}"
        )
