"""Options come as text; each slip is answered with what was meant."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from dueq.errors import InvalidRequest, OutcomeUnknown, SequenceReused
from dueq.spark.failures import cause
from dueq.spark.options import Options

KNOWN = ("topic", "payloads", "lease", "start", "max_messages")


def options(**given: str) -> Options:
    return Options(given, KNOWN, "to consume")


def test_options_are_read_in_any_case_and_those_of_spark_are_left_alone() -> None:
    read = Options({"Topic": "t", "checkpointLocation": "x", "PAYLOADS": "TRUE"}, KNOWN, "to consume")
    assert read.needed("topic") == "t"
    assert read.flag("payloads", False)
    assert read.whole("max_messages", 7, 1, 10) == 7
    assert read.instant("start") is None


@pytest.mark.parametrize(
    ("text", "ms"), [("0", 0), ("1970-01-01T00:00:01Z", 1000), ("1970-01-01T01:00+01:00", 0)]
)
def test_instants_are_unix_ms_or_iso_with_a_zone(text: str, ms: int) -> None:
    assert options(start=text).instant("start") == ms


def test_slips_are_refused_with_the_value() -> None:
    with pytest.raises(InvalidRequest, match="no option 'tpoic' to consume; did you mean 'topic'"):
        options(tpoic="t")
    with pytest.raises(InvalidRequest, match="needs the option 'topic'"):
        options().needed("topic")
    with pytest.raises(InvalidRequest, match="'payloads' is true or false, not 'yes'"):
        options(payloads="yes").flag("payloads", False)
    with pytest.raises(InvalidRequest, match="from 1 to 10, not '11'"):
        options(max_messages="11").whole("max_messages", 1, 1, 10)
    with pytest.raises(InvalidRequest, match="from 1 to 10, not '999"):
        options(max_messages="9" * 5000).whole("max_messages", 1, 1, 10)  # more digits than Python takes
    with pytest.raises(InvalidRequest, match="'lease' is 1 to 60 seconds, not 'nan'"):
        options(lease="nan").seconds("lease", 1, 1, 60)
    with pytest.raises(InvalidRequest, match="not '2030-01-31 09:00'"):
        options(start="2030-01-31 09:00").instant("start")


def test_the_error_of_a_task_is_found_in_what_spark_makes_of_it() -> None:
    text = "Job aborted\n  File x\ndueq.errors.SequenceReused: the same number\n\n at org.apache.spark"
    found = cause(RuntimeError(text))
    assert isinstance(found, SequenceReused)
    assert str(found) == "the same number"
    assert isinstance(cause(RuntimeError("a\ndueq.errors.OutcomeUnknown: b")), OutcomeUnknown)
    assert cause(RuntimeError("dueq.errors.Nonsense: x")) is None
