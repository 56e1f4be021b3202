"""The coordinator that is ZooKeeper, through kazoo.

Everything runs on one thread of our own. kazoo's threads (connection, completions, watches) only put calls into its
inbox. Our thread never waits for ZooKeeper: it makes asynchronous requests, and goes on when the answers are in the
inbox.

    kazoo's threads ──► inbox ──► worker: state ──► deliver(event)
    submit(order)   ──►   │         │
                          │         ├─ Requests   what is under way; ends when the connection does
                          │         ├─ register   the ephemeral node, again in every new session
                          │         ├─ Mirror     watches, reads
                          │         └─ TopicOrder creating, deleting; begun again after a reconnect
    timers          ──►   ┘

A compare-and-set is sent once. kazoo's own retry is never used (protocol case B6, pitfall R8): it would repeat a set
whose answer was lost, and report our own success as a bad version.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NoNodeError, WriterNotClosedException
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from dueq.cluster.burying import Burying
from dueq.cluster.coordinator import BrokerIdTaken, CoordinatorUnavailable, CoordinatorUnreadable, Deliver
from dueq.cluster.layout import DEFAULT_ROOT, Layout, split_address
from dueq.cluster.mirror import Mirror
from dueq.cluster.registering import check_cluster, prepare, register
from dueq.cluster.requests import CONNECTION_ERRORS, NotSent, Procedure, Requests
from dueq.cluster.topic_orders import TopicOrder
from dueq.cluster.znodes import encode_node
from dueq.core.ports.membership import (
    CompareAndSet,
    CompareAndSetDone,
    ConfirmDeleted,
    CoordinatorChanged,
    CoordinatorEvent,
    CoordinatorOrder,
    CoordinatorState,
    ReadNode,
    Registration,
    SetOutcome,
    TopicOrderDone,
)
from dueq.core.ports.membership import TopicOrder as Order
from dueq.errors import DueqError
from dueq.limits import ZOOKEEPER_SESSION_MS

_log = structlog.get_logger("dueq.cluster")

_REGISTER_AGAIN_S: Final = 1.0
_TOPIC_ORDER_S: Final = 10.0
_TOPIC_ORDER_AGAIN_S: Final = 0.2
_STOP_S: Final = 3.0
_AWAY_S: Final = 30.0
_RECONNECT: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5}
"""Within a session's time there have to be several attempts; kazoo's own pause grows to a minute."""
_ATTEMPTS_PER_SESSION: Final = 3
"""A server that takes a connection and says nothing is left after such a part of the session."""


class _ImpatientHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with a bound on how long one silent server holds them.

    kazoo waits a whole session for a connection, and another one for the answer to the first request on it (divided
    by the number of servers). So one server that hangs would cost the session, although others could keep it.
    """

    def __init__(self, patience_s: float) -> None:
        super().__init__()
        self._patience_s = patience_s

    def create_connection(self, *args: Any, timeout: float, **options: Any) -> Any:
        return super().create_connection(*args, timeout=min(timeout, self._patience_s), **options)

    def select(self, reads: Any, writes: Any, errors: Any, timeout: float | None = None) -> Any:
        if len(reads) + len(writes) == 1:  # one answer, or room for one request; two where it waits for work
            timeout = self._patience_s if timeout is None else min(timeout, self._patience_s)
        return super().select(reads, writes, errors, timeout)


class _LastWarning(logging.Filter):
    """Lets only errors of kazoo into the log, and keeps what it has warned of last: why there is no connection.

    Attributes:
        text: that; "" while there is a connection.
    """

    text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno == logging.WARNING and not record.getMessage().startswith("Transition"):
            self.text = record.getMessage()
        return record.levelno >= logging.ERROR

    def logger(self) -> logging.Logger:
        """Return a logger for one client that this filters."""
        found = logging.Logger("dueq.cluster.kazoo", logging.WARNING)
        found.parent = logging.getLogger(found.name)
        found.addFilter(self)
        return found


def _reconnecting() -> KazooRetry:
    """Return what has kazoo connect again, whatever has gone wrong.

    kazoo expects few errors: its thread ends at another one, such as that of a name which cannot be looked up for want
    of a descriptor. Nothing would connect again then.
    """
    found = KazooRetry(**_RECONNECT)
    found.retry_exceptions = (Exception,)
    return found


class ZooKeeperCoordinator:
    """Registration, topics and partitions' nodes in a ZooKeeper ensemble; see `Coordinator`.

    Attributes:
        address: `HOST:PORT,HOST:PORT`, as given, without the root.
    """

    def __init__(
        self,
        address: str,
        *,
        session_ms: int = ZOOKEEPER_SESSION_MS,
        start_timeout_s: float = 30.0,
        root: str | None = None,
    ) -> None:
        """Take the ensemble's address; nothing is connected yet.

        Args:
            address: `HOST:PORT[,HOST:PORT…][/ROOT]`; without a root the cluster lies below `/dueq`.
            session_ms: how long a broker may be silent before ZooKeeper removes its registration.
            start_timeout_s: within which `start` must have registered.
            root: overrides the address's.

        Raises:
            ValueError: the address is none, or the root is not an absolute path.
        """
        self.address, address_root = split_address(address)
        self._layout = Layout(root or address_root or DEFAULT_ROOT)
        self._session_ms = session_ms
        self._start_timeout_s = start_timeout_s
        self._cluster_id = ""
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._ending = self._stopped = False
        self._state = CoordinatorState.LOST
        """As delivered; CONNECTED means also that the registration is in place."""
        self._connections = 0
        """Grows with every connection gained or lost; a timer of an older one does nothing."""
        self._trying = False
        """A registration is under way, or will be tried again in a moment."""
        self._replaced = False
        """Another life of this broker has taken our registration away: we are the past."""
        self._topic_orders: dict[int, TopicOrder] = {}
        self._last_warning = _LastWarning()
        self._started = threading.Event()
        self._start_error: DueqError | None = None

    @property
    def cluster_id(self) -> str:
        """The cluster's random id; known once `start` has returned."""
        return self._cluster_id

    # ------------------------------------------------------------ any thread

    def start(self, registration: Registration, deliver: Deliver) -> None:
        """Connect, register, deliver CONNECTED; see `Coordinator.start`."""
        assert self._thread is None, "a coordinator is started once"
        self._registration = registration
        self._deliver = deliver
        self._client = KazooClient(
            hosts=self.address,
            timeout=self._session_ms / 1000,
            handler=_ImpatientHandler(self._session_ms / 1000 / _ATTEMPTS_PER_SESSION),
            connection_retry=_reconnecting(),
            logger=self._last_warning.logger(),
        )
        self._requests = Requests(self._inbox.put)
        self._mirror = Mirror(
            self._client, self._layout, self._requests, self._emit, self._inbox.put, self._later,
            self._registrations_read,
        )  # fmt: skip
        self._burying = Burying(
            self._client,
            self._layout,
            self._requests,
            registration.broker_id,
            lambda: self._mirror.tombstones,
        )
        self._client.add_listener(lambda state: self._inbox.put(partial(self._on_state, state)))
        self._thread = threading.Thread(target=self._run, name="dueq-coordinator", daemon=True)
        self._thread.start()
        self._client.start_async()
        in_time = self._started.wait(self._start_timeout_s)
        error = self._start_error
        if in_time and error is None:
            return
        why = f": {self._last_warning.text}" if self._last_warning.text else ""
        self.stop()
        raise error or CoordinatorUnavailable(
            f"ZooKeeper at {self.address} did not answer within {self._start_timeout_s:g} s{why}"
        )

    def submit(self, order: CoordinatorOrder) -> None:
        """Take an order; see `Coordinator.submit`."""
        self._inbox.put(partial(self._on_order, order))

    def stop(self) -> None:
        """Close the session, which removes the registration; see `Coordinator.stop`."""
        if self._thread is None or self._stopped:
            return
        self._stopped = True
        self._inbox.put(self._end)
        if self._thread.is_alive():  # not so if a signal has ended `start` before it was
            self._thread.join(_STOP_S)
        # kazoo would wait too long for a server that hangs.
        closer = threading.Thread(target=self._close_client, name="dueq-coordinator-close", daemon=True)
        try:
            closer.start()
        except RuntimeError:  # the machine has no thread left for this process
            self._close_client()
        else:
            closer.join(_STOP_S)

    def _close_client(self) -> None:
        try:
            # If a signal has ended kazoo's start, it has no socket yet by which it could wake its thread.
            with suppress(AttributeError):
                self._client.stop()
            self._client.close()
        except WriterNotClosedException as error:
            _log.warning("zookeeper.close_failed", error=str(error))

    # ------------------------------------------------------------ the worker

    def _run(self) -> None:
        while not self._ending:
            wait_s = self._until_next_timer_s()
            try:
                # What is due goes first: with always something in the inbox it would wait for ever.
                call = self._run_timers if wait_s == 0 else self._inbox.get(timeout=wait_s)
            except queue.Empty:
                continue
            try:
                call()
            except Exception:
                # After a bug here the broker must not go on with a connection that no thread serves: begin anew.
                _log.exception("coordinator.failed", broker=self._registration.broker_id)
                self._lose(CoordinatorState.LOST)
                self._later(_REGISTER_AGAIN_S, self._register)

    def _end(self) -> None:
        self._ending = True

    def _emit(self, event: CoordinatorEvent) -> None:
        if not self._ending:
            self._deliver(event)

    def _until_next_timer_s(self) -> float | None:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def _at(self, deadline: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (deadline, next(self._timer_numbers), call))

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call on this connection after this many seconds."""
        connection = self._connections

        def unless_lost() -> None:
            if connection == self._connections:
                call()

        self._at(time.monotonic() + seconds, unless_lost)

    # ------------------------------------------------------------ the connection

    def _on_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._last_warning.text = ""
            self._connections += 1
            self._register()
        else:
            self._lose(CoordinatorState.SUSPENDED if state == KazooState.SUSPENDED else CoordinatorState.LOST)

    def _lose(self, state: CoordinatorState) -> None:
        """End the requests under way; the outcome of compare-and-sets that were sent is unknown from now on."""
        self._connections += 1
        was, self._state = self._state, state
        self._requests.connection_lost()
        self._mirror.connection_lost()
        self._trying = False
        self._later(_AWAY_S, self._still_away)
        if was is not state:
            self._emit(CoordinatorChanged(state))

    def _still_away(self) -> None:
        if not self._client.connected:
            _log.error(
                "zookeeper.away",
                seconds=_AWAY_S,
                address=self.address,
                reason=self._last_warning.text,
                hint="a server that was restored from an older backup takes no broker that has seen newer states: "
                "restart the brokers then",
            )

    def _register(self) -> None:
        if self._replaced or self._trying:
            return
        self._trying = True
        self._requests.run(self._registering(), self._registered)

    def _register_again(self) -> None:
        self._trying = False
        self._register()

    def _registering(self) -> Procedure:
        client, layout, registration = self._client, self._layout, self._registration
        if not self._cluster_id:
            self._cluster_id = yield from prepare(client, layout, registration)
        else:
            yield from check_cluster(client, layout, registration, self._cluster_id)
        yield from register(client, layout, registration)

    def _registered(self, _: Any, error: Exception | None) -> None:
        self._trying = False
        if error is None:
            self._start_error = None
            if self._state is not CoordinatorState.CONNECTED:
                self._state = CoordinatorState.CONNECTED
                self._emit(CoordinatorChanged(self._state))
                self._mirror.refresh()
                for pending in list(self._topic_orders.values()):
                    self._attempt(pending)
            self._started.set()
        elif not isinstance(error, CONNECTION_ERRORS):
            self._registration_failed(error)

    def _registration_failed(self, error: Exception) -> None:
        """Try again each second: the broker that holds our id may be dead, or be stopped by hand."""
        reason = str(error) or repr(error)
        _log.error("broker.registration_failed", broker=self._registration.broker_id, reason=reason)
        if isinstance(error, (BrokerIdTaken, CoordinatorUnreadable)):
            self._start_error = error
        else:
            self._start_error = CoordinatorUnavailable(f"ZooKeeper at {self.address} refuses: {error!r}")
        if isinstance(error, CoordinatorUnreadable):
            self._started.set()
        self._trying = True
        self._later(_REGISTER_AGAIN_S, self._register_again)

    def _registrations_read(self, registrations: dict[str, Registration]) -> None:
        own = registrations.get(self._registration.broker_id)
        if own is None:
            _log.warning("broker.registration_vanished", broker=self._registration.broker_id)
            self._register()
        elif own != self._registration and not self._replaced:
            _log.error(
                "broker.registration_replaced",
                broker=own.broker_id,
                incarnation=own.incarnation,
                store=own.store_id,
            )
            # A later life of this broker has begun: to fight for the node would be to fight with ourselves. Another
            # broker that has this one's id by mistake is waited for instead.
            self._replaced = own.store_id == self._registration.store_id
            self._lose(CoordinatorState.LOST)
            self._later(_REGISTER_AGAIN_S, self._register)

    # ------------------------------------------------------------ orders

    def _on_order(self, order: CoordinatorOrder) -> None:
        if isinstance(order, CompareAndSet):
            self._compare_and_set(order)
        elif isinstance(order, ConfirmDeleted):
            if self._state is CoordinatorState.CONNECTED:
                self._burying.confirmed(order.uids)
        elif isinstance(order, ReadNode):
            if self._state is CoordinatorState.CONNECTED:
                self._mirror.read_node(order.uid)
        else:
            self._take_topic_order(order)

    def _compare_and_set(self, order: CompareAndSet) -> None:
        if self._state is not CoordinatorState.CONNECTED:
            self._emit(CompareAndSetDone(order.token, order.uid, SetOutcome.REFUSED, order.version))
        elif order.version < 0:
            # To ZooKeeper a negative version means any.
            self._emit(CompareAndSetDone(order.token, order.uid, SetOutcome.BAD_VERSION, order.version))
        else:
            path, value = self._layout.partition(order.uid), encode_node(order.node)
            send = partial(self._client.set_async, path, value, order.version)
            self._requests.submit(send, partial(self._set_ended, order), urgent=True)

    def _set_ended(self, order: CompareAndSet, stat: Any, error: Exception | None) -> None:
        version = order.version
        if error is None:
            outcome, version = SetOutcome.DONE, stat.version
        elif isinstance(error, (BadVersionError, NoNodeError)):
            outcome = SetOutcome.BAD_VERSION
        elif isinstance(error, NotSent):
            outcome = SetOutcome.REFUSED
        else:
            outcome = SetOutcome.UNKNOWN
        self._emit(CompareAndSetDone(order.token, order.uid, outcome, version))

    def _take_topic_order(self, order: Order) -> None:
        pending = TopicOrder(order, time.monotonic() + _TOPIC_ORDER_S)
        self._topic_orders[order.token] = pending
        self._at(pending.deadline, partial(self._topic_order_late, order))
        if self._state is CoordinatorState.CONNECTED:
            self._attempt(pending)

    def _attempt(self, pending: TopicOrder) -> None:
        if pending.order.token in self._topic_orders and not pending.running:
            pending.running = True
            go_on = pending.partitions.clear if pending.withdrawn else pending.attempt
            self._requests.run(go_on(self._client, self._layout), partial(self._topic_order_ended, pending))

    def _topic_order_ended(
        self, pending: TopicOrder, done: TopicOrderDone | None, error: Exception | None
    ) -> None:
        pending.running = False
        token = pending.order.token
        if isinstance(error, KazooException | NotSent) and (
            pending.partitions.unnamed or not pending.withdrawn
        ):
            # Perhaps it happened. The next attempt finds out: after the reconnect, or in a moment.
            pending.trouble = ""
            if not isinstance(error, CONNECTION_ERRORS):
                pending.trouble = f"; it says {error!r}"
                self._later(_TOPIC_ORDER_AGAIN_S, partial(self._attempt, pending))
            return
        self._topic_orders.pop(token)
        if not pending.withdrawn:
            self._emit(done or TopicOrderDone(token, "unavailable", str(error)))

    def _topic_order_late(self, order: Order) -> None:
        pending = self._topic_orders.get(order.token)
        if pending is not None:
            pending.withdrawn = True
            if not pending.running and not pending.partitions.unnamed:
                del self._topic_orders[order.token]
            text = (
                f"ZooKeeper did not confirm topic {order.name!r} within {_TOPIC_ORDER_S:g} s{pending.trouble}"
            )
            self._emit(TopicOrderDone(order.token, "unknown", f"{text}; it may still happen"))
