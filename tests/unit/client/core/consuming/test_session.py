"""A session's credit: the highest that may be in force at the leader, whichever frames have arrived."""

from __future__ import annotations

import pickle

from dueq.client.core.consuming.session import NUMBERS_KEPT, PROMISE_US, Attaches, Session
from dueq_codecs.messages import ConsumerReply, Push
from tests.unit.client.stage import push

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


def test_of_frames_that_nobody_answers_the_first_are_forgotten() -> None:
    """A leader may be away for days."""
    session = stating(*[4] * (NUMBERS_KEPT + 2))
    session.confirm(2, LIFE, 0)
    assert session.answered_us == 0
    session.confirm(3, LIFE, 0)
    assert session.answered_us == 2


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


def test_a_session_does_not_grow_with_the_pushes_of_an_attach() -> None:
    """It may stay attached for years."""
    session = Session("a", Attaches(0), 0)
    session.begin(0)
    sizes: list[int] = []
    for number in range(1, 10 * NUMBERS_KEPT):
        session.saw_push(number, complete=True)
        session.used(1, session.attach, number)
        sizes.append(len(pickle.dumps(session)))
    assert sizes[-1] < 1.5 * sizes[NUMBERS_KEPT]


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


# -------------------------------------------------------------- what is coming, and what waits


def begun() -> Session:
    """A session at its first attach."""
    session = Session("a", Attaches(0), 0)
    session.begin(0)
    return session


def test_what_was_coming_to_an_attach_does_not_come_to_the_next_one() -> None:
    """The leader pushes it anew: counted twice, it would take credit that the others could have."""
    session = begun()
    session.report(an_answer(session, coming=3, push_sent=0, mono_us=10))
    session.begin(1)
    assert session.coming == 0


def test_what_came_to_an_earlier_attach_is_no_push_that_has_overtaken_an_answer_to_this_one() -> None:
    session = begun()
    session.used(2, session.attach, 53)
    session.begin(1)
    session.report(an_answer(session, coming=3, push_sent=0, mono_us=10))
    assert session.coming == 3
    session.used(1, session.attach - 1, 54)
    session.report(an_answer(session, coming=3, push_sent=0, mono_us=11))
    assert session.coming == 3, "a late push of the earlier one is none either"


def test_a_push_that_comes_in_two_halves_has_brought_both() -> None:
    """At first the chunks of a long payload were missing. It was sent again, and brought the rest."""
    session = begun()
    session.used(1, session.attach, 53)
    session.used(2, session.attach, 53)
    session.report(an_answer(session, coming=5, push_sent=52, mono_us=10))
    assert session.coming == 2


def test_what_comes_is_what_the_raised_credit_was_for_and_waits_no_more() -> None:
    session = begun()
    session.promise(4, 1, 0)
    session.waiting = 6
    session.used(3, session.attach, 1)
    share = session.share(0, 1)
    assert (share.waiting, share.promised) == (3, 1)
    session.used(3, session.attach, 2)
    share = session.share(0, 1)
    assert (share.waiting, share.promised) == (2, 0), "the others came for credit that there was before"


def test_credit_that_was_given_for_waiting_messages_is_free_again_if_they_do_not_come() -> None:
    """Another consumer may have got them: kept for them, it would be of no use to anybody."""
    session = begun()
    session.promise(4, 1, 100)
    assert session.share(0, 99 + PROMISE_US).promised == 4
    assert session.share(0, 100 + PROMISE_US).promised == 0


# -------------------------------------------------------------- when a push has left


def stamped(session: Session, mono_us: int, attach: int = 0) -> Push:
    """A push that left at this instant, by the leader's clock."""
    message, _ = push("a", attach or session.attach, 1, [b"x"], life=LIFE, mono_us=mono_us)
    return message


def test_a_push_has_not_left_before_its_attach_had_begun_whatever_clocks_say() -> None:
    """A lease that is counted from too early is given back while its leader holds it for us."""
    session = begun()
    session.state(4, 100)
    session.confirm(1, LIFE, 5_100)
    assert session.released_us(stamped(session, 5_900)) == 900
    session.begin(1_000)
    assert session.released_us(stamped(session, 5_900)) == 1_000


def test_a_push_of_an_attach_that_is_forgotten_may_have_left_since_the_consumer_was_opened() -> None:
    attaches = Attaches(5)
    first = attaches.begin(100)
    second = attaches.begin(101)
    for _ in range(NUMBERS_KEPT - 1):
        last = attaches.begin(200)
    assert (attaches.begun_us(first), attaches.begun_us(second), attaches.begun_us(last)) == (5, 101, 200)
