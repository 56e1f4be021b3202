"""Guesses at what a user meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown word.

    Args:
        word: as the user wrote it.
        known: what there is.

    Returns:
        "; did you mean 'x'? There are: a, b, x", or without the question where nothing is alike.
    """
    names = sorted(known)
    if not names:
        return "; there are none"
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    question = f"; did you mean {by_lower[close[0]]!r}?" if close else "."
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return f"{question} There are: {shown}"
