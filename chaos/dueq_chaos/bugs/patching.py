"""Changing the product while it runs: a line of one function's source, and back.

A planted bug is written as the diff of a careless commit would be: *this text becomes that text*. The function is
compiled anew from its changed source and given the new code. So every holder of the function, under any name, has the
bug. The text must be there exactly once, so a bug whose place has moved on says so and does not rot.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from textwrap import dedent, indent
from types import CodeType, FunctionType


class BugRotten(Exception):
    """The product no longer has what a planted bug wants to change.

    Attributes:
        target: the function.
        why: what is not as the bug expects it.
    """

    def __init__(self, target: str, why: str) -> None:
        super().__init__(f"a planted bug no longer fits {target}: {why}")
        self.target, self.why = target, why


@dataclass(frozen=True)
class Rewrite:
    """One text in one function becomes another.

    Attributes:
        target: "module:function" or "module:Class.method".
        old: text of the function's source (dedented), there exactly once.
        new: what stands there instead.
    """

    target: str
    old: str
    new: str


def function_of(target: str) -> FunctionType:
    """Return the function itself, also of a property or a static method.

    Raises:
        BugRotten: it is not there, or is no function.
    """
    module_name, _, path = target.partition(":")
    try:
        found: object = import_module(module_name)
        for name in path.split("."):
            found = inspect.getattr_static(found, name)
    except (ImportError, AttributeError) as error:
        raise BugRotten(target, f"it is not there ({error})") from error
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    elif isinstance(found, property):
        found = found.fget
    if not isinstance(found, FunctionType):
        raise BugRotten(target, f"it is no function but {found!r}")
    return found


@contextmanager
def rewritten(rewrites: Iterable[Rewrite]) -> Iterator[None]:
    """Have all these changes in the product, as long as this lasts.

    Args:
        rewrites: those of one function are made one after the other.

    Raises:
        BugRotten: some text is not there exactly once; nothing was changed.
    """
    by_target: dict[str, list[Rewrite]] = {}
    for rewrite in rewrites:
        by_target.setdefault(rewrite.target, []).append(rewrite)
    codes = {target: changed_code(target, changes) for target, changes in by_target.items()}
    before = {target: function_of(target).__code__ for target in codes}
    try:
        for target, code in codes.items():
            function_of(target).__code__ = code
        yield
    finally:
        for target, code in before.items():
            function_of(target).__code__ = code


def changed_code(target: str, changes: list[Rewrite]) -> CodeType:
    """Return the code of a function with its source changed.

    Raises:
        BugRotten: a text is not there exactly once.
    """
    function = function_of(target)
    before = function.__code__
    lines, first = inspect.getsourcelines(function)
    module_lines = linecache.getlines(before.co_filename)
    above, below = module_lines[: first - 1], module_lines[first - 1 + len(lines) :]
    original = "".join(lines)
    if not _by_pytest(function) and _compiled(before, [*above, original, *below]) != before:
        raise BugRotten(target, "its source is not what runs: edited since, or another bug is there")
    source = dedent(original)
    for change in changes:
        count = source.count(change.old)
        if count != 1:
            raise BugRotten(target, f"the text {change.old!r} is there {count} times")
        source = source.replace(change.old, change.new)
    margin = original[: len(original) - len(original.lstrip())]
    changed = _compiled(before, [*above, indent(source, margin), *below])
    if changed is None:
        raise BugRotten(target, "its source does not define it")
    return changed


def _by_pytest(function: FunctionType) -> bool:
    """Whether pytest has compiled it.

    pytest rewrites the asserts of all packages that are installed together with a plug-in. Where dueq is installed for
    development, that is `pytest_dueq` alone.
    """
    loader = getattr(import_module(function.__module__).__spec__, "loader", None)
    return type(loader).__module__.startswith("_pytest.")


def _compiled(before: CodeType, lines: list[str]) -> CodeType | None:
    """Compile a whole module, since what is imported decides how a call is compiled; return the one function."""
    # The name `annotations` is that of the import at the top: the feature, with its flag for the compiler.
    flags = annotations.compiler_flag
    found: list[CodeType] = [compile("".join(lines), before.co_filename, "exec", flags, dont_inherit=True)]
    while found:
        code = found.pop()
        if code.co_qualname == before.co_qualname:
            return code
        found += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return None
