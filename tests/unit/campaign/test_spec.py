"""What a specification may say, and what it hears for a slip, before any Spark starts."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path

import pytest

from dueq.campaign.spec import Deduplication, Due, QuietHours, Smoothing, Spec, Zone
from dueq.campaign.template import Piece, pieces_of
from dueq.errors import InvalidRequest
from dueq.limits import BODY_BYTES_MAX

HERE = Path("/specs")
WHOLE = """
name = "spring"
topic = "campaigns"
key = "customer"

[source]
path = "audience/*.parquet"
format = "parquet"
where = "consent"

[columns]
first_name = "split(name, ' ')[0]"

[payload]
template = "Good morning, {first_name}!"

[due]
time = 09:00:00
date = 2030-03-10
zone_column = "zone"

[quiet_hours]
from = "21:00"
until = "8:00"

[suppression]
path = "s3://lists/unsubscribed.csv"
format = "csv"
options = { sep = ";", header = true }
column = "customer"

[deduplication]
by = ["customer"]

[smoothing]
per_second = 200
window = "1h30m"

[load]
hidden_for = "2h"
"""


def changed(*changes: tuple[str, str]) -> Spec:
    text = WHOLE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return Spec.of(tomllib.loads(text), HERE)


def test_a_whole_specification_is_understood() -> None:
    spec = changed()
    assert (spec.name, spec.topic, spec.key) == ("spring", "campaigns", "customer")
    assert spec.source.paths == ("/specs/audience/*.parquet",)
    assert spec.due == Due(day=date(2030, 3, 10), time_s=9 * 3600, zone=Zone(column="zone"))
    assert spec.quiet_hours == QuietHours(21 * 3600, 8 * 3600, Zone(column="zone")), (
        "the zone is that of [due]"
    )
    assert spec.suppression is not None
    assert spec.suppression.source.paths == ("s3://lists/unsubscribed.csv",)
    assert spec.suppression.source.options == {"sep": ";", "header": "true"}
    assert spec.suppression.list_column == "customer"
    assert spec.deduplication == Deduplication(("customer",), "earliest")
    assert spec.smoothing == Smoothing(200, 5400, True)
    assert (spec.loading.atomic, spec.loading.hidden_for_s, spec.loading.bad_rows) == (True, 7200, "refuse")


def test_columns_may_say_the_rank_and_the_group() -> None:
    said = {
        "name": "n",
        "topic": "t",
        "source": {"table": "x"},
        "payload": {"column": "p"},
        "due": {"column": "d"},
    }
    spec = Spec.of(said | {"rank": "urgency", "group": "tenant"}, Path())
    assert (spec.rank, spec.group, spec.placing) == ("urgency", "tenant", ["rank", "group"])
    assert Spec.of(said, Path()).placing == []
    with pytest.raises(InvalidRequest, match="group is a text"):
        Spec.of(said | {"group": 7}, Path())


def test_all_messages_may_have_one_body() -> None:
    spec = changed(('template = "Good morning, {first_name}!"', 'body = "Everything {must} go."'))
    assert spec.payload.body == "Everything {must} go."
    for wrong, said in (("", "body is a text"), ("x" * (BODY_BYTES_MAX + 1), "body has at most")):
        with pytest.raises(InvalidRequest, match=said):
            changed(('template = "Good morning, {first_name}!"', f'body = "{wrong}"'))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "spring"', "", "name is missing"),
        ('name = "spring"', 'name = "a b"', "A-Z a-z 0-9"),
        ('topic = "campaigns"', "topic = 7", "topic is a text, not 7"),
        ("[source]", "[sauce]", "no sauce; did you mean 'source'"),
        ('path = "audience', 'pth = "audience', r"no \[source\] pth; did you mean 'path'"),
        ('path = "audience', 'table = "t"\npath = "audience', r"\[source\].*path, table, not path and table"),
        ('path = "audience/*.parquet"', "", "exactly one of path, table, not none"),
        ('path = "audience/*.parquet"', 'table = "t"', "format does not go with table"),
        ('format = "parquet"', "", "says its format"),
        ('format = "parquet"', 'format = "parqet"', "did you mean 'parquet'"),
        ("first_name =", "first_name = [1]\nother =", r"columns.first_name is a text"),
        ("template =", "column = 'x'\ntemplate =", "not column and template"),
        ('"Good morning, {first_name}!"', '"Good morning, {first_name!"', "character 15"),
        ("time = 09:00:00", "", "exactly one of time, time_column"),
        ("time = 09:00:00", 'time = "nine"', 'a time of day such as "09:00"'),
        ("time = 09:00:00", 'time = "24:00"', "time of day"),
        ("time = 09:00:00", "column = 'at'", "does not go with column"),
        ("date = 2030-03-10", "date = 'soon'", "a day such as 2030-01-31, not 'soon'"),
        ("date = 2030-03-10", "date = 2030-03-10T09:00:00Z", "a day such as"),
        ("date = 2030-03-10", "", "exactly one of date, date_column"),
        ('zone_column = "zone"', "", "exactly one of zone, zone_column"),
        ('zone_column = "zone"', "zone_column = 'z'\nambiguous = 'third'", "ambiguous is not 'third'"),
        ('zone_column = "zone"', "zone_column = 'z'\npast = 'skp'", "did you mean 'skip'"),
        ('until = "8:00"', 'until = "21:00"', "are the same"),
        ('by = ["customer"]', "by = []", "a list of texts"),
        ("per_second = 200", "per_second = 0", "from 1 to"),
        ("per_second = 200", "per_second = true", "whole number from 1 to 1000000, not true"),
        ('window = "1h30m"', "", "window is a duration.*not missing"),
        ('window = "1h30m"', 'window = "long"', "not 'long'"),
        ('window = "1h30m"', 'window = "8d"', "to 168 h"),
        ('window = "1h30m"', f'window = "{"9" * 5000}s"', "window is a duration"),
        ('hidden_for = "2h"', 'atomic = false\nhidden_for = "2h"', "does not go with atomic = false"),
        ('hidden_for = "2h"', 'atomic = "yes"', "true or false, not 'yes'"),
        ("[load]", "[lod]", "no lod; did you mean 'load'"),
    ],
)  # fmt: skip
def test_a_slip_is_named(old: str, new: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        changed((old, new))


def test_quiet_hours_need_a_zone_where_dues_have_none() -> None:
    column = ('time = 09:00:00\ndate = 2030-03-10\nzone_column = "zone"', 'column = "at"')
    with pytest.raises(InvalidRequest, match=r"\[quiet_hours\] needs zone"):
        changed(column)
    spec = changed(column, ('until = "8:00"', 'until = "8:00"\nzone = "Asia/Kolkata"'))
    assert spec.quiet_hours is not None
    assert spec.quiet_hours.zone == Zone(name="Asia/Kolkata")


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "spring.toml"
    with pytest.raises(InvalidRequest, match=r"spring.toml cannot be read"):
        Spec.read(file)
    file.write_text("name = ")
    with pytest.raises(InvalidRequest, match=r"spring.toml cannot be read"):
        Spec.read(file)
    file.write_text("nme = 'x'")
    with pytest.raises(InvalidRequest, match=r"spring.toml: there is no nme; did you mean 'name'"):
        Spec.read(file)


@pytest.mark.parametrize("text", ["x = " + "[" * 5000 + "]" * 5000, "x = " + "9" * 5000])
def test_a_file_that_toml_reads_no_further_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "spring.toml"
    file.write_text(text)
    with pytest.raises(InvalidRequest, match=r"spring.toml cannot be read"):
        Spec.read(file)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "spring.toml"
    file.write_text(WHOLE)
    plain = Spec.read(file)
    file.write_text(WHOLE, encoding="utf-8-sig")
    assert Spec.read(file) == plain


def test_a_job_is_named_after_what_the_specification_says() -> None:
    assert changed().job_id == changed(("\n\n", "\n# a comment\n")).job_id
    assert changed().job_id.startswith("spring-")
    assert changed().job_id != changed(("per_second = 200", "per_second = 201")).job_id
    assert changed().job_id != changed(("date = 2030-03-10", "date = 2030-03-11")).job_id


def test_the_order_of_columns_counts_since_each_may_be_made_of_those_before_it() -> None:
    document = tomllib.loads(WHOLE)
    pairs = [("a", "n + 1"), ("b", "a * 2")]
    one, same, other = (
        Spec.of(document | {"columns": dict(columns)}, Path()) for columns in (pairs, pairs, pairs[::-1])
    )
    assert one.job_id == same.job_id != other.job_id


def test_a_copy_of_a_specification_elsewhere_is_the_same_campaign(tmp_path: Path) -> None:
    document = tomllib.loads(WHOLE)
    here, there = Spec.of(document, tmp_path / "here"), Spec.of(document, tmp_path / "there")
    assert here.source.paths != there.source.paths
    assert here.job_id == there.job_id


def test_a_template_is_text_and_columns() -> None:
    assert pieces_of("Hi {name}, {{{ code }}}") == [
        Piece(text="Hi "), Piece(column="name"), Piece(text=", {"), Piece(column="code"), Piece(text="}"),
    ]  # fmt: skip
    assert pieces_of("plain") == [Piece(text="plain")]


@pytest.mark.parametrize("template", ["{", "a {} b", "{ }", "a } b", "{a{b}"])
def test_a_lone_brace_is_refused(template: str) -> None:
    with pytest.raises(InvalidRequest, match="write"):
        pieces_of(template)
