"""`dueq-chaos check`."""

from __future__ import annotations

import json

import click
from rich.console import Console

from dueq.cli.options import json_option

_DEFAULT_CLOCK_MS = 50.0
_DEFAULT_GRACE_S = 15.0
_DEFAULT_SILENCE_S = 5.0


@click.command("check")
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="HISTORY.jsonl…")
@click.option(
    "--clock-ms", type=click.FloatRange(min=0), default=_DEFAULT_CLOCK_MS, show_default=True, metavar="MS",
    help="How far the mesh's clock may be from the clients'.",
)  # fmt: skip
@click.option(
    "--grace", "grace_s", type=click.FloatRange(min=0), default=_DEFAULT_GRACE_S, show_default=True,
    metavar="SECONDS", help="What was due later than this before the last consumer stopped is not yet lost.",
)  # fmt: skip
@click.option(
    "--silence", "silence_s", type=click.FloatRange(min=0), default=_DEFAULT_SILENCE_S, show_default=True,
    metavar="SECONDS", help="A consumer that wrote nothing for so long may have lost its leases.",
)  # fmt: skip
@click.option(
    "--examples", type=click.IntRange(min=0), default=3, show_default=True, metavar="N",
    help="Stories to tell for each verdict.",
)  # fmt: skip
@json_option
def check(
    files: tuple[str, ...], clock_ms: float, grace_s: float, silence_s: float, examples: int, as_json: bool
) -> int:
    """Judge the recorded history of all clients of a run.

    Several files are one history: one from each process. The run must have ended with a quiet in which a healthy
    mesh delivered what was due. Exit codes: 0 nothing happened that must not happen,
    1 something did, 2 a file cannot be read (the error names the line).
    """
    from dueq_chaos.history.checker import check as judge
    from dueq_chaos.history.judging import Rules
    from dueq_chaos.history.reading import HistoryError, read_history
    from dueq_chaos.history.report import Report

    try:
        history = read_history(*files)
    except HistoryError as error:
        click.echo(f"dueq-chaos: {error}", err=True)
        return 2
    rules = Rules(int(clock_ms * 1000), int(grace_s * 1e6), int(silence_s * 1e6))
    judgement = judge(history, rules)
    report = Report(history, judgement, examples)
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        report.print(Console(highlight=False, soft_wrap=True))
    return 0 if judgement.clean else 1
