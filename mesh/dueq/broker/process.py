"""The broker process: everything put together, started, run, and taken down in order."""

from __future__ import annotations

import gc
import resource
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable

import structlog

from dueq.broker.inbox import Inbox
from dueq.broker.logs import configure
from dueq.broker.loop import Loop, read_clocks
from dueq.broker.metrics import MetricsPage
from dueq.broker.reader import Reader
from dueq.broker.sockets import Identity, Sockets
from dueq.broker.writer import Writer
from dueq.cluster.coordinator import Coordinator
from dueq.cluster.standalone import StandaloneCoordinator
from dueq.cluster.zookeeper import ZooKeeperCoordinator
from dueq.config import BrokerConfig
from dueq.core.broker import BrokerCore
from dueq.core.effects import Persist
from dueq.core.instant import Now
from dueq.core.membership import CoordinatorOrder, Registration
from dueq.core.persistence import StoreRead
from dueq.core.settings import CoreSettings
from dueq.errors import DueqError
from dueq.storage.store import Store

EXIT_OK = 0
EXIT_REFUSED = 1
EXIT_BUG = 70
EXIT_STORE_FAILED = 75
_STOP_S = 5.0
_SWITCH_S = 0.0002
_FILES = 65_536


class _Orders:
    """Hands what takes time to who does it."""

    def __init__(self, writer: Writer, reader: Reader, coordinator: Coordinator) -> None:
        self._writer, self._reader, self._coordinator = writer, reader, coordinator

    def persist(self, order: Persist) -> None:
        self._writer.order(order)

    def read(self, request: StoreRead) -> None:
        self._reader.order(request)

    def coordinate(self, order: CoordinatorOrder) -> None:
        self._coordinator.submit(order)


def run(config: BrokerConfig) -> int:
    """Run a broker until it is told to stop.

    Args:
        config: see BrokerConfig.

    Returns:
        The process's exit code: 0 after SIGINT or SIGTERM; 1 where it could not start; 70 after a bug; 75 after
        the store has failed (start it again: it recovers).
    """
    log = configure(config.log_level, config.log_format, config.id)
    try:
        store = Store.open(config.data, config.id)
    except DueqError as error:
        log.error("broker.not_started", reason=str(error))
        return EXIT_REFUSED
    try:
        return _run(config, store, log)
    except (DueqError, OSError) as error:
        log.error("broker.not_started", reason=str(error))
        return EXIT_REFUSED
    finally:
        store.close()


def _run(config: BrokerConfig, store: Store, log: structlog.stdlib.BoundLogger) -> int:
    _prepare_process()
    if store.set_aside:
        log.error("store.set_aside", reason=store.set_aside, store=store.store_id)
    inbox = Inbox()
    coordinator = _coordinator(config)
    incarnation = secrets.randbits(62) | 1
    recovered = store.recover()
    registration = Registration(config.id, incarnation, store.store_id, _advertised(config), config.metrics)
    coordinator.start(registration, inbox.put)
    try:
        store.bind_cluster(coordinator.cluster_id)
        sockets = Sockets(config.listen, Identity(config.id, incarnation, coordinator.cluster_id))
        try:
            settings = CoreSettings(
                config.id, incarnation, store.store_id, coordinator.cluster_id, registration.endpoint,
                config.metrics, config.max_clock_offset_ms, config.hot_rows_total,
            )  # fmt: skip
            core = BrokerCore(settings, recovered, read_clocks())
            log.info(
                "broker.started", endpoint=sockets.endpoint, store=store.store_id, incarnation=incarnation,
                cluster=coordinator.cluster_id, partitions=len(recovered),
            )  # fmt: skip
            return _drive(config, core, sockets, store, coordinator, inbox, log)
        finally:
            sockets.close()
    finally:
        coordinator.stop()


def _drive(
    config: BrokerConfig,
    core: BrokerCore,
    sockets: Sockets,
    store: Store,
    coordinator: Coordinator,
    inbox: Inbox,
    log: structlog.stdlib.BoundLogger,
) -> int:
    writer, reader = Writer(store, inbox), Reader(store, inbox)
    page = MetricsPage(core.metrics)

    def publish(now: Now) -> None:
        page.gauges = core.gauges(now)
        page.process = {
            "loop_turns": loop.turns,
            "loop_busy_seconds": loop.busy_us / 1e6,
            "group_commits": writer.commits,
            "group_commit_seconds": writer.seconds,
            "frames_received": sockets.counts.frames_in,
            "frames_sent": sockets.counts.frames_out,
            "frames_dropped": sockets.counts.dropped,
        }
        for code, count in sockets.counts.bad.items():
            core.metrics.errors[code] = max(core.metrics.errors[code], count)

    loop = Loop(core, sockets, inbox, _Orders(writer, reader, coordinator), log, publish)
    if config.metrics:
        page.serve(config.metrics)
    writer.start()
    reader.start()
    restore = _stop_on_signals(loop)
    gc.freeze()
    gc.disable()
    try:
        loop.run()
    except Exception:
        # The one place that catches everything: say it with all there is, and let a supervisor start anew.
        log.exception("broker.broken")
        return EXIT_BUG
    finally:
        restore()
        gc.enable()
        coordinator.stop()
        writer.stop(_STOP_S)
        reader.stop(_STOP_S)
        page.close()
    if loop.exit_reason:
        store.release_ballast()
        log.error("broker.stopped", reason=loop.exit_reason)
        return EXIT_STORE_FAILED
    log.info("broker.stopped", reason="told to")
    return EXIT_OK


def _coordinator(config: BrokerConfig) -> Coordinator:
    if config.zookeeper:
        return ZooKeeperCoordinator(config.zookeeper)
    return StandaloneCoordinator(config.data / "coordinator.json")


def _advertised(config: BrokerConfig) -> str:
    if config.advertise:
        return config.advertise
    host, _, port = config.listen.removeprefix("tcp://").rpartition(":")
    if host in ("*", "0.0.0.0", "[::]"):
        host = socket.getfqdn()
    return f"tcp://{host}:{port}"


def _prepare_process() -> None:
    """A thread that waits for the GIL must get it well within a millisecond; a thousand clients need files."""
    sys.setswitchinterval(_SWITCH_S)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _stop_on_signals(loop: Loop) -> Callable[[], None]:
    """Have SIGINT and SIGTERM end the loop; returns what puts the old handlers back."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    old = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: object) -> None:
        loop.stop()

    for number in old:
        signal.signal(number, stop)

    def restore() -> None:
        for number, handler in old.items():
            signal.signal(number, handler)

    return restore
