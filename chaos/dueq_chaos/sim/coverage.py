"""Which named situations and lines of the pure machines a batch of storms reached, and which it never reached.

Storms are several times slower while this is watched; their stories are the same.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from dueq_chaos.sim.situations import SITUATIONS, Situation

PACKAGES: Final = ("dueq.core", "dueq.client.core")
"""The pure machines: storms test their decisions."""
_GENERATED: Final = frozenset(("<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "__repr__"))


@dataclass
class Taken:
    """The situations and lines that one storm took.

    Attributes:
        situations: by name.
        rotten: situations that no longer fit the product, and why.
        lines: of each file those that this process had not seen before.
    """

    situations: set[str] = field(default_factory=set)
    rotten: dict[str, str] = field(default_factory=dict)
    lines: dict[str, set[int]] = field(default_factory=dict)


class _Lines:
    """Notes each line of the machines once. Code without new lines is not traced any more."""

    def __init__(self) -> None:
        self._left: dict[CodeType, set[int]] = {}
        self._files = {str(path) for package in PACKAGES for path in _files(package)}
        self.fresh: dict[str, set[int]] = {}

    def called(self, frame: FrameType, event: str, argument: object) -> Any:
        """Python's trace function: somebody is called."""
        code = frame.f_code
        left = self._left.get(code)
        if left is None:
            known = code.co_filename in self._files
            left = self._left[code] = _lines_of(code) if known else set()
        return self._line if left else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            left = self._left[frame.f_code]
            if frame.f_lineno in left:
                left.discard(frame.f_lineno)
                self.fresh.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return self._line


class Watch:
    """Looks at storms, one after the other, in one process."""

    def __init__(self) -> None:
        self._lines = _Lines()

    @contextmanager
    def watching(self) -> Iterator[Taken]:
        """Look at what happens as long as this lasts."""
        taken = Taken()
        before = [(found.owner, found.method, getattr(found.owner, found.method)) for found in SITUATIONS]
        for found in SITUATIONS:
            setattr(found.owner, found.method, _probed(found, taken))
        sys.settrace(self._lines.called)
        try:
            yield taken
        finally:
            sys.settrace(None)
            for owner, method, function in reversed(before):
                setattr(owner, method, function)
            taken.lines, self._lines.fresh = self._lines.fresh, {}


def _probed(situation: Situation, taken: Taken) -> Any:
    function = getattr(situation.owner, situation.method)
    name, when = situation.name, situation.when

    @wraps(function)
    def probed(*arguments: Any, **named: Any) -> Any:
        if name not in taken.situations and name not in taken.rotten:
            try:
                if when(*arguments, **named):
                    taken.situations.add(name)
            except (TypeError, AttributeError) as error:  # the product has moved on
                taken.rotten[name] = repr(error)
        return function(*arguments, **named)

    return probed


@dataclass
class Coverage:
    """The situations and lines that a batch has taken so far.

    Attributes:
        storms: how many were looked at.
        situations: in how many of them each was brought about.
        rotten: those that no longer fit the product, and why.
        lines: of each file those that were executed.
    """

    storms: int = 0
    situations: Counter[str] = field(default_factory=Counter)
    rotten: dict[str, str] = field(default_factory=dict)
    lines: dict[str, set[int]] = field(default_factory=dict)

    def add(self, taken: Taken) -> None:
        """Count one storm."""
        self.storms += 1
        self.situations.update(taken.situations)
        self.rotten |= taken.rotten
        for file, lines in taken.lines.items():
            self.lines.setdefault(file, set()).update(lines)

    @property
    def never(self) -> list[str]:
        """The situations that no storm has brought about."""
        return [found.name for found in SITUATIONS if not self.situations[found.name]]

    def told(self) -> list[str]:
        """Say how often each situation was taken, the rarest first, and which never were."""
        lines = [f"situations in {self.storms} storms:"]
        ranked = sorted(SITUATIONS, key=lambda found: self.situations[found.name])
        lines += [f"{self.situations[found.name] or 'none':>6}  {found.name}" for found in ranked]
        lines += [f"{name!r} cannot be seen any more: {why}" for name, why in sorted(self.rotten.items())]
        lines.append("lines that no storm has taken:")
        every = missed = 0
        for package in PACKAGES:
            for path in _files(package):
                taken = self.lines.get(str(path), set())
                functions = list(_functions(path))
                every += sum(len(found) for _, found in functions)
                left = [(name, found, found - taken) for name, found in functions if found - taken]
                missed += sum(len(rest) for _, _, rest in left)
                lines += [f"  {path.parent.name}.{path.stem}: {_told(name, *rest)}" for name, *rest in left]
        lines.append(f"{missed} of {every} lines of functions were never taken")
        return lines


def _told(name: str, every: set[int], left: set[int]) -> str:
    if left == every:
        return f"{name}: never called"
    return f"{name}: {', '.join(map(str, sorted(left)))}"


def _files(package: str) -> list[Path]:
    """Return the modules of a package, those of its floors included."""
    return [
        path
        for folder in import_module(package).__path__
        for path in sorted(Path(folder).rglob("*.py"))
        if path.stem != "__init__"
    ]


def _functions(path: Path) -> Iterator[tuple[str, set[int]]]:
    """Yield every function of a file with the lines of its body."""
    waiting: list[CodeType] = [compile(path.read_text(), str(path), "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop(0)
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        lines = _lines_of(code)
        if code.co_flags & CO_OPTIMIZED and code.co_name not in _GENERATED and lines:
            yield code.co_qualname, lines


def _lines_of(code: CodeType) -> set[int]:
    """Lines of a function's body, without its first."""
    return {line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno}
