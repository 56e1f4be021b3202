"""Errors of several actions that are all to be done, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Failures:
    """Keeps errors until everything is done, and raises the first of them then."""

    def __init__(self) -> None:
        self._errors: list[Exception] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what one action raises."""
        try:
            yield
        except Exception as error:
            self._errors.append(error)

    def raise_first(self) -> None:
        """Raise the first error; nothing where there is none."""
        if self._errors:
            try:
                raise self._errors[0]
            finally:
                self._errors.clear()  # they hold this frame
