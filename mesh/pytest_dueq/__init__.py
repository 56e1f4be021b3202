"""The plug-in of pytest, which loads itself: a mesh inside a test. It imports `dueq` only when a test uses it.

A package of its own, since pytest rewrites the asserts of a plug-in's top-level package where it is installed for
development: the lines of `dueq` must be what `inspect` shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dueq.testing.mesh import AsyncMesh, Mesh


@pytest.fixture
def dueq_mesh() -> Iterator[Mesh]:
    """A mesh inside the test, whose clock the test moves; a new one for each test."""
    from dueq.testing.mesh import mesh

    with mesh() as found:
        yield found


@pytest.fixture
def dueq_amesh() -> Iterator[AsyncMesh]:
    """The same for asyncio."""
    from dueq.testing.mesh import amesh

    with amesh() as found:
        yield found
