"""Planted bugs of windows, versions that are expected, pulls, and leases that go to a newer process."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

CONDITIONAL: Final = (
    Bug(
        "versions-ignored",
        "A message is changed whatever version was expected.",
        "compare and swap; RFC 9110, If-Match",
        (
            change(
                "core.partition.proposals:Proposals._fill",
                "if any(len(r.expected) for r in requests):",
                "if False:",
            ),
        ),
        seeds=774,
        finders=(258,),
    ),
    Bug(
        "window-too-wide",
        "An instant is chosen beyond the end of its window.",
        "`window` of schedule: in [due, due + window]",
        (
            change(
                "core.partition.proposals:Proposals._choose",
                "self._windows.choose(record.due, _joined(widths),",
                "self._windows.choose(record.due, _joined(widths) * np.uint32(3),",
            ),
        ),
        seeds=774,
        finders=(258,),
    ),
    Bug(
        "window-not-answered",
        "The answer does not say which instants were chosen, so the client makes wrong ids.",
        "`first` of a message id: the instant at which it begins to wait",
        (change("core.partition.proposals:Proposals._answer", "window=result.window,", ""),),
        seeds=774,
        finders=(258,),
    ),
    Bug(
        "pull-takes-back-what-it-gave",
        "Messages that a pull has pushed go back when it is over.",
        "docs/explanation/delivery.md: a lease that was pulled lasts as long as it says",
        (
            change(
                "core.delivery.pulls:Pulls._close",
                "slots = _unpushed(lane, session)",
                "slots = lane.leases.of_owner(session.number_here)",
            ),
            change("core.delivery.pulls:Pulls._close", "session.rows_out and not whole", "session.rows_out"),
        ),
        seeds=822,
        finders=(274,),
    ),
    Bug(
        "pulled-as-by-a-session",
        "A pulled lease is not marked as detached, so a new leader waits for its session.",
        "docs/explanation/delivery.md: a lease that was pulled lasts as long as it says",
        (
            change(
                "core.delivery.leasing:_lease_record",
                "if any(detached):",
                "if False:",
            ),
        ),
        seeds=1311,
        finders=(437,),
    ),
    Bug(
        "old-tokens-for-a-new-process",
        "The next process of a named consumer gets its leases under the tokens of the older process.",
        "Kleppmann, How to do distributed locking (2016): a lock without fencing tokens",
        (
            change(
                "core.delivery.sessions:Sessions._on_attach",
                "if is_new_life:",
                "if False:",
            ),
            change("core.delivery.sessions:Sessions._on_attach", "elif session.life:", "elif False:"),
        ),
        seeds=0,
        finders=(86010027, 86010061, 86010156),
    ),
    Bug(
        "old-tokens-for-a-later-pull",
        "The next process that pulls by a name gets what an earlier one had under the tokens of that one.",
        "Kleppmann, How to do distributed locking (2016): a lock without fencing tokens",
        (
            change(
                "core.delivery.pulls:Pulls._bring_back",
                'own = rows["consumer_low"][slots] == process',
                "own = np.ones(len(slots), np.bool_)",
            ),
        ),
        seeds=0,
        finders=(98120096, 98120234, 98022892, 98100710, 98110354),
    ),
    Bug(
        "inherited-tokens-for-a-new-process",
        "The next process of a named consumer gets leases that its leader inherited later under their old tokens.",
        "Kleppmann, How to do distributed locking (2016): a lock without fencing tokens",
        (change("core.delivery.sessions:Sessions._on_attach", "elif session.life:", "elif False:"),),
        seeds=0,
        finders=(86010027, 86010061, 86010156),
    ),
    Bug(
        "silence-ends-detached-leases",
        "A leader ends the detached leases of a consumer that has not spoken for a session, as it ends others.",
        "docs/explanation/delivery.md: leases that outlive a silence",
        (
            change(
                "core.delivery.lifetimes:Lifetimes._end",
                "slots = _left(lane, slots, np.ones(len(slots), np.bool_))",
                "",
            ),
        ),
        seeds=0,
        finders=(62174,),
    ),
    Bug(
        "listed-pulls-fall-silent",
        "A leader keeps the pulls of a list, and takes their client to be silent all the same.",
        "docs/reference/protocol.md, Waiting for long: a pull waits from when the leader last heard of it",
        (
            change(
                "core.delivery.pulls:Pulls.waiting",
                "pull.session.heard_us = now.mono_us",
                "",
            ),
        ),
        seeds=0,
        finders=(86000011,),
    ),
    Bug(
        "largest-pull-refused",
        "A pull of as many messages as a pull may take is refused.",
        "off by one: a limit that is said to be inclusive",
        (change("core.delivery.pulls:Pulls._fault", "if frame.credit > most:", "if frame.credit >= most:"),),
        seeds=0,
        finders=(92000001, 92000005),
    ),
    Bug(
        "lease-given-back-comes-again",
        "A pull by a name does not know what an earlier one is giving back.",
        "a lease that is brought back while it ends: the next pull works with a token that is dead",
        (
            change(
                "client.core.consuming.pulling:Pulling._ask",
                "self._settlements.of(event.topic) if pulling.order else ()",
                "()",
            ),
            change(
                "client.core.consuming.pull_names:PullNames.returns",
                "name.note(each.name, each.token, _NOBODY)",
                "pass",
            ),
        ),
        seeds=0,
        finders=(98322100, 98322028),
    ),
    Bug(
        "lease-being-settled-comes-again",
        "A pull by a name does not know what its client is settling.",
        "a reader of a gateway that dies with a release under way: its next life is served by the same gateway",
        (
            change(
                "client.core.changing.changing:Changing._cut_alter",
                "for part in parts if event.token is not None else ():",
                "for part in ():",
            ),
        ),
        seeds=0,
        finders=(98120096,),
    ),
    Bug(
        "untaken-answer-goes-back-though-had",
        "An answer that has reached nobody goes back, though a later pull of the name got its messages meanwhile.",
        "give back by token what has been handed to somebody else under the same token",
        (
            change(
                "client.core.consuming.pulling:Pulling.give_back",
                "self._names.not_later_s(pulling, event.deliveries)",
                "event.deliveries",
            ),
        ),
        seeds=0,
        finders=(94000023, 94000036),
    ),
    Bug(
        "late-message-stays-with-its-pull",
        "What comes late to a pull is its own, though later ones of its name have asked.",
        "give back by token what has been handed to somebody else under the same token",
        (
            change(
                "client.core.consuming.pull_names:PullNames.whose",
                "if name is None:",
                "if True:",
            ),
        ),
        seeds=0,
        finders=(94000036, 94000043),
    ),
    Bug(
        "renewals-spin-on-hold",
        "While the clock is on hold, a leader looks again and again at leases that are to be renewed.",
        "a timer in the past: the loop never rests",
        (
            change(
                "core.delivery.dispatch:TopicDispatcher.next_deadline_us",
                "NEVER_US if self._paused else self._renewals.next_us",
                "self._renewals.next_us",
            ),
        ),
        seeds=0,
        finders=(93100446,),
    ),
)
"""All of them."""
