"""`python -m dueq.demo.year`: a whole year of New York's departures as one campaign, held against the data.

The data is of 2013. Its flights are loaded for the next year with the same calendar (2030, …). So weekdays are the
same, and clocks change on the same dates: in the United States on the second Sunday of March and the first of
November. The specification knows only local dates and times of day; the data's own `time_hour`, the scheduled hour in
UTC, is the reference with which the result is compared, hour by hour.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dueq import Client
from dueq.errors import DueqError
from dueq.local import LocalMesh

if TYPE_CHECKING:
    import pandas as pd

DATA_YEAR: Final = 2013
TOPIC: Final = "year"
_HOUR_S: Final = 3600
SPECIFICATION: Final = """\
name = "flights"
topic = "{topic}"
key = "number"

[source]
path = "flights.parquet"
format = "parquet"

[columns]
leaves_on = "make_date(year + {shift}, month, day)"
leaves_at = "format_string('%02d:%02d', hour, minute)"

[payload]
template = "{{carrier}} {{flight}} from {{origin}} to {{dest}}"

[due]
date_column = "leaves_on"
time_column = "leaves_at"
zone = "America/New_York"
"""


def year_like(year: int, after: int) -> int:
    """Return the first year after `after` whose days fall on the weekdays of `year`, and that has as many."""
    wanted = _calendar(year)
    return next(found for found in range(after + 1, after + 41) if _calendar(found) == wanted)


def _calendar(year: int) -> tuple[int, int]:
    first = date(year, 1, 1)
    return first.weekday(), (date(year + 1, 1, 1) - first).days


def specification(topic: str, year: int) -> str:
    """Return the campaign that loads `flights.parquet` for a year, as TOML."""
    return SPECIFICATION.format(topic=topic, shift=year - DATA_YEAR)


def write_flights(file: Path, months: Collection[int] = range(1, 13)) -> int:
    """Write the flights of some months as Parquet; return how many. `number` is a flight's row in the data."""
    chosen = _flights(months)
    chosen.to_parquet(file, index=False)
    return len(chosen)


def hours(year: int, months: Collection[int] = range(1, 13)) -> Counter[int]:
    """Return how many flights were to leave in each hour (hours since 1970, UTC), as the data says, in another year."""
    found: Counter[int] = Counter()
    for text, count in _flights(months).time_hour.value_counts().items():
        hour = datetime.fromisoformat(str(text))
        moved = hour.replace(year=hour.year + year - DATA_YEAR)
        found[int(moved.timestamp()) // _HOUR_S] += int(count)
    return found


def cancellations(months: Collection[int] = range(1, 13)) -> frozenset[str]:
    """Return the numbers of the flights that never left."""
    chosen = _flights(months)
    return frozenset(map(str, chosen.number[chosen.dep_time.isna()]))


def _flights(months: Collection[int]) -> pd.DataFrame:
    from dueq.demo.flights import all_flights

    flights = all_flights()
    chosen = flights[flights.month.isin(list(months))]
    return chosen.assign(number=chosen.index)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def main(as_json: bool) -> None:
    """Load a year of flights into three brokers, hold it against the data, cancel what was cancelled, take it back."""
    try:
        figures = _run(lambda text: click.echo(text, err=True))
    except DueqError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            click.echo(f"{name.replace('_', ' '):<34}{value:>14,}" if name != "good" else "")
        click.echo("all as in the data" if figures["good"] else "NOT as in the data")
    sys.exit(0 if figures["good"] else 1)


def _run(tell: Callable[[str], None]) -> dict[str, Any]:
    from dueq.campaign import Spec, cancel
    from dueq.campaign import run as carry_out
    from dueq.spark import spark_session

    year = year_like(DATA_YEAR, datetime.now(UTC).year)
    with tempfile.TemporaryDirectory(prefix="dueq-year-") as name:
        folder = Path(name)
        file = folder / "flights.toml"
        file.write_text(specification(TOPIC, year), encoding="utf-8")
        flights = write_flights(folder / "flights.parquet")
        tell(f"{flights:,} flights of {DATA_YEAR}, for {year}; starting ZooKeeper, three brokers and Spark …")
        with LocalMesh(folder / "mesh") as mesh, Client(mesh.endpoints) as client:
            spark = spark_session("dueq year of flights", spark_log_level="ERROR", spark_master="local[2]")
            client.create_topic(TOPIC, partitions=6, replicas=3)
            tell("planning and loading …")
            report = carry_out(spark, mesh.endpoints, Spec.read(file))
            tell("holding it against the data …")
            figures = _held_against_data(client, year)
            figures |= {
                "flights": flights, "committed": report.committed, "nonexistent_local_times": report.nonexistent,
                "planning_s": report.planning_s, "loading_s": report.loading_s,
            }  # fmt: skip
            tell("taking it back …")
            began = time.monotonic()
            left = cancel(client, TOPIC, report.job_id, wait=True)
            figures["taking_back_s"] = round(time.monotonic() - began, 3)
            figures["left"] = left.messages + len(list(client.browse(TOPIC)))
            spark.stop()
    figures["good"] = (
        report.committed == flights and not figures["hours_that_differ"] and not figures["left"]
        and figures["cancellations"] == len(cancellations()) > 0
        and figures["after_cancellations"] == flights - figures["cancellations"]
    )  # fmt: skip
    return figures


def _held_against_data(client: Client, year: int) -> dict[str, Any]:
    """Compare what waits with the data, hour by hour; then cancel the flights that never left."""
    began = time.monotonic()
    gone, ids, found = cancellations(), [], Counter[int]()
    for message in client.browse(TOPIC):
        found[message.due // (_HOUR_S * 1000)] += 1
        if message.key in gone:
            ids.append(message.id)
    browsing_s = round(time.monotonic() - began, 3)
    truth = hours(year)
    with client.producer(TOPIC) as producer:
        producer.cancel_many(ids)
    return {
        "hours": len(truth),
        "hours_that_differ": sum(found[hour] != truth[hour] for hour in {*found, *truth}),
        "cancellations": len(ids),
        "after_cancellations": client.describe(TOPIC).scheduled,
        "browsing_s": browsing_s,
    }


if __name__ == "__main__":
    main()
