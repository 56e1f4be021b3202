"""Terms that make no sense are refused, with the value and the limit."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dueq.errors import InvalidRequest
from dueq.recurring.checking import check_name, check_payload, check_terms
from dueq.recurring.terms import Terms, changed, packed, terms_of, unpacked

NOW = 1_774_700_000_000


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (Terms(), "cron, every or at, and one of them only: none given"),
        (Terms("* * * * *", every_ms=5_000), "one of them only: cron and every given"),
        (Terms("61 * * * *"), "cron line '61 * * * *': the minute is '61'; it takes 0 to 59"),
        (Terms("60 * * * * *"), "the second is '60'; it takes 0 to 59"),
        (Terms("0 25 * * *"), "the hour is '25'; it takes 0 to 23"),
        (Terms("0 3 * FOO *"), "the month is 'FOO'; it takes 1 to 12, or JAN to DEC"),
        (Terms("0 3 * * 8"), "the weekday is '8'; it takes 0 to 7, or SUN to SAT"),
        (Terms("0 3 0 * *"), "the day is '0'; it takes 1 to 31"),
        (Terms("* * * *"), "it has 4 fields, not 5 (minute, hour, day, month, weekday), or 6 with the seconds first"),
        (Terms("* " * 300), "at most 256 characters, not 600"),
        (Terms("* * */20 * 1L"), "never fires"),
        (Terms("0 3 30 2 *"), "no month that it names has a day 30"),
        (Terms("* * * * *", zone="Europe/Atlantis"), "no time zone 'Europe/Atlantis'"),
        (Terms("* * * * *", zone="../../etc/passwd"), "no time zone"),
        (Terms("* * * * *", zone=""), "no time zone ''"),
        (Terms(every_ms=5_000, zone="Europe/Berlin"), "no cron line"),
        (Terms(every_ms=999), "every is 1000 to 31622400000 ms, not 999"),
        (Terms(every_ms=40_000_000_000), "not 40000000000"),
        (Terms(at_ms=(NOW + 2, NOW + 1)), "ascend"),
        (Terms(at_ms=tuple(range(NOW, NOW + 1001))), "at most 1000 instants, not 1001"),
        (Terms(at_ms=(1 << 48,)), "not 281474976710656"),
        (Terms(at_ms=(NOW - 5,)), "never fires"),
        (Terms("* * * * *", start_ms=-1), "not -1"),
        (Terms("* * * * *", start_ms=NOW, end_ms=NOW), "is not after the start"),
        (Terms("* * * * *", end_ms=NOW), "never fires"),
        (Terms("* * * * *", jitter_ms=60_000), "60000 ms is not shorter than the 60000 ms"),
        (Terms(every_ms=1000, jitter_ms=-1), "jitter is 0 to 86400000 ms, not -1"),
        (Terms(every_ms=1000, missed=101), "missed is 0 to 100 ticks, not 101"),
        (Terms(every_ms=1000, rank=65_536), "rank is 0 to 65535 in a recurrence, not 65536"),
        (Terms(every_ms=1000, group="a."), "the group 'a.' has an empty level"),
        (Terms(every_ms=1000, overlap="queue"), "overlap is one of allow, skip, not 'queue'"),
    ],
)  # fmt: skip
def test_terms_that_make_no_sense_are_refused(terms: Terms, said: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        check_terms(terms, NOW, NOW)


def test_terms_that_never_fire_at_all_are_refused_without_an_instant() -> None:
    with pytest.raises(InvalidRequest) as raised:
        check_terms(Terms(at_ms=(NOW + 5,), end_ms=NOW), 0, 0)
    assert str(raised.value) == f"the recurrence never fires: at_ms ({NOW + 5},), end_ms {NOW}"


def test_sensible_terms_pass() -> None:
    for terms in (
        Terms("0 3 * * *", zone="Europe/Berlin", jitter_ms=3_600_000, overlap="skip", missed=0),
        Terms(every_ms=90_000, start_ms=NOW, end_ms=NOW + 1_000_000, jitter_ms=89_999),
        Terms(at_ms=(NOW + 1, NOW + 100)),
        Terms(at_ms=(NOW + 1,), jitter_ms=86_400_000),
    ):
        check_terms(terms, NOW, NOW)
        assert terms_of(packed(terms.document())) == terms


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128, "a\nb", "a\0", ".", ".."])
def test_names_are_short_and_printable(name: str) -> None:
    with pytest.raises(InvalidRequest, match="name of a recurrence"):
        check_name(name)
    check_name("nightly report é")


def test_a_payload_is_as_long_as_topic_and_recurrences_allow() -> None:
    assert not check_payload(bytes(65_536), "t", 0)
    assert "at most 65536 bytes, not 65537" in check_payload(bytes(65_537), "t", 0)
    assert "at most 10 bytes, not 11" in check_payload(bytes(11), "t", 10)


def test_only_what_differs_from_the_defaults_is_in_the_document() -> None:
    assert packed(Terms("* * * * *").document()) == '{"cron":"* * * * *"}'


def test_a_change_of_when_replaces_all_that_was_said_about_when() -> None:
    before = Terms("0 3 * * *", zone="Europe/Berlin", jitter_ms=5, missed=0).document()
    assert changed(before, {"every_ms": 60_000}) == {"every_ms": 60_000, "jitter_ms": 5, "missed": 0}
    assert changed(before, {"missed": 1, "jitter_ms": 0}) == {"cron": "0 3 * * *", "zone": "Europe/Berlin"}
    assert changed(before, {"zone": "UTC"}) == {"cron": "0 3 * * *", "jitter_ms": 5, "missed": 0}


@pytest.mark.parametrize(
    "document", [{"cron": 5}, {"every_ms": True}, {"at_ms": [1, "2"]}, {"at_ms": 5}, {"color": "red"}]
)
def test_documents_of_other_things_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="terms of a recurrence"):
        terms_of(packed(document))


@pytest.mark.parametrize("text", ["", "[]", "{", "5", "[" * 100_000])
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="document of a recurrence"):
        unpacked(text)
