"""Rules of this repository that no linter knows; each failure says what to do instead."""

from __future__ import annotations

import ast
import re
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("mesh", "codecs", "chaos")
LINES_MAX = 700
LINES_TO_THINK_AT = 400

OWNED: dict[str, tuple[str | tuple[str, ...], set[str]]] = {
    "partition": (
        ("core/partition", "core/delivery"),
        {"timeline", "checkpoints", "dispatcher", "levels", "jobs"},
    ),
    "timeline": (("core/partition", "core/state"), {"jobs"}),
    "replica": ("core/replication", {"leading", "log", "following", "standing", "stopped", "node"}),
    "leading": ("core/replication", {"isr", "followers", "confirmation"}),
    "any_broker": ("client/core", {"context", "links", "open", "parked"}),
    "topics": ("client/core", {"context", "calls", "links", "any_broker"}),
}
"""What an owner has for itself: the name by which others know the owner, the folders of its own, and its parts."""

# Put together from pieces, so that this file keeps its own rules.
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
MACHINE_PATHS = re.compile(
    r"(?<![\w.])/(?:" + "|".join(("wor" + "k", "hom" + "e", "roo" + "t", "Us" + "ers")) + r")/"
)
SLEEPING = re.compile(
    r"\btime\.sle" + r"ep\(|\basyncio\.sle" + r"ep\((?!0\))|from time import .*\bsle" + r"ep\b"
)


def tracked(*suffixes: str) -> list[Path]:
    """Every file of the repository with one of these endings; an unpacked sdist is walked instead."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout.splitlines()  # fmt: skip
        files: Iterator[Path] = (ROOT / name for name in listing)
    except (OSError, subprocess.CalledProcessError):
        files = (path for path in ROOT.rglob("*") if ".venv" not in path.parts)
    return [path for path in files if path.is_file() and (not suffixes or path.suffix in suffixes)]


def python_files(*folders: str) -> list[Path]:
    """Python files under these folders, without the generated ones."""
    roots = [ROOT / folder for folder in folders]
    return [
        path
        for path in tracked(".py")
        if "_fb" not in path.parts and any(root in path.parents for root in roots)
    ]


def offences(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    """Every line that matches, as file:line."""
    found = []
    for path in files:
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    return found


def test_no_module_is_a_drawer_for_anything() -> None:
    """Name a module for the one idea that it holds."""
    drawers = {"utils", "util", "helpers", "helper", "common", "misc", "shared"}
    named = [p for p in python_files(*SOURCES, "tests") if p.stem in drawers or p.parent.name in drawers]
    assert not named, f"name these for what they hold: {named}"


def test_nothing_is_left_unfinished() -> None:
    """Finish it, or say in an issue what is missing."""
    assert not offences(UNFINISHED, tracked(".py", ".md", ".toml", ".sh", ".fbs"))


def test_no_path_of_somebodys_machine() -> None:
    """Paths come from arguments, the environment, or the place of the file itself."""
    files = [path for path in tracked() if path.suffix not in {".bin"} and path.name != "LICENSE"]
    assert not offences(MACHINE_PATHS, files)


def test_tests_do_not_sleep() -> None:
    """Wait for what is to happen (an event, an answer), not for a while."""
    assert not offences(SLEEPING, python_files("tests"))


def test_files_stay_short() -> None:
    """One idea a file: aim at 150 lines, think at 400, split before 700."""
    lengths = {path: len(path.read_bytes().splitlines()) for path in python_files(*SOURCES, "tests")}
    long = [
        f"{path.relative_to(ROOT)} ({lines})" for path, lines in lengths.items() if lines > LINES_TO_THINK_AT
    ]
    if long:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.warn(f"are these one idea each? {', '.join(long)}", stacklevel=1)
    too_long = [f"{path.relative_to(ROOT)}: {lines}" for path, lines in lengths.items() if lines > LINES_MAX]
    assert not too_long, f"split these: {too_long}"


@pytest.mark.parametrize(
    "name", ["scripts/quickstart", "scripts/test", "scripts/check", "scripts/fix", "scripts/docs", ".ci/run"]
)
def test_scripts_can_be_run(name: str) -> None:
    """A script that is not executable is of no use in a fresh clone."""
    assert (ROOT / name).stat().st_mode & 0o111, f"chmod +x {name}"


def test_no_property_is_judged_by_the_clock() -> None:
    """A busy machine fails none: neither deadlines nor health checks that look at time."""
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def reaches_through(source: str, folder: str) -> list[tuple[int, str]]:
    """Lines in which a file of this folder names a part of something that another folder owns."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value
        name = (
            owner.attr
            if isinstance(owner, ast.Attribute)
            else owner.id
            if isinstance(owner, ast.Name)
            else ""
        )
        home, parts = OWNED.get(name.lstrip("_"), ("", set()))
        if node.attr in parts and not folder.endswith(home):
            found.append((node.lineno, f"{name}.{node.attr}"))
    return sorted(found)


def test_nobody_reaches_through_an_owner() -> None:
    """Ask the owner (`replica.append(…)`), so that what it is made of stays its own business."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in python_files("mesh")
        for line, what in reaches_through(path.read_text(encoding="utf-8"), path.parent.as_posix())
    ]
    assert not found, f"ask the owner instead: {found}"


def test_reaching_through_is_seen_however_it_is_spelt() -> None:
    """The rule above sees chains and what was taken out of one before; the owner's own folder is free."""
    source = "self._partition.replica.leading.serve()\nreplica = partition.replica\nreplica.log.end\nctx.log('info')"
    assert [what for _, what in reaches_through(source, "mesh/dueq/core/front")] == [
        "replica.leading",
        "replica.log",
    ]
    assert not reaches_through(source, "mesh/dueq/core/replication")
    source = "partition.timeline.jobs.by_key"
    assert [what for _, what in reaches_through(source, "mesh/dueq/core/front")] == [
        "partition.timeline",
        "timeline.jobs",
    ]
    assert [what for _, what in reaches_through(source, "mesh/dueq/core/delivery")] == ["timeline.jobs"]
    assert not reaches_through(source, "mesh/dueq/core/partition")
