"""Pages of Markdown: their blocks of code, and their links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNNABLE = ("sh", "python", "javascript", "go")
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_MODULE = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|fbs|toml|md))`")
_LINK = re.compile(r"\[[^\]\n]*\]\((?!https?://|mailto:|#)(?P<target>[^)#\s]+)(?:#[^)\s]*)?\)")


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        line: of its first line of text, from 1.
        language: as the fence names it.
        text: the code.
        why_not: why the page says that it is not run; empty: it is run.
    """

    line: int
    language: str
    text: str
    why_not: str


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page that can be run, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            text.count("\n", 0, found.start("text")) + 1, found["language"], found["text"], found["why"] or ""
        )
        for found in _BLOCK.finditer(text)
        if found["language"] in RUNNABLE
    ]


def links(page: Path) -> list[str]:
    """Return where the page's links inside the repository point, without anchors. Code holds none."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    return [found["target"] for found in _LINK.finditer(text)]


def files(page: Path) -> list[str]:
    """Return the files of the repository that the page's text names, as it names them: `core/broker.py`."""
    return sorted(set(_MODULE.findall(_BLOCK.sub("", page.read_text(encoding="utf-8")))))
