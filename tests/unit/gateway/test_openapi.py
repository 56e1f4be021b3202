"""The description of the HTTP API is that of the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

ROOT = Path(__file__).resolve().parents[3]


def test_the_description_that_is_checked_in_is_not_stale() -> None:
    script = ROOT / "scripts" / "generate-openapi"
    result = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
