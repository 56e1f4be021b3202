"""What a broker tells of itself, and what it refuses to."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.broker import BrokerCore
from dueq.core.ports.effects import SendClient
from dueq.core.ports.events import ClientFrameReceived, Route
from dueq.core.ports.membership import TopicsSeen
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import Code, InspectRequest, Reply

NOW = Now(1_700_000_000_000_000, 1_000_000)


@pytest.mark.parametrize("seconds", [0, limits.FORECAST_SECONDS_MAX + 1])
def test_a_forecast_is_refused_rather_than_cut(seconds: int) -> None:
    core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [], NOW)
    request = InspectRequest(1, "forecast", seconds=seconds)
    effects = core.step([TopicsSeen({}, frozenset()), ClientFrameReceived(Route(b"c"), request, [])], NOW)
    (reply,) = [effect.message for effect in effects if isinstance(effect, SendClient)]
    assert isinstance(reply, Reply)
    assert (reply.code, "1 to 3600 seconds" in reply.text) == (Code.INVALID_REQUEST, True)
