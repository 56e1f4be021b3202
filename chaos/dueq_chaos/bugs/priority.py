"""Planted bugs of priority topics: their index, their window, their queue, and the effects of a change of rank."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

_QUEUE = "core.delivery.priority_queue:PriorityQueue"
_WINDOW = "core.state.classed_window:ClassedWindow"

PRIORITY: Final = (
    Bug(
        "smaller-rank-on-disk-passed-over",
        "A message is leased although one of a smaller rank may be only on the disk.",
        "the order must not end where memory does",
        (change(f"{_QUEUE}._pop_places", "if unknown is not None and rank > unknown:", "if False:"),),
        seeds=150,
        finders=(25,),
    ),
    Bug(
        "end-of-rank-ignored",
        "Within a rank, a message is leased although a sooner one may be only on the disk.",
        "the timeline's own rule: no message overtakes one that may be only on disk",
        (change(f"{_QUEUE}._pop_places", "if rank == unknown and", "if False and"),),
        seeds=558,
        finders=(185,),
    ),
    Bug(
        "window-forgets-ranks",
        "Nothing is read from the disk of any rank but the first.",
        "a paged queue that stops at the end of its first page",
        (change(f"{_WINDOW}.grow", "self._unseen = following", "self._unseen = None"),),
        seeds=120,
        finders=(9,),
    ),
    Bug(
        "ranks-stay-when-a-job-is-committed",
        "When a job is committed, the window does not go back to where its messages wait.",
        "the timeline's own rule: what was left out is read once it may be delivered",
        (change(f"{_WINDOW}.go_back", "self._unseen, self._low_water = 0,", "_, self._low_water = 0,"),),
        seeds=214,
        finders=(57,),
    ),
    Bug(
        "rank-lost-at-nack",
        "A message that is given back has rank 0 from then on.",
        "a retry that forgets its priority",
        (
            change(
                "core.state.live:LiveMessages._given_back",
                "    not_before = np.maximum(not_before, delay",
                "    rows = widened(rows); rows['rank'] = 0; not_before = np.maximum(not_before, delay",
            ),
        ),
        seeds=342,
        finders=(121,),
    ),
    Bug(
        "changed-message-stays-at-its-place",
        "A message whose rank was changed stays in the disk's index at its old place, too.",
        "Pulsar #26251: index and log disagree",
        (change("core.state.checkpoint:write_rows", "stays &= classes == old_class", "pass"),),
        seeds=120,
        finders=(9,),
    ),
    Bug(
        "place-without-class",
        "The row that says where a message waits always says rank 0.",
        "cold reads find a message by this row",
        (
            change(
                "storage.ordered.store:OrderedStore._put_entries",
                "layout.places(at, of)",
                "layout.places(at, None if of is None else of * 0)",
            ),
        ),
        seeds=120,
        finders=(9,),
    ),
    Bug(
        "changed-message-is-queued-nowhere",
        "A change of rank takes a message from its place in the leader's queue, and gives it no other.",
        "Pulsar #25996: a timer is not armed again",
        (
            change(
                "core.delivery.lease_changes:LeaseChanges.applied",
                "if len(applied.waiting):",
                "if len(applied.waiting) and record.kind != RecordKind.CHANGE:",
            ),
        ),
        seeds=120,
        finders=(15,),
    ),
    Bug(
        "old-rank-counts-in-the-queue",
        "A message comes out of the leader's queue at the place that its old rank gave it.",
        "a heap whose keys change beneath it",
        (
            change(
                f"{_QUEUE}._valid",
                'good = (rows["state"] == WAITING) & (ranks_of(rows) == np.array(ranks, np.intp))',
                'good = rows["state"] == WAITING',
            ),
        ),
        seeds=182,
        finders=(41,),
    ),
    Bug(
        "small-messages-pass-a-large-one",
        "A message that fits no consumer's credit in bytes is passed over, as in a timeline topic.",
        "a limit of bytes must not break a strict order",
        (change("core.delivery.leasing:Leasing._propose", "strict=strict)", "strict=False)"),),
        seeds=214,
        finders=(57,),
    ),
    Bug(
        "partitions-take-turns-by-due",
        "A leader of several partitions takes the message that is due first, not the most urgent one.",
        "a leader serves the first of all that it leads",
        (
            change(
                "core.delivery.turns:PriorityTurns.choose",
                'np.lexsort((rows["wait_at"], ranks_of(rows)))',
                'np.lexsort((rows["wait_at"],))',
            ),
        ),
        seeds=834,
        finders=(367,),
    ),
    Bug(
        "change-is-no-new-version",
        "A change of rank leaves the message's version as it was.",
        "optimistic locking: every change is a version",
        (
            change(
                "core.state.live:LiveMessages._withdrawn",
                'rows["version"] = record.sequence',
                'rows["version"] += record.kind == RecordKind.MOVE and record.sequence',
            ),
        ),
        seeds=120,
        finders=(9,),
    ),
    Bug(
        "next-rank-is-shown-from-the-middle",
        "Browsing begins the next rank at the instant where the rank before it ended.",
        "a cursor of two columns that keeps the second one when the first moves on",
        (
            change(
                "storage.ordered.browsing:_rows",
                "of, after = next_class(found.timeline, found.uid, of), (0, 0)",
                "of = next_class(found.timeline, found.uid, of)",
            ),
        ),
        seeds=182,
        finders=(41,),
    ),
    Bug(
        "leased-before-it-is-ready",
        "A priority topic leases what is due soon together with what is ready, as a timeline topic does.",
        "RabbitMQ's prefetch: what a consumer holds and may not handle yet takes the place of what is urgent",
        (
            change(
                "core.delivery.turns:PriorityTurns.choose",
                "lane.take_waiting(demand.mesh_ms,",
                "lane.take_waiting(demand.gather_ms,",
            ),
        ),
        seeds=120,
        finders=(9,),
    ),
)
"""All of them."""
