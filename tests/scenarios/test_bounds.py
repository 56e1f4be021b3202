"""Named scenarios of bounds that many requests reach together, before the first of them is applied."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq_chaos.scenarios.hand import Request
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.messages import Code
from dueq_codecs.records import RecordKind

FAR_MS = 3_600_000


def fits_one(stage: Stage, *requests: Request) -> None:
    """Of these requests, which came at once, one was taken and the others are to be repeated."""
    stage.until(lambda: all(request.replies for request in requests), "answers")
    codes = sorted(request.codes[0] for request in requests)
    stage.expect(codes == [Code.OK] + [Code.BUSY] * (len(requests) - 1), f"{codes}")


def test_triggers_under_way_count_as_triggered_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRIGGERED_MAX", 3)
    stage = Stage()
    hand = stage.hand("user")
    messages = stage.stored(*[b"%d" % row for row in range(6)], due=stage.now_ms + FAR_MS)
    triggers = [hand.trigger("b1", messages[row : row + 2]) for row in (0, 2, 4)]
    fits_one(stage, *triggers)
    consumer = stage.hand("consumer")
    consumer.attach("b1")
    consumer.stay()
    acked = 0
    for delivered in (2, 4, 6):
        stage.until(lambda count=delivered: len(consumer.pushes) == count, "the triggered ones are delivered")  # type: ignore[misc]
        refused = [trigger for trigger in triggers if not trigger.final]
        for trigger in refused[:1]:
            hand.again("b1", trigger)
            stage.run_ms(100)
            stage.expect(not trigger.final, "those that are leased count, too: they may be given back")
        stage.acked(consumer, consumer.pushes[acked:])
        acked = delivered
        for trigger in refused[:1]:
            stage.settled(hand, trigger)
    stage.finish()


def test_headers_of_nacks_under_way_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADINGS_BYTES_MAX", 30)
    stage = Stage()
    consumer = stage.hand("consumer")
    consumer.attach("b1", lease_ms=60_000)
    consumer.stay()
    messages = stage.stored(b"a", b"b", b"c", due=stage.now_ms + 20)
    pushes = [stage.delivered(consumer, message) for message in messages]
    nacks = [
        consumer.settle("b1", RecordKind.NACK, pushed, amounts_ms=[FAR_MS], document='{"a":"0123456789"}')
        for pushed in pushes
    ]
    fits_one(stage, *nacks)
    stage.expect(stage.replica("b1").timeline.headings.size <= limits.HEADINGS_BYTES_MAX, "within the bound")
