"""Changes from one document of a view to the next, so that a page gets a few bytes a second, not all of it.

A change is [place, value], a place being the names and numbers that lead to the value; [place] alone says that the
value there is gone. Pure; `static/live.js` does the opposite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Change = list[Any]


def changes(old: Any, new: Any, place: Sequence[str | int] = ()) -> Iterator[Change]:
    """Yield what makes a new document of an old one."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from ([[*place, name]] for name in old.keys() - new.keys())
        for name, value in new.items():
            if name not in old:
                yield [[*place, name], value]
            elif old[name] != value:
                yield from changes(old[name], value, [*place, name])
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, value) in enumerate(zip(old, new, strict=True)):
            if before != value:
                yield from changes(before, value, [*place, index])
    else:
        yield [list(place), new]
