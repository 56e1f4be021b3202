"""Payloads: the words of commands that bring some."""

from __future__ import annotations

from typing import BinaryIO

import click


def content_of(payload: str) -> bytes:
    """Return what a word means: the text itself, @FILE for a file's content, or - for standard input."""
    if payload.startswith("@@"):
        return payload[1:].encode("utf-8", "surrogateescape")
    if payload == "-" or payload.startswith("@"):
        with opened(payload) as source:
            return source.read()
    return payload.encode("utf-8", "surrogateescape")


def opened(payload: str) -> BinaryIO:
    """Open standard input (-) or a file (@FILE).

    Raises:
        click.FileError: there is no such file, or it cannot be read.
    """
    if payload == "-":
        return click.open_file("-", "rb")  # type: ignore[return-value]
    try:
        return open(payload[1:], "rb")
    except OSError as error:
        raise click.FileError(payload[1:], error.strerror or str(error)) from error
