"""What the filter of an endpoint does not want."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("aiohttp")

from tests.unit.gateway.webhooks.stage import Stage, now_s, play


def test_what_the_filter_does_not_want_is_finished_once_it_is_known_to_be_in_force() -> None:
    """Another gateway may have taken a change, and what is scheduled after that is another filter's."""

    async def story() -> None:
        stage = Stage(wanted={"kind": ["invoice"]})
        stage.come(0, kind="other")
        before_s = now_s()
        stage.come(1, kind="invoice")
        assert await stage.begun.get() == "m1", "others do not wait"
        await stage.looks.get()
        stage.seen(stage.endpoint, before_s)
        await stage.looks.get()
        assert stage.settled.empty()
        stage.seen(stage.endpoint, now_s())
        assert await stage.settled.get() == ("m0", "ack", "filtered")
        assert stage.counters.filtered == 1
        await stage.worker.stop(0)

    play(story)


def test_what_the_former_filter_did_not_want_goes_back() -> None:
    async def story() -> None:
        stage = Stage(wanted={"kind": ["invoice"]})
        stage.come(0, kind="other")
        await stage.looks.get()
        await stage.worker.stop()
        assert await stage.settled.get() == ("m0", "release", 0.0)
        assert stage.settled.empty()
        assert stage.counters.filtered == 0

    play(story)


def test_what_the_filter_does_not_want_waits_while_nobody_can_say_whether_it_is_in_force() -> None:
    async def story() -> None:
        stage = Stage(wanted={"kind": ["invoice"]})
        stage.come(0, kind="other")
        stage.come(1, lease=1.01, kind="other")
        await stage.looks.get()
        assert await stage.settled.get() == ("m1", "release", 1.0), "its lease ends soon"
        stage.worker.unseen()
        assert await stage.settled.get() == ("m0", "release", 30.0), "each lease costs the mesh two records"
        stage.come(2, kind="other")
        assert await stage.settled.get() == ("m2", "release", 30.0)
        stage.come(3, kind="invoice")
        assert await stage.begun.get() == "m3", "others do not"
        stage.seen(stage.endpoint, now_s())
        stage.come(4, kind="other")
        await stage.looks.get()
        await stage.worker.stop(0)

    play(story)


def test_a_small_window_does_not_make_a_filter_slow() -> None:
    """All that a filter may take until the next look is finished then: a few messages a look are too few."""

    async def story() -> None:
        stage = Stage(in_flight=1, wanted={"kind": ["invoice"]})
        stage.come(0, kind="invoice")
        assert await stage.begun.get() == "m0"
        assert stage.credit >= 128
        await stage.worker.stop(0)

    play(story)


def test_what_the_filter_does_not_want_waits_while_brokers_do_not_agree_on_it() -> None:
    """The endpoint may have another filter by now, or none; if it is gone, others may want the message."""

    async def story() -> None:
        stage = Stage(wanted={"kind": ["invoice"]})
        stage.come(0, kind="other")
        await stage.looks.get()
        stage.seen(replace(stage.endpoint, agreed=False), now_s())
        await stage.looks.get()
        assert stage.settled.empty(), "most hear of a change within milliseconds"
        stage.seen(replace(stage.endpoint, agreed=False), now_s() + 60)
        assert await stage.settled.get() == ("m0", "release", 30.0)
        stage.come(1, kind="invoice")
        assert await stage.begun.get() == "m1", "others do not"
        assert stage.counters.filtered == 0
        await stage.worker.stop(0)

    play(story)
