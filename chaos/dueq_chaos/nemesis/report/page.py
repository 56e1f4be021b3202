"""The page around the picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from dueq_chaos.nemesis.outcome import Outcome
from dueq_chaos.nemesis.report.drawing import Drawing

_STYLE = Path(__file__).with_name("style.css")


def write_report(outcome: Outcome, path: Path) -> None:
    """Write the report; an older one is replaced."""
    path.write_text(page(outcome), encoding="utf-8")


def page(outcome: Outcome) -> str:
    """The report as HTML."""
    title = escape(f"dueq-chaos run {outcome.settings.get('scenarios', '')}".strip())
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{title}</title><style>{_STYLE.read_text(encoding='utf-8')}</style></head><body>",
        f"<h1>{title}</h1>",
        _lead(outcome),
        Drawing(outcome).svg(),
        '<div class="columns">',
        _section("Verdict", _verdicts(outcome)),
        _section("Traffic", _table(("", ""), [(name, _number(n)) for name, n in outcome.counts.items()])),
        _section("Settings", _table(("", ""), outcome.settings.items())),
        "</div>",
        _findings(outcome),
        _section("Faults", _faults(outcome)),
        _impossible(outcome.impossible),
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _lead(outcome: Outcome) -> str:
    verdict = '<b class="good">Nothing happened that must not.</b>'
    if not outcome.good:
        wrong = sum(outcome.verdicts.values()) + len(outcome.troubles)
        verdict = f'<b class="bad">{wrong} {"thing" if wrong == 1 else "things"} happened that must not.</b>'
    early = " The run was interrupted." if outcome.interrupted else ""
    count = len(outcome.happenings)
    return f'<p class="lead">{verdict} {count} {"fault" if count == 1 else "faults"}.{early}</p>'


def _verdicts(outcome: Outcome) -> str:
    rows = [
        f'<tr><td>{escape(name)}</td><td class="n {"bad" if count else "good"}">{count:,}</td></tr>'
        for name, count in outcome.verdicts.items()
    ]
    return f"<table>{''.join(rows)}</table>"


def _findings(outcome: Outcome) -> str:
    lines = [*outcome.troubles, *outcome.examples]
    return _section("Findings", "".join(f"<pre>{escape(line)}</pre>" for line in lines)) if lines else ""


def _faults(outcome: Outcome) -> str:
    start_s = outcome.series.start_s
    rows = [
        (
            f"{happening.begin_s - start_s:.1f} s",
            "" if happening.end_s is None else f"{happening.end_s - happening.begin_s:.1f} s",
            happening.text,
            happening.trouble,
        )
        for happening in outcome.happenings
    ]
    rows += [
        (f"{at_s - start_s:.1f} s", "", f"✝ {text.splitlines()[0]}", "") for at_s, text in outcome.deaths
    ]
    rows.sort(key=lambda row: float(row[0].removesuffix(" s")))
    return _table(("at", "for", "what", ""), rows)


def _impossible(reasons: Mapping[str, str]) -> str:
    return (
        _section("Not possible on this machine", _table(("fault", "reason"), reasons.items()))
        if reasons
        else ""
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    top = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>" if any(head) else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{top}{body}</table>"


def _number(value: int) -> str:
    return f"{value:,}"
