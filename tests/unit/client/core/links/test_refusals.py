"""The errors that callers get for refusals."""

from __future__ import annotations

import pytest

from dueq import errors
from dueq.client.core.links.refusals import error_of
from dueq_codecs.messages import Code


def test_who_is_busy_says_in_how_many_seconds_it_may_be_asked_again() -> None:
    error = error_of(Code.BUSY, "why", 2_500)
    assert isinstance(error, errors.Busy)
    assert (str(error), error.retry_after) == ("why", 2.5)


def test_who_is_busy_and_does_not_say_for_how_long_is_asked_again_a_little_later() -> None:
    """Asked again at once, it would be kept busy."""
    error = error_of(Code.BUSY, "")
    assert isinstance(error, errors.Busy)
    assert error.retry_after == 0.1


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK], ids=lambda code: code.name)
def test_a_refusal_without_words_is_told_by_its_name(code: Code) -> None:
    assert code.name in str(error_of(code, ""))


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK], ids=lambda code: code.name)
def test_a_refusal_is_told_in_the_words_of_the_broker(code: Code) -> None:
    assert str(error_of(code, "the disk of b1 is full")) == "the disk of b1 is full"
