"""Who may do what, and how much of it: the two questions asked before every request.

Both always say yes. They are here so that there is one place, on every request's way, where the answer will be
given.
"""

from __future__ import annotations


def allowed(principal: str, operation: str, topic: str) -> bool:
    """Return whether the session's principal may do this to the topic."""
    return True


def within_quota(principal: str, operation: str, rows: int) -> bool:
    """Return whether the principal may send that many rows just now."""
    return True
