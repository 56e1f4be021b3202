"""The tables of chaos/README.md: every case has its scenario, test or reason, and every scenario its case."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = {"B": 15, "V": 3, "S": 17, "M": 18, "R": 22, "L": 11, "D": 21, "C": 5, "P": 8, "T": 5}
"""How many cases of each letter there are."""
NOT_APPLICABLE = "not applicable: "
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROW = re.compile(
    r"^\| \*\*(?P<case>[A-Z]\d+)\*\* (?P<name>[^|]+) \| (?P<text>[^|]+) \| (?P<shown>[^|]+) \|$", re.M
)


def rows() -> list[re.Match[str]]:
    """Every row of every table of cases."""
    return list(ROW.finditer((ROOT / "chaos" / "README.md").read_text(encoding="utf-8")))


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of the tests of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


def test_every_case_is_in_the_tables_once() -> None:
    found = [row["case"] for row in rows()]
    assert found == [f"{letter}{number}" for letter, count in CASES.items() for number in range(1, count + 1)]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["case"])
def test_a_case_is_shown_by_tests_that_exist_or_says_why_not(row: re.Match[str]) -> None:
    shown = TEST.findall(row["shown"])
    if not shown:
        assert row["shown"].startswith(NOT_APPLICABLE), f"{row['case']} names no test and no reason"
        assert len(row["shown"]) > len(NOT_APPLICABLE) + 20, f"{row['case']} gives no reason"
    rest = TEST.sub("", row["shown"]).replace("<br>", "").strip()
    assert not shown or not rest, f"{row['case']}: {rest!r} is not a test"
    missing = [f"{file}::{name}" for file, name in shown if not _exists(file, name)]
    assert not missing, f"{row['case']} names tests that are not there: {missing}"


def _exists(file: str, name: str) -> bool:
    path = ROOT / file
    return path.is_file() and name in names_in(path)


def test_every_scenario_belongs_to_a_case() -> None:
    named = {name for row in rows() for _, name in TEST.findall(row["shown"])}
    for path in sorted((ROOT / "tests" / "scenarios").glob("test_*.py")):
        if path.name != Path(__file__).name:
            assert names_in(path) <= named, f"{path.name}: no case names {sorted(names_in(path) - named)}"
