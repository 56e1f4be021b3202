"""Ticks against a twin that looks at every second of some days, on which clocks are set or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dueq.recurring.terms import Terms
from dueq.recurring.ticks import next_tick

ZONES = {
    "Europe/Berlin": [datetime(2026, 3, 29), datetime(2026, 10, 25), datetime(2026, 7, 1)],
    "America/New_York": [datetime(2026, 3, 8), datetime(2026, 11, 1)],
    "Australia/Lord_Howe": [datetime(2026, 4, 5), datetime(2026, 10, 4)],
    "Asia/Kolkata": [datetime(2026, 5, 5)],
    "UTC": [datetime(2026, 3, 29)],
}
"""Days around which the clocks of these zones are set; by half an hour on Lord Howe Island."""
RANGES = ((0, 59), (0, 59), (0, 23))


def field(least: int, most: int) -> st.SearchStrategy[str]:
    """One number, two of them, all, or every n-th."""
    number = st.integers(least, most)
    return st.one_of(
        number.map(str),
        st.tuples(number, number).map(lambda pair: f"{pair[0]},{pair[1]}"),
        st.just("*"),
        st.sampled_from(["*/7", "*/20", "*/30"]).filter(lambda text: most > 30 or text == "*/7"),
    )


def allowed(text: str, least: int, most: int) -> set[int]:
    if text.startswith("*"):
        return set(range(least, most + 1, int(text[2:] or 1)))
    return {int(item) for item in text.split(",")}


def stupid(fields: tuple[str, ...], zone: ZoneInfo, day: datetime) -> list[int]:
    """Every tick from a day before some day to two days after it, Unix seconds."""
    second, minute, hour = (allowed(text, *limits) for text, limits in zip(fields, RANGES, strict=True))
    fixed = not any(text.startswith("*") for text in fields)
    begin = int((day - timedelta(days=1)).replace(tzinfo=UTC).timestamp())
    found: set[int] = set()
    pending = False
    before: datetime | None = None
    seen: set[datetime] = set()
    for at in range(begin, begin + 3 * 86_400):
        wall = datetime.fromtimestamp(at, zone).replace(tzinfo=None)
        if fixed and before is not None and wall > before + timedelta(seconds=1):  # it has leapt
            leapt = before + timedelta(seconds=1)
            while leapt < wall:
                pending |= leapt.second in second and leapt.minute in minute and leapt.hour in hour
                leapt += timedelta(seconds=1)
            if pending:
                found.add(at)
            pending = False
        before = wall
        if wall.second in second and wall.minute in minute and wall.hour in hour:
            if fixed and wall in seen:
                continue
            seen.add(wall)
            found.add(at)
    return sorted(found)


@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.tuples(field(0, 59), field(0, 59), field(0, 23)),
    st.sampled_from([(zone, day) for zone, days in ZONES.items() for day in days]),
)
def test_ticks_are_those_of_the_stupid_twin(
    fields: tuple[str, str, str], place: tuple[str, datetime]
) -> None:
    zone, day = place
    expected = stupid(fields, ZoneInfo(zone), day)
    terms = Terms(" ".join((*fields, "* * *")), zone=zone)
    for earlier, later in pairwise(expected):
        assert next_tick(terms, 0, earlier * 1000) == later * 1000
        assert next_tick(terms, 0, later * 1000 - 1) == later * 1000
