"""The process of one role of the traffic: orders come by standard input, counters go to standard output."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dueq.lifeline import die_with_parent
from dueq_chaos.history.recorder import Recorder
from dueq_chaos.nemesis.traffic.consuming import Consuming
from dueq_chaos.nemesis.traffic.keying import Keying
from dueq_chaos.nemesis.traffic.producing import Producing
from dueq_chaos.nemesis.traffic.role import Role
from dueq_chaos.nemesis.traffic.specification import (
    CALM,
    EVERY_S,
    KEYING,
    PRODUCER,
    STOP,
    TICKING,
    Specification,
)
from dueq_chaos.nemesis.traffic.ticking import Ticking


def main() -> None:
    """Run the process; its one argument is a specification."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    specification = Specification.from_text(sys.argv[1])
    with _role(specification) as role:
        threading.Thread(target=_obey, args=(role,), daemon=True).start()
        ended = threading.Event()
        teller = threading.Thread(target=_tell, args=(role, ended))
        teller.start()
        try:
            role.run()
        finally:
            ended.set()
            teller.join()


@contextmanager
def _role(specification: Specification) -> Iterator[Role]:
    """Make the role; one that records has its recorder open."""
    if specification.role == TICKING:
        yield Ticking(specification)
    elif specification.role == KEYING:
        yield Keying(specification)
    else:
        with Recorder(specification.history, client=specification.name, seed=specification.seed) as recorder:
            yield (Producing if specification.role == PRODUCER else Consuming)(specification, recorder)


def _obey(role: Role) -> None:
    for line in sys.stdin:
        if line.strip() == STOP:
            break
        if line.strip() == CALM:
            role.calm()
    role.stop()


def _tell(role: Role, ended: threading.Event) -> None:
    while True:
        last = ended.wait(EVERY_S)
        print(json.dumps(role.counters()), flush=True)
        if last:
            return


if __name__ == "__main__":
    main()
