"""How far ahead a topic allows messages to be due: by the clock of the mesh, as its leader reckons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Failed
from dueq.errors import InvalidRequest
from dueq_codecs.messages import ChangeRequest, Hello, MetadataReply
from tests.unit.client.stage import WALL, Stage, endpoint, hello_reply, of, sent

HOUR_MS = 3_600_000


class Horizon(Stage):
    """A client whose topic allows an hour, in a mesh whose clock is so many hours ahead of its own."""

    def __init__(self, ahead: int) -> None:
        super().__init__()
        self.ahead_ms = ahead * HOUR_MS
        self.step()
        effects = self.step(events.LinkReady(self.links[endpoint("a")]))
        hello = sent(effects, Hello)[-1]
        shown = self.now.wall_us + self.ahead_ms * 1000
        self.receive("a", hello_reply("a", hello.sent_wall_us, shown))
        self.learn_topic()

    def metadata(self, request_id: int) -> MetadataReply:
        reply = super().metadata(request_id)
        return replace(reply, topics=tuple(replace(each, horizon_ms=HOUR_MS) for each in reply.topics))


@pytest.mark.parametrize("ahead", [0, 2, -2], ids=["right", "behind", "ahead"])
def test_the_horizon_begins_at_the_instant_of_the_mesh(ahead: int) -> None:
    """The client's own clock may be hours off."""
    stage = Horizon(ahead)
    last = WALL // 1000 + stage.ahead_ms + HOUR_MS
    assert sent(stage.insert(7, b"x", due=last), ChangeRequest)
    beyond = last + 60_000
    stage.insert(8, b"x", due=beyond)
    asked = stage.run_until(stage.ms + 1_000)  # whether the topic was changed
    [failed] = of(stage.answer_metadata(asked), Failed)
    assert isinstance(failed.error, InvalidRequest)
    assert f"due {beyond} is beyond the horizon of topic" in str(failed.error)
