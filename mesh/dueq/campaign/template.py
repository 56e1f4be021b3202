"""A payload's template: text with the names of columns in braces."""

from __future__ import annotations

from dataclasses import dataclass

from dueq.errors import InvalidRequest


@dataclass(frozen=True)
class Piece:
    """A part of a template: either text as it is, or the name of a column."""

    text: str = ""
    column: str = ""


def pieces_of(template: str) -> list[Piece]:
    """Take a template apart; `{{` and `}}` mean braces.

    Returns:
        Texts and columns in turn; no empty ones.

    Raises:
        InvalidRequest: a brace that is not closed, not opened, or with nothing in it; the text says where.
    """
    pieces: list[Piece] = []
    text, place = "", 0
    while place < len(template):
        two, one = template[place : place + 2], template[place]
        if two in ("{{", "}}"):
            text, place = text + one, place + 2
        elif one == "}":
            raise InvalidRequest(
                f"the template has a }} without a {{ at character {place + 1}; write }}}} for one"
            )
        elif one == "{":
            end = template.find("}", place)
            name = template[place + 1 : end].strip()
            if end < 0 or not name or "{" in name:
                raise InvalidRequest(
                    f"the template has a {{ at character {place + 1} that is not followed by a column and }}; "
                    "write {{ for a brace"
                )
            if text:
                pieces.append(Piece(text=text))
            pieces.append(Piece(column=name))
            text, place = "", end + 1
        else:
            text, place = text + one, place + 1
    return [*pieces, Piece(text=text)] if text else pieces
