"""Tables in narrow terminals: numbers stay whole."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.table import Table

from dueq.cli.tables import new_table, print_table


def lines_of(table: Table, width: int, **widths: int) -> list[str]:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        print_table(table, console, **widths)
    return capture.get().splitlines()


def topics() -> Table:
    table = new_table(
        "Topics", "topic", "kind", ">parts", ">scheduled", ">ready", ">leased", ">in 1 min", "|now"
    )
    table.add_row("departures", "timeline", "6", "1,234,567", "2,997", "200", "851", "▇" * 20)
    return table


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_no_number_is_cut_or_broken(width: int) -> None:
    [row] = [line for line in lines_of(topics(), width) if "2,997" in line]
    assert [word for word in row.split() if word[0].isdigit()] == ["6", "1,234,567", "2,997", "200", "851"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_are_no_wider_than_the_terminal_if_the_numbers_leave_room(width: int) -> None:
    assert max(map(len, lines_of(topics(), width))) <= width


def test_texts_and_heads_are_broken_and_not_cut() -> None:
    table = new_table("", ">part", "in sync", ">epoch")
    table.add_row("0", "broker-1 broker-2 broker-3", "12")
    page = "\n".join(lines_of(table, 24))
    assert "…" not in page
    assert {"part", "epoch", "broker-1", "broker-2", "broker-3"} <= set(page.split())


def test_texts_of_one_line_are_cut_before_others_are_broken() -> None:
    table = new_table("", "id", "|payload", ">bytes")
    table.add_row("0123456789abcdef", "a payload that is long", "22")
    [row] = [line for line in lines_of(table, 34, id=16) if "0123" in line]
    assert row.split()[0] == "0123456789abcdef"
    assert "…" in row
    assert row.split()[-1] == "22"


def test_a_wide_terminal_shows_each_row_in_one_line() -> None:
    [row] = [line for line in lines_of(topics(), 200) if "departures" in line]
    assert "▇" * 20 in row
    assert "now" in "".join(lines_of(topics(), 200))


def test_a_table_without_heads_shows_its_rows_only() -> None:
    table = new_table("", "", "", heads=False)
    table.add_row("topic", "bills")
    assert [line.split() for line in lines_of(table, 60) if line.strip()] == [["topic", "bills"]]
