"""Series of figures: put together, judged, shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from dueq.bench.figures import Figure, Row, Target
from dueq.bench.growth import Cost, Sheet, series_of
from dueq.bench.growth_table import growth_tables

MEMORY = Cost("topics/memory", "RssAnon, each broker", "MB", targets={1_000: Target(at_most=50)})
RATE = Cost("topics/rate", "scheduled", "msg/s", bare="bare/rate", better_high=True)
BARE = Figure(Row("bare/rate", "bare", "msg/s"), (200.0,))


def measured() -> list[Figure]:
    sheet = Sheet([MEMORY, RATE])
    for size, value in ((100, 10.0), (10, 1.0), (1_000, 1_000.0)):
        sheet.add("memory", size, value, value * 1.1, value * 0.9)
        sheet.add("rate", size, 100.0)
    return [BARE, *sheet.figures()]


def test_a_series_is_in_the_order_of_its_sizes_whatever_the_order_of_measuring() -> None:
    memory, rate = series_of(measured())
    assert (memory.name, rate.name) == ("topics/memory", "topics/rate")
    assert [figure.row.size for figure in memory.figures] == [10, 100, 1_000]
    assert memory.figures[0].runs == (1.0, 1.1, 0.9)


def test_the_order_of_growth_is_that_between_the_two_largest_sizes() -> None:
    memory, rate = series_of(measured())
    assert memory.order == pytest.approx(2.0)
    assert rate.order == 0.0


@pytest.mark.parametrize("values", [{10: 1.0}, {10: 0.0, 100: 1.0}])
def test_one_size_or_a_cost_of_nothing_has_no_order(values: dict[int, float]) -> None:
    sheet = Sheet([MEMORY])
    for size, value in values.items():
        sheet.add("memory", size, value)
    assert series_of(sheet.figures())[0].order is None


def test_what_was_not_measured_is_no_series() -> None:
    assert series_of([BARE, Figure(MEMORY.row(10), error="it broke")]) == []


def test_the_table_fits_a_terminal_of_100_columns_and_shows_spread_and_ratio() -> None:
    figures = measured()
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for table in growth_tables(series_of(figures), {figure.row.name: figure for figure in figures}):
        console.print(table)
    console.file.close()
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 100
    for words in ("1,000 ±10%", "0.5× bare", "2.00", "RssAnon, each broker, MB"):
        assert words in text, words


def test_a_figure_of_a_series_says_its_size_in_the_document() -> None:
    figures = {figure.row.name: figure for figure in measured()}
    document = figures["topics/memory@1000"].document(figures)
    assert (document["size"], document["met"]) == (1_000, False)
    assert figures["topics/rate@10"].document(figures)["ratio"] == 0.5


def test_the_picture_is_a_png_of_all_series(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from dueq.bench.plot import draw

    sheet = Sheet([MEMORY])
    sheet.add("memory", 10, 0.0)
    draw([*series_of(measured()), *series_of(sheet.figures())], tmp_path / "growth.png", "today")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
