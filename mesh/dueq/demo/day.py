"""The day itself: plan, schedule with Spark, move, cancel, kill, watch, judge."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dueq import Client, Outcome
from dueq.demo.board import Board, Desk
from dueq.demo.flights import Flight, compressed, flights_of
from dueq.demo.report import Report, judge
from dueq.local import LocalMesh
from dueq.local.gateway import installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dueq.spark import ScheduleReport

DEFAULT_DAY = "2013-07-11"
TOPIC = "departures"
_PARTITIONS = 6
_DESKS = 2
_REHEARSAL = "rehearsal"
_LEAD_S, _LEAD_REHEARSALS = 5.0, 3.0
"""From planning to the first departure: Spark's job, the moves and the cancels must be done by then, also on a slow
machine. So the job is rehearsed, and gets several times as much time."""
_GRACE_S = 20.0
"""Time after the last instant in which a departure may still come before it counts as lost."""
_LINGER_S = 2.0
"""Time for which to look for duplicates after the last departure."""
_TICK_S = 0.05
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True)
class Options:
    """The user's choices.

    Attributes:
        day: YYYY-MM-DD.
        seconds: from the first instant of the day to the last.
        kill: whether a broker is killed in the middle.
        quiet: show no board.
    """

    day: str
    seconds: float
    kill: bool
    quiet: bool


@dataclass
class _Changes:
    """The mesh's answers to the moves and cancels."""

    moved: int = 0
    cancelled: int = 0
    too_late: int = 0


class FlightDay:
    """One run. Everything that it starts ends with `run`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._killed = ""

    def run(self) -> Report:
        """Run the day.

        Returns:
            The numbers, held against the data.

        Raises:
            DueqError: there is no such day, or the mesh could not be started.
        """
        options = self._options
        flights = flights_of(options.day)
        with ExitStack() as stack:
            folder = stack.enter_context(_temporary_folder())
            self._say(f"{len(flights)} flights on {options.day}; starting ZooKeeper and three brokers …")
            mesh = stack.enter_context(LocalMesh(folder / "mesh", gateway=installed()))
            address = f"{mesh.gateway.url}/topic?topic={TOPIC}" if mesh.gateway is not None else ""
            if address:
                self._say(f"watch the flights in a browser: {address}")
            self._say("starting Spark …")
            spark = stack.enter_context(_spark(folder))
            client = stack.enter_context(Client(mesh.endpoints))
            client.create_topic(TOPIC, partitions=_PARTITIONS, replicas=3)
            named = {flight.number: flight for flight in flights}
            board = stack.enter_context(Board(named, options.day, options.quiet, address))
            desks = [Desk(i + 1, TOPIC, mesh.endpoints, board.show) for i in range(_DESKS)]
            for desk in desks:
                stack.callback(desk.close)
            return self._fly(flights, mesh, spark, client, board, desks)

    def _fly(
        self,
        flights: list[Flight],
        mesh: LocalMesh,
        spark: SparkSession,
        client: Client,
        board: Board,
        desks: list[Desk],
    ) -> Report:
        start_ms = int((time.time() + self._rehearse(spark, flights, mesh, client)) * 1000)
        instant = compressed(flights, start_ms, self._options.seconds)
        truth = {f.number: None if f.cancelled else instant(f.left_at_ms) for f in flights}
        board.tell("Spark schedules every departure at its scheduled time")
        planned = self._schedule(
            TOPIC, spark, flights, {f.number: instant(f.scheduled_at_ms) for f in flights}, mesh
        )
        board.tell("delayed flights are moved, cancelled ones cancelled")
        changes = self._change(client, flights, truth, planned.ids)
        board.tell(f"{changes.moved} moved, {changes.cancelled} cancelled; boarding …")
        self._watch(mesh, client, board, truth, start_ms / 1000)
        for desk in desks:
            desk.close()
        return judge(
            self._options.day, truth, board.departures,
            scheduled=planned.messages, moved=changes.moved, cancelled=changes.cancelled,
            moved_expected=sum(f.delayed for f in flights), too_late=changes.too_late,
            killed=self._killed, spark_seconds=planned.seconds,
        )  # fmt: skip

    def _rehearse(self, spark: SparkSession, flights: list[Flight], mesh: LocalMesh, client: Client) -> float:
        """Schedule the day once as a rehearsal; return the seconds that the preparations may take."""
        self._say("rehearsing …")
        begun_s = time.monotonic()
        client.create_topic(_REHEARSAL, partitions=_PARTITIONS, replicas=3)
        tomorrow_ms = int((time.time() + 86_400) * 1000)
        self._schedule(_REHEARSAL, spark, flights, {f.number: tomorrow_ms for f in flights}, mesh)
        client.delete_topic(_REHEARSAL)
        return _LEAD_S + _LEAD_REHEARSALS * (time.monotonic() - begun_s)

    def _schedule(
        self, topic: str, spark: SparkSession, flights: list[Flight], dues: dict[int, int], mesh: LocalMesh
    ) -> ScheduleReport:
        from dueq.spark import schedule

        rows = [(flight.number, flight.name, dues[flight.number]) for flight in flights]
        frame = spark.createDataFrame(rows, "number bigint, name string, due bigint").repartition(2)
        return schedule(
            frame, topic=topic, due="due", payload=frame.number.cast("string"), key="name", ids=True,
            endpoints=mesh.endpoints,
        )  # fmt: skip

    def _change(
        self, client: Client, flights: list[Flight], truth: dict[int, int | None], ids: dict[str, str]
    ) -> _Changes:
        """Move and cancel, each in one call."""
        moving = [f for f in flights if f.delayed]
        leaving = [f for f in flights if f.cancelled]
        dues = [due for due in (truth[f.number] for f in moving) if due is not None]
        with client.producer(TOPIC) as producer:
            moves = producer.move_many([ids[f.name] for f in moving], dues)
            cancels = producer.cancel_many([ids[f.name] for f in leaving])
        moved, cancelled = moves.count(Outcome.DONE), cancels.count(Outcome.DONE)
        return _Changes(moved, cancelled, len(moves) + len(cancels) - moved - cancelled)

    def _watch(
        self, mesh: LocalMesh, client: Client, board: Board, truth: dict[int, int | None], start_s: float
    ) -> None:
        """Wait until all have departed, or the grace is over; kill a broker half-way."""
        wanted = sum(due is not None for due in truth.values())
        end_s = start_s + self._options.seconds
        kill_at_s = start_s + self._options.seconds / 2
        while board.count() < wanted and time.time() < end_s + _GRACE_S:
            if self._options.kill and not self._killed and time.time() >= kill_at_s:
                self._kill(mesh, client, board)
            time.sleep(_TICK_S)
        time.sleep(_LINGER_S)

    def _kill(self, mesh: LocalMesh, client: Client, board: Board) -> None:
        """Kill the broker that leads the most."""
        leaders = [partition.leader for partition in client.describe(TOPIC).placement]
        ids = [broker.broker_id for broker in mesh.brokers]
        victim = max(ids, key=leaders.count)
        mesh.kill(ids.index(victim))
        self._killed = victim
        board.tell(f"broker {victim}, leader of {leaders.count(victim)} partitions, was killed with SIGKILL")

    def _say(self, text: str) -> None:
        if not self._options.quiet:
            print(text, file=sys.stderr, flush=True)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dueq-day-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _spark(folder: Path) -> Iterator[SparkSession]:
    """A Spark of two threads that writes nowhere but into `folder`, warmed up."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    # Before its first line Spark knows no log level but that of a file.
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING, encoding="ascii")
    builder = (
        SparkSession.builder.master("local[2]").appName("dueq flight day")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={logging.as_uri()}")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
    )  # fmt: skip
    # In a thread: in the main one Spark would handle Ctrl-C itself, and a start that is cut short leaves Java running.
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(_started, builder)
        try:
            session = starting.result()
            session.range(2).mapInArrow(lambda batches: batches, "id bigint").collect()
            yield session
        finally:
            session = starting.result()
            session.sparkContext.setLogLevel("OFF")  # else it tells at length of each task that this ends
            session.stop()


def _started(builder: SparkSession.Builder) -> SparkSession:
    """Start Spark. Ctrl-C is for this process only: what is started here inherits that it is blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    session: SparkSession = builder.getOrCreate()
    return session
