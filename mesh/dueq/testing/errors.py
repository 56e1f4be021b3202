"""What a mesh inside a test complains about."""

from __future__ import annotations


class NotAtRest(AssertionError):
    """Time cannot move on: a handler is still at work, or somebody waits for what can never come."""
