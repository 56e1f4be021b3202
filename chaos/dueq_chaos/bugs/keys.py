"""Planted bugs of unique keys: the memory of them, the reads of them, and the answers about them."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

KEYS: Final = (
    Bug(
        "key-outlives-its-message",
        "The key of a message that is acknowledged stays taken.",
        "a unique index that is not cleaned up on delete",
        (change("core.state.live:LiveMessages._finish", "if bearing:", "if bearing and len(rows) > 1:"),),
        seeds=60,
        finders=(19,),
    ),
    Bug(
        "replaced-message-stays",
        "A replaced message is delivered all the same, beside the one that has its key now.",
        "an upsert that inserts",
        (change("core.state.live:LiveMessages.insert", "if gone:", "if len(gone) > 1:"),),
        seeds=60,
        finders=(19,),
    ),
    Bug(
        "key-on-the-disk-is-free",
        "A key that has left memory counts as free, since nobody asks the disk.",
        "a cache miss that is taken for an absence",
        (change("core.state.name_holds:NameHolds.hold", "if not wanted:", "if True:"),),
        seeds=60,
        finders=(19,),
    ),
    Bug(
        "new-keys-need-no-look",
        "The keys of an INSERT of which none is in memory count as new, whatever the disk has.",
        "a cache miss that is taken for an absence, by the quick way only",
        (change("core.state.names:Names.hold_fresh", "self._perhaps(self._stored, high, low)", "[]"),),
        seeds=60,
        finders=(19, 55, 87),
    ),
    Bug(
        "new-keys-not-saved",
        "A checkpoint leaves out the new keys that nothing has happened to, so the disk does not know them.",
        "a fast path for bulk inserts that skips the unique index",
        (
            change(
                "core.state.names:Names.changed_rows",
                "for fresh in self._born if not fresh.touched",
                "for fresh in self._born[:0] if not fresh.touched",
            ),
        ),
        seeds=60,
        finders=(51,),
    ),
    Bug(
        "sweep-takes-a-live-key",
        "A remembered key that is taken again is swept as if it were still only remembered.",
        "a time to live that outlives the value",
        (
            change(
                "core.state.names:Names._set", "self._expiry[expiry_key(old.until, digest)] = None", "pass"
            ),
            change(
                "storage.ordered.reading:Reading._expired",
                "if _is_until(row, each[0])",
                "if row is not None",
            ),
        ),
        seeds=60,
        finders=(19,),
    ),
    Bug(
        "repeated-insert-forgets-what-it-met",
        "A repeated INSERT is answered as if all of its rows had taken effect.",
        "a retry that gets another answer than the first attempt",
        (change("core.state.answers:Answers.get", "if slot in self._met:", "if False:"),),
        seeds=60,
        finders=(55,),
    ),
    Bug(
        "present-ids-of-another-caller",
        "A caller whose rows share a request with others is told the ids that the others' rows met.",
        "an offset into a batch that is forgotten",
        (
            change(
                "client.core.ports.change:Part.found",
                "place = int(np.count_nonzero(reply.outcomes[: self.offset]))",
                "place = 0",
            ),
        ),
        seeds=60,
        finders=(87, 55),
    ),
    Bug(
        "idempotency-key-decides-no-partition",
        "A request with an idempotency key goes to any partition, and is taken there, so a repetition finds nothing.",
        "a sharded table of idempotency keys, and a router that does not know of it",
        (
            change(
                "client.core.asking.keyed:homes",
                "for high, low in ((event.once_high, event.once_low), (event.key_high, event.key_low)):",
                "for high, low in ((event.key_high, event.key_low),):",
            ),
            change(
                "core.partition.requests:_check_once",
                "if len(request.group):",
                "if True:",
            ),
        ),
        seeds=400,
        finders=(299, 267, 363),
    ),
    Bug(
        "idempotency-key-with-another-request",
        "An idempotency key that comes with another request gets the answer to the first one.",
        "an idempotency layer that never compares requests",
        (change("core.state.keyed:_Rows._again", "or name.digest != self._digests[at]", "or False"),),
        seeds=400,
        finders=(267, 299),
    ),
    Bug(
        "refusal-kept-as-an-answer",
        "A row that is refused for its unique key leaves the bearer's id as the answer of its idempotency key.",
        "a cache of answers that keeps errors as successes",
        (
            change(
                "core.state.keyed:_Rows.decide",
                "if bearer is not None and outcome == Outcome.KEPT:",
                "if bearer is not None:",
            ),
        ),
        seeds=0,
        finders=(92000043, 92000011),
    ),
)
