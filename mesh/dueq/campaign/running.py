"""A campaign from its specification to its report; and back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from dueq import Client
from dueq.campaign.picture import draw
from dueq.campaign.planning import Plan, planned
from dueq.campaign.progress import loading_bar, withdrawing_bar
from dueq.campaign.report import LOADED, NOTHING, THERE, CampaignReport
from dueq.campaign.spec import Spec
from dueq.errors import InvalidRequest, JobEnded, JobNotFound
from dueq.spark import schedule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dueq import JobInfo

_LOOK_S: Final = 0.25


def run(
    spark: SparkSession,
    endpoints: Sequence[str],
    spec: Spec,
    *,
    job_id: str | None = None,
    dry: bool = False,
    plot: Path | None = None,
    console: Console | None = None,
    timeout: float | None = None,
) -> CampaignReport:
    """Run a campaign.

    A specification is loaded once: its job is named after what it says, and a second run finds that job. With
    `atomic` (the default) none of its messages is delivered before all are loaded, and none if it fails.

    Args:
        spark: the session.
        endpoints: of the mesh, as the executors reach it.
        spec: the campaign.
        job_id: instead of the specification's own.
        dry: plan only.
        plot: a PNG to draw messages per minute into.
        console: for progress; None: nothing is shown.
        timeout: seconds for each request to the mesh; None: the usual.

    Returns:
        The report. If the campaign was loaded before, it says how many of its messages are left.

    Raises:
        InvalidRequest: something in the specification does not fit the data.
        TopicNotFound, Disconnected
        JobEnded: a campaign of this job id was cancelled.
        DueqError: as `dueq.spark.schedule`.
    """
    name = job_id or spec.job_id
    shown = console or Console(quiet=True)
    with Client(endpoints, timeout=timeout) as client:
        there = None if dry else loaded_before(client, spec, name)
        if there is not None:
            return there
        with planned(spark, client, endpoints, spec, _telling(shown)) as plan:
            plan.report.job_id = name
            if plot is not None:
                draw(plan, plot)
                plan.report.plot = str(plot)
            if not dry:
                _load(client, endpoints, spec, plan, name, shown)
            return plan.report


def cancel(client: Client, topic: str, job_id: str, *, wait: bool, console: Console | None = None) -> JobInfo:
    """Take a campaign back: no further message of it is delivered from now on.

    Args:
        client: of the mesh.
        topic: whose messages.
        job_id: of the campaign's report.
        wait: until all that no consumer has is withdrawn.
        console: where to show how many are left; None: nothing is shown.

    Returns:
        What the mesh knows of the job then: `messages` are left (with `wait`, those that consumers have).

    Raises:
        JobNotFound: the topic knows of no such job.
    """
    client.cancel_job(topic, job_id)
    info = _known(client, topic, job_id)
    with withdrawing_bar(info.messages, console or Console(quiet=True)) as show:
        while wait and not info.cleared:
            time.sleep(_LOOK_S)
            info = _known(client, topic, job_id)
            show(info.messages)
    return info


def _known(client: Client, topic: str, job_id: str) -> JobInfo:
    info = client.job(topic, job_id)
    if info is None:
        raise JobNotFound(f"topic {topic!r} knows of no job {job_id!r}")
    return info


def loaded_before(client: Client, spec: Spec, job_id: str) -> CampaignReport | None:
    """Return the rest of an earlier run that is complete; None if there is something to do.

    Args:
        client: of the mesh.
        spec: the campaign.
        job_id: under which it would be loaded.

    Raises:
        JobEnded: it was cancelled.
        InvalidRequest: it may be incomplete, and the same plan cannot be made again.
    """
    info = client.job(spec.topic, job_id)
    if info is None or info.state == "aborted":
        return None
    if info.state == "cancelled":
        raise JobEnded(
            f"the campaign {job_id!r} was cancelled; to load it again, give it another name, or --job-id"
        )
    if spec.loading.atomic:
        there = CampaignReport(spec.name, spec.topic, job_id, THERE, left=info.messages)
        return there if info.state == "committed" else None
    if spec.plan_moves:
        raise InvalidRequest(
            f"the campaign {job_id!r} has been loaded, perhaps not as a whole, and cannot be planned again as it was: "
            "what waits in the topic, or the time, is another. Cancel it and give it another name, or use [load] atomic"
        )
    return None


def _load(
    client: Client, endpoints: Sequence[str], spec: Spec, plan: Plan, job_id: str, console: Console
) -> None:
    report, loading = plan.report, spec.loading
    if not report.messages:
        report.state, report.committed = NOTHING, 0
        return
    body = spec.payload.body.encode() or None
    with loading_bar(client, spec.topic, job_id, report.messages, console):
        done = schedule(
            plan.frame, topic=spec.topic, due="due", payload=None if body else "payload", body=body,
            key="key" if spec.key else None,
            rank="rank" if spec.rank else None, group="group" if spec.group else None,
            job_id=job_id, atomic=loading.atomic, endpoints=list(endpoints),
            hidden_for=float(loading.hidden_for_s),
        )  # fmt: skip
    report.state = LOADED
    report.committed, report.deduplicated = done.messages, done.deduplicated
    report.per_partition, report.loading_s = done.per_partition, round(done.seconds, 3)


def _telling(console: Console) -> Callable[[str], None]:
    def tell(text: str) -> None:
        console.print(f"{text} …", style="dim")

    return tell
