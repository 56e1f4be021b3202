"""A session's credit: the highest that may be in force at the leader, whichever frames have arrived."""

from __future__ import annotations

from dueq.client.core.consuming.session import Attaches, Session
from dueq_codecs.messages import ConsumerReply

LIFE = 7


def stating(*limits: int) -> Session:
    """A session that has sent frames with these credits, none of them answered."""
    session = Session("a", Attaches(0), 0)
    for at_us, credit in enumerate(limits):
        session.state(credit, at_us)
    return session


def test_a_lowered_limit_counts_only_when_it_is_confirmed() -> None:
    session = stating(10, 4)
    assert session.limit == 10
    session.confirm(1, LIFE, 0)
    assert session.limit == 10
    session.confirm(2, LIFE, 0)
    assert session.limit == 4


def test_what_a_frame_on_its_way_may_raise_counts_whatever_is_confirmed() -> None:
    session = stating(4, 10, 6)
    session.confirm(1, LIFE, 0)
    assert session.limit == 10, "the second frame may be in force already"
    session.confirm(2, LIFE, 0)
    assert session.limit == 10
    session.confirm(3, LIFE, 0)
    assert session.limit == 6


def test_an_answer_that_was_overtaken_confirms_nothing() -> None:
    session = stating(4, 10)
    session.confirm(2, LIFE, 0)
    session.confirm(1, LIFE, 0)
    assert session.limit == 10


def test_a_leaders_patience_counts_from_the_latest_frame_that_it_has_answered() -> None:
    session = stating(4, 4, 4)
    session.confirm(2, LIFE, 0)
    assert (session.answered_us, session.unanswered) == (1, True)
    session.confirm(1, LIFE, 0)
    assert session.answered_us == 1
    session.confirm(3, LIFE, 0)
    assert (session.answered_us, session.unanswered) == (2, False)


def test_what_has_come_before_an_older_answer_is_coming_no_more() -> None:
    """By two ways, a push may overtake the answer that counts it."""
    session = Session("a", Attaches(0), 0)
    session.begin(0)
    session.used(1, session.attach, 53)
    session.report(an_answer(session, coming=3, push_sent=52, mono_us=10))
    assert session.coming == 2
    session.used(2, session.attach, 54)
    assert session.coming == 0


def test_an_answer_that_a_later_one_has_overtaken_says_nothing() -> None:
    session = Session("a", Attaches(0), 0)
    session.begin(0)
    session.report(an_answer(session, coming=0, push_sent=7, mono_us=20))
    session.report(an_answer(session, coming=4, push_sent=3, mono_us=10))
    assert session.coming == 0
    session.report(an_answer(session, coming=4, push_sent=0, mono_us=5, incarnation=2))
    assert session.coming == 4


def an_answer(
    session: Session, coming: int, push_sent: int, mono_us: int, incarnation: int = 1
) -> ConsumerReply:
    return ConsumerReply(
        "t", b"c" * 16, session.attach, 1, push_sent=push_sent, coming=coming, incarnation=incarnation, mono_us=mono_us
    )  # fmt: skip


def test_what_came_before_an_attach_counts_for_no_push_after_it() -> None:
    """Both are counted from one: a push that came ahead of its turn is no push of the new attach."""
    session = Session("a", Attaches(0), 0)
    session.begin(0)
    session.saw_push(2, complete=True)
    session.begin(1)
    session.saw_push(1, complete=True)
    assert session.push_seen == 1, "the second one has not come"
