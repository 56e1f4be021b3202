"""Headers that nacks have replaced travel in the pushes of their messages, and each push fits into a frame."""

from __future__ import annotations

import json

from dueq import limits
from dueq_codecs.frames import encode
from dueq_codecs.messages import Push
from dueq_codecs.records import LEVEL_OF_KINDS, RecordKind
from tests.unit.core.led import Stage, at, keys_in

HEADER_BYTES = 16_000


def test_long_headers_of_many_messages_leave_in_several_pushes() -> None:
    stage = Stage(partitions=2)
    for led in stage.leds.values():
        led.timeline.level = LEVEL_OF_KINDS
    keys = {uid: stage.insert([10] * 200, uid=uid) for uid in stage.leds}
    stage.attach(0, credit=1_000, credit_bytes=64 << 20)
    first = [push for ms in range(0, 40, 10) for push in stage.run(ms)]
    for push in first:
        for row, (uid, key) in enumerate(zip(push.uid.tolist(), keys_in(push), strict=True)):
            nack = stage.leds[uid].change(RecordKind.NACK, [key], at(50), token=[int(push.token[row])])
            nack.amount_ms = push.token[row : row + 1] * 0 + 10
            nack.document = json.dumps({"why": f"{uid} {key}".rjust(HEADER_BYTES)})
    stage.commit(50)
    pushes = [push for ms in range(60, 200, 10) for push in stage.run(ms)]
    found = [(uid, key) for push in pushes for uid, key in zip(push.uid.tolist(), keys_in(push), strict=True)]
    assert sorted(found) == [(uid, key) for uid in sorted(keys) for key in keys[uid]]
    assert [pushed for push in pushes for pushed in heads(push)] == [f"{uid} {key}" for uid, key in found]
    assert max(len(frame) for push in pushes for frame in encode(push, [])) < limits.FRAME_BYTES_MAX


def heads(push: Push) -> list[str]:
    """The header of each row."""
    return [json.loads(push.headings[place])["why"].strip() for place in push.heading.tolist()]
