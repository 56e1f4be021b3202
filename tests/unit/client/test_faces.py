"""The two faces: the synchronous one is made of the asyncio one, and both have the same names."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from dueq.client import aio, sync

ROOT = Path(__file__).resolve().parents[3]


def test_the_synchronous_face_is_not_stale() -> None:
    """Write in aio/, then run scripts/generate-faces."""
    if not Path(sys.executable).with_name("ruff").exists():
        pytest.skip("ruff, which formats it, is not installed")
    checked = subprocess.run(
        [sys.executable, ROOT / "scripts/generate-faces", "--check"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", sync.__all__)
def test_both_have_the_same_methods_with_the_same_arguments(name: str) -> None:
    def methods(face: type[object]) -> dict[str, list[str]]:
        return {
            method: list(inspect.signature(function).parameters)
            for method, function in inspect.getmembers(face, inspect.isfunction)
            if not method.startswith("_")
        }

    assert methods(getattr(sync, name)) == methods(getattr(aio, f"Async{name}"))


@pytest.mark.parametrize(
    "path", sorted((ROOT / "mesh/dueq/client/sync").glob("*.py")), ids=lambda path: path.name
)
def test_nothing_in_it_is_awaited_nor_told_so(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = [word for word in ("await", "async ", "Async", "coroutine") if word in text]
    assert not found
