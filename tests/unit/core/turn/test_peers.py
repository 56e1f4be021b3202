"""What is known of a peer: by its latest frame, and by nothing that its earlier life has said."""

from __future__ import annotations

from dueq.core.turn.peers import Peer
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import Fence, PeerFrame

SETTINGS = CoreSettings("b1", 11, "s1", "cluster", "tcp://b1")


def at(ms: int) -> Now:
    return Now(1_700_000_000_000_000 + ms * 1000, 5_000_000 + ms * 1000)


def born(ms: int = 0) -> Peer:
    peer = Peer("b2")
    peer.reborn(22, "s2", "tcp://b2", "", at(ms))
    return peer


def heard(peer: Peer, ms: int, *, sent_us: int = 1, answers_us: int = 0, ping: bool = False) -> None:
    """A frame of the peer comes: when it was sent by its clock, and which own frame it has had."""
    frame = PeerFrame("b2", 22, "b1", 11, sent_us, sent_us, answers_us, 1, 1, ping)
    peer.frame_received(frame, at(ms))


def built(peer: Peer, ms: int) -> PeerFrame:
    return peer.build_frame(SETTINGS, at(ms))


def test_an_answer_that_comes_late_takes_nothing_back() -> None:
    """It lived when it sent the later one."""
    peer = born()
    heard(peer, 10, sent_us=20, answers_us=200)
    heard(peer, 11, sent_us=10, answers_us=100)
    assert peer.answered_to_us == 200


def test_the_echo_is_that_of_the_frame_that_was_sent_last_however_late_others_come() -> None:
    """With that of an older one the peer would measure a clock by a round trip that was none."""
    peer = born()
    heard(peer, 10, sent_us=2_000)
    heard(peer, 50, sent_us=1_000)
    frame = built(peer, 60)
    assert (frame.echo_mono_us, frame.echo_received_wall_us) == (2_000, at(10).wall_us)


def test_of_an_earlier_life_nothing_counts() -> None:
    peer = born()
    peer.fence(Fence(1, 5))
    heard(peer, 10, sent_us=9_000_000, answers_us=built(peer, 9).sent_mono_us)
    peer.fence(Fence(2, 5))
    peer.reborn(23, "s2", "tcp://b2", "", at(1_000))
    assert peer.answered_to_us == 0
    assert peer.silent_for_us(at(1_500)) == 500_000
    frame = built(peer, 1_500)
    assert (frame.receiver_incarnation, frame.echo_mono_us, frame.fences) == (23, 0, [])
    heard(peer, 1_600, sent_us=5)  # its clock begins anew
    assert built(peer, 1_700).echo_mono_us == 5


def test_frames_of_one_instant_have_names_of_their_own() -> None:
    """An answer to the earlier one must not be taken for one to the later, which may be lost."""
    peer = born()
    first = built(peer, 10)
    peer.fence(Fence(1, 5))
    second = built(peer, 10)
    assert second.sent_mono_us > first.sent_mono_us
    heard(peer, 11, answers_us=first.sent_mono_us)
    assert built(peer, 12).fences == [Fence(1, 5)]


def test_who_asks_is_answered_once_though_there_is_nothing_to_say() -> None:
    peer = born()
    heard(peer, 1)
    built(peer, 2)
    assert not peer.wants_frame(at(3))
    heard(peer, 4, sent_us=2, ping=True)
    assert peer.wants_frame(at(5))
    built(peer, 5)
    assert not peer.wants_frame(at(6))


def test_what_is_to_be_told_surely_is_reason_enough_for_a_frame() -> None:
    peer = born()
    built(peer, 2)
    assert not peer.wants_frame(at(3))
    peer.fence(Fence(1, 5))
    assert peer.wants_frame(at(3))
