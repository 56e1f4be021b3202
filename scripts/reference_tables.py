"""Tables of the manual that follow from the code: limits, metrics, settings and errors.

mkdocs calls this as a hook (`hooks:` in mkdocs.yml). A line `<!-- table: NAME -->` of a page is replaced by the table
of that name whenever the manual is built. So no table can be out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import dueq.limits
from dueq import errors
from dueq.broker import metrics, process
from dueq.config import BrokerConfig

MARK = re.compile(r"^<!-- table: (\w+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the tables into a page.

    Raises:
        KeyError: the page asks for a table that there is not.
    """
    return MARK.sub(lambda mark: TABLES[mark[1]](), markdown)


def limits() -> str:
    """A table for each section of `dueq.limits`."""
    source = Path(inspect.getfile(dueq.limits)).read_text(encoding="utf-8")
    lines, parts = source.splitlines(), []
    section: str | None = None
    for name, line, value, meaning in _constants(source):
        heading = _section(lines, line) or "Defaults"
        if heading != section:
            section = heading
            parts.append(f"\n## {section}\n\n| name | value | meaning |\n| --- | --- | --- |")
        parts.append(f"| `{name}` | {_shown(name, value)} | {meaning} |")
    return "\n".join(parts)


def _constants(source: str) -> Iterator[tuple[str, int, Any, str]]:
    """Each constant of a module: its name, line, value, and the text below it."""
    body = ast.parse(source).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            text = " ".join(str(after.value.value).split()) if said else ""  # type: ignore[union-attr]
            yield node.target.id, node.lineno, getattr(dueq.limits, node.target.id), text


def _section(lines: list[str], line: int) -> str | None:
    """The comment above the run of lines that this line belongs to."""
    for text in reversed(lines[: line - 1]):
        if text.startswith("# "):
            return text[2:]
        if not text:
            return None
    return None


def _shown(name: str, value: Any) -> str:
    if "_BYTES" in name:
        return _bytes(value)
    if re.search(r"_MS(_|$)", name):
        return str(value) if value >= 1 << 47 else _duration(value)
    if name.endswith("_S"):
        return _duration(int(value * 1000))
    if name.endswith("_SHARE"):
        return f"{value:.0%}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _bytes(value: int) -> str:
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= size and value % size == 0:
            return f"{value // size} {unit}"
    return f"{value:,} bytes"


def _duration(value: int) -> str:
    for size, unit in ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds")):
        if value >= 2 * size and value % size == 0:
            return f"{value // size} {unit}"
    return f"{value:,} ms"


def settings() -> str:
    """Every setting of a broker: its variable, its flag, its default and what it means."""
    meanings = dict(
        re.findall(r"^    (\w+): ((?:.|\n {8})+)", inspect.cleandoc(BrokerConfig.__doc__ or ""), re.M)
    )
    rows = ["| setting | environment | flag | default | meaning |", "| --- | --- | --- | --- | --- |"]
    for field in fields(BrokerConfig):
        default = (
            "required"
            if field.default is MISSING
            else f"`{field.default}`"
            if field.default not in ("", None)
            else "–"
        )
        flag = "--" + field.name.replace("_", "-")
        meaning = " ".join(meanings[field.name].split())
        rows.append(f"| `{field.name}` | `DUEQ_{field.name.upper()}` | `{flag}` | {default} | {meaning} |")
    return "\n".join(rows)


def metric_families() -> str:
    """Every family of the Prometheus page."""
    rows = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    page = metrics.MetricsPage()
    page.process = dict.fromkeys(_process_counters(), 0.0)
    page.durations = {name: page.core.commit for name in metrics._DURATIONS if name != "commit_seconds"}
    for family in page.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in getattr(family, "_labelnames", ())) or "–"
        rows.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
    return "\n".join(rows)


def _process_counters() -> list[str]:
    """The names that the process gives to `MetricsPage.process`, as its text has them."""
    for node in ast.walk(ast.parse(inspect.getsource(process))):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            target = node.targets[0]
            if isinstance(target, ast.Attribute) and target.attr == "process":
                return [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
    raise LookupError("dueq.broker.process sets no counters of its own")


def exceptions() -> str:
    """The tree of exceptions, as the module draws it, and what each one says of itself."""
    tree = (errors.__doc__ or "").split("\n\n", 1)[1].strip()
    rows = ["| exception | derives from | retry? | meaning |", "| --- | --- | --- | --- |"]
    for name, found in vars(errors).items():
        if inspect.isclass(found) and issubclass(found, errors.DueqError):
            bases = ", ".join(f"`{base.__name__}`" for base in found.__bases__)
            text = (inspect.getdoc(found) or "").split("\n\n")[0].replace("\n", " ")
            rows.append(f"| `{name}` | {bases} | {'yes' if found.retriable else 'no'} | {text} |")
    return f"```text\n{tree}\n```\n\n" + "\n".join(rows)


TABLES: dict[str, Callable[[], str]] = {
    "limits": limits,
    "settings": settings,
    "metrics": metric_families,
    "errors": exceptions,
}
