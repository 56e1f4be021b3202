"""The broker process: everything put together, started, run, and taken down in order.

up     the folder's store, the sockets and the metrics port, the coordinator (which tells the others), the core
down   the loop, the coordinator (the others take over), the writes that are left, the store
"""

from __future__ import annotations

import os
import resource
import secrets
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import structlog

from dueq import limits
from dueq.broker.clocks import read_clocks
from dueq.broker.disk_watch import DiskWatch
from dueq.broker.inbox import Inbox
from dueq.broker.introductions import Identity
from dueq.broker.logs import configure, log_broken_threads
from dueq.broker.loop import Loop
from dueq.broker.metrics import MetricsPage
from dueq.broker.reader import Reader
from dueq.broker.sockets import Sockets
from dueq.broker.statistics import StatisticsFile
from dueq.broker.stopping import Stopping
from dueq.broker.waiting import Waiter
from dueq.broker.writer import Writer
from dueq.cluster.coordinator import Coordinator
from dueq.cluster.standalone import StandaloneCoordinator
from dueq.cluster.zookeeper import ZooKeeperCoordinator
from dueq.config import WILDCARDS, BrokerConfig
from dueq.core.broker import BrokerCore
from dueq.core.ports import events
from dueq.core.ports.effects import Persist
from dueq.core.ports.membership import CoordinatorOrder, Registration, UpdateTopic
from dueq.core.ports.persistence import StoreRead
from dueq.core.turn.settings import CoreSettings
from dueq.errors import DueqError, InvalidRequest
from dueq.instant import Now
from dueq.sealing import NO_KEY, Keys
from dueq.storage.kinds import Opening, is_durable, kind_of, open_store
from dueq.storage.port import Store, StoreFailed
from dueq_codecs.endpoint import all_sealed
from dueq_codecs.records import FEATURE_LEVEL

EXIT_OK = 0
EXIT_REFUSED = 1
EXIT_BUG = 70
EXIT_STORE_FAILED = 75
_STOP_S = 5.0
_SWITCH_S = 0.0002
_FILES = 65_536


class _Orders:
    """Hands slow work to the threads that do it."""

    def __init__(
        self,
        writer: Writer,
        reader: Reader,
        coordinator: Coordinator,
        keys: Keys | None,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._writer, self._reader, self._coordinator = writer, reader, coordinator
        self._keys, self._log = keys, log
        self._warned = False

    def persist(self, order: Persist) -> None:
        self._writer.order(order)

    def read(self, request: StoreRead) -> None:
        self._reader.order(request)

    def coordinate(self, order: CoordinatorOrder) -> None:
        if isinstance(order, UpdateTopic) and order.settings.endpoint is not None:
            order = self._sealed(order, order.settings.endpoint)
        self._coordinator.submit(order)

    def _sealed(self, order: UpdateTopic, endpoint: Mapping[str, Any]) -> UpdateTopic:
        """Seal the secrets of an endpoint; without a key they are stored as they are, and the log says so once."""
        if self._keys is not None:
            return replace(order, settings=replace(order.settings, endpoint=self._keys.sealed(endpoint)))
        if not self._warned and not all_sealed(endpoint):
            self._warned = True
            self._log.warning("endpoint.secrets_in_clear", endpoint=endpoint["name"], why=NO_KEY)
        return order


def run(config: BrokerConfig) -> int:
    """Run a broker until it is told to stop.

    SIGINT and SIGTERM tell it to, when this is the main thread. All that was acknowledged is in the store at any
    instant; stopping in order only makes the others take over sooner.

    Args:
        config: see BrokerConfig.

    Returns:
        The process's exit code: 0 after SIGINT or SIGTERM; 1 where it could not start; 70 after a bug; 75 after
        the store has failed or is full (start it again: it recovers).
    """
    log = configure(config.log_level, config.log_format, config.id)
    log_broken_threads(log)
    _prepare_process()
    with Stopping() as stopping:
        try:
            broker = _Broker(config, _opened(config, log), log)
            with broker.resources:
                broker.start()
                stopping.call(broker.loop.stop)
                return broker.drive()
        except StoreFailed as error:
            log.error("broker.not_started", reason=str(error), exit_code=EXIT_STORE_FAILED)
            return EXIT_STORE_FAILED
        except DueqError as error:
            log.error("broker.not_started", reason=str(error))
            return EXIT_REFUSED
        except OSError as error:
            log.error("broker.not_started", reason=_told(error))
            return EXIT_REFUSED


_LEVEL_VARIABLE = "DUEQ_TEST_FEATURE_LEVEL"
"""For tests of two builds in one mesh: the feature level that this process pretends to have."""


class _Broker:
    """The parts of one broker. `resources` closes what was opened, latest first."""

    def __init__(self, config: BrokerConfig, store: Store, log: structlog.stdlib.BoundLogger) -> None:
        self._config, self._store, self._log = config, store, log
        self.resources = ExitStack()
        self.resources.callback(self._close_store)
        self._hung = False
        if store.set_aside:
            log.error("store.set_aside", reason=store.set_aside, store=store.store_id)
        if store.upgraded:
            log.warning("store.upgraded", from_format=store.upgraded, store=store.store_id)

    def start(self) -> None:
        """Open ports, recover, join the mesh.

        Raises:
            OSError: a port is taken.
            DueqError: the store is another cluster's, or the coordinator cannot be reached or refuses.
        """
        config, store, close = self._config, self._store, self.resources.callback
        self._keys = Keys.load(config.secrets_key, config.secrets_key_file)
        self._inbox, self._waiter, self._page = Inbox(), Waiter(), MetricsPage()
        close(self._inbox.close)
        close(self._waiter.close)
        me = Identity(config.id, secrets.randbits(62) | 1)
        self._sockets = Sockets(config.listen, me, self._waiter)
        close(self._sockets.close)
        metrics = self._page.serve(config.metrics) if config.metrics else ""
        close(self._page.close)
        recovered = store.recover()
        endpoint = _advertised(config.advertise, self._sockets.endpoint)
        self._coordinator = _coordinator(config)
        close(self._coordinator.stop)
        level = int(os.environ.get(_LEVEL_VARIABLE, FEATURE_LEVEL))
        registration = Registration(me.broker_id, me.incarnation, store.store_id, endpoint, metrics, level)
        self._coordinator.start(registration, self._inbox.put)
        me.cluster_id = self._coordinator.cluster_id
        store.bind_cluster(me.cluster_id)
        settings = CoreSettings(
            me.broker_id, me.incarnation, store.store_id, me.cluster_id, endpoint, metrics,
            max_clock_offset_ms=config.max_clock_offset_ms, hot_rows_total=config.hot_rows_total,
            log_retain_bytes=_log_retain_bytes(config), feature_level=level,
        )  # fmt: skip
        self._core = BrokerCore(settings, recovered, read_clocks())
        self._statistics = StatisticsFile(_folder(config), self._core.metrics.statistics, self._log)
        close(self._statistics.close)
        self._assemble()
        self._log.info(
            "broker.started", endpoint=endpoint, listen=self._sockets.endpoint, metrics=metrics,
            store=store.store_id, incarnation=me.incarnation, cluster=me.cluster_id, partitions=len(recovered),
        )  # fmt: skip

    def _assemble(self) -> None:
        self._writer = Writer(self._store, self._inbox)
        others = bool(self._config.zookeeper)
        self._disk = DiskWatch(self._config.disk_timeout_ms * 1000 if others else 0, self._log)
        self._reader = Reader(self._store, self._inbox)
        orders = _Orders(self._writer, self._reader, self._coordinator, self._keys, self._log)
        self.loop = Loop(
            self._core, self._sockets, self._inbox, self._waiter, orders, self._log, self._each_second
        )
        self._page.core = self._core.metrics
        self._page.durations = {
            "loop_turn_seconds": self.loop.turns,
            "group_commit_seconds": self._writer.commits,
        }

    def drive(self) -> int:
        """Run the loop to its end, then stop in order; returns the exit code."""
        self._writer.start()
        self._reader.start()
        broken = False
        try:
            self.loop.run()
        except Exception:
            # The one place that catches everything: say it with all there is, and let a supervisor start anew.
            self._log.critical("broker.broken", exc_info=True, **self.loop.story())
            broken = True
        self._coordinator.stop()
        ended = [self._writer.stop(_STOP_S), self._reader.stop(_STOP_S)]
        self._hung = not all(ended)
        if self.loop.exit_reason:
            if not self._hung:
                self._store.release_reserve()
            self._log.error("broker.stopped", reason=self.loop.exit_reason, exit_code=EXIT_STORE_FAILED)
        if broken:
            return EXIT_BUG
        if self.loop.exit_reason:
            return EXIT_STORE_FAILED
        self._log.info("broker.stopped", reason="told to", exit_code=EXIT_OK)
        return EXIT_OK

    def _close_store(self) -> None:
        if self._hung:
            # Closing a database under a thread that hangs in the disk would be worse than leaving it to recovery.
            self._log.error("store.not_closed", reason="a thread still waits for the disk")
        else:
            self._store.close()

    def _each_second(self, now: Now) -> None:
        """Look at the disk, and publish what the metrics page and the statistics' file show."""
        hangs = self._disk.look(self._writer.under_way, now.mono_us)
        if hangs:
            self._inbox.put(events.StoreFailed(hangs))
        self._publish(now)

    def _publish(self, now: Now) -> None:
        """What the metrics page shows besides the counters, and what the statistics' file keeps."""
        self._statistics.each_second(now.mono_us)
        if not self._config.metrics:
            return
        counts = self._sockets.counts
        self._page.gauges = self._core.gauges(now)
        self._page.refused = dict(counts.refused)
        self._page.process = {
            "frames_received": counts.frames_in,
            "frames_sent": counts.frames_out,
            "frames_dropped": counts.dropped,
            "inserts_held_up": self.loop.inserts.held_up,
        }


def _coordinator(config: BrokerConfig) -> Coordinator:
    if config.zookeeper:
        try:
            return ZooKeeperCoordinator(config.zookeeper)
        except ValueError as error:
            raise InvalidRequest(f"zookeeper: {error}") from error
    folder = _folder(config)
    return StandaloneCoordinator(folder / "coordinator.json" if folder is not None else None)


def _opened(config: BrokerConfig, log: structlog.stdlib.BoundLogger) -> Store:
    kind = kind_of(config.store)
    if not kind.durable:
        log.warning("store.not_durable", store=kind.name, bytes_max=config.store_memory_bytes)
    return open_store(kind, Opening(config.id, config.data, config.store_memory_bytes))


def _log_retain_bytes(config: BrokerConfig) -> int:
    """Size of each log that is kept for brokers that were away.

    A store in memory keeps none: a broker that was away and has lost everything needs a snapshot. Kept records would
    hold payloads that nobody needs, until they fill the memory.
    """
    return limits.LOG_RETAIN_BYTES if is_durable(config.store) else 0


def _folder(config: BrokerConfig) -> Path | None:
    """The folder of the broker's own files; none if their subject ends with the process."""
    return config.data if is_durable(config.store) else None


def _told(error: OSError) -> str:
    """What went wrong, without the number that Python writes before it."""
    named = f"{error.filename}: " if error.filename else ""
    return f"{named}{error.strerror or error}"


def _advertised(advertise: str, bound: str) -> str:
    """The address by which others reach this broker: as configured, else as bound (host name for a wildcard)."""
    if advertise:
        return advertise
    host, _, port = bound.removeprefix("tcp://").rpartition(":")
    return f"tcp://{socket.getfqdn() if host in WILDCARDS else host}:{port}"


def _prepare_process() -> None:
    """A thread that waits for the GIL must get it well within a millisecond; a thousand clients need files."""
    sys.setswitchinterval(_SWITCH_S)
    # numpy loads it at the first `unique`: in the middle of a turn or a commit, and not at all if no file is left then.
    import_module("numpy.ma")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
