"""The process of one producer or consumer: orders come by standard input, counters go to standard output."""

from __future__ import annotations

import json
import signal
import sys
import threading

from dueq.lifeline import die_with_parent
from dueq_chaos.history.recorder import Recorder
from dueq_chaos.nemesis.traffic.consuming import Consuming
from dueq_chaos.nemesis.traffic.producing import Producing
from dueq_chaos.nemesis.traffic.specification import CALM, EVERY_S, STOP, Specification


def main() -> None:
    """Run the process; its one argument is a specification."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    specification = Specification.from_text(sys.argv[1])
    with Recorder(specification.history, client=specification.name, seed=specification.seed) as recorder:
        role = (Producing if specification.role == "producer" else Consuming)(specification, recorder)
        threading.Thread(target=_obey, args=(role,), daemon=True).start()
        ended = threading.Event()
        teller = threading.Thread(target=_tell, args=(role, ended))
        teller.start()
        try:
            role.run()
        finally:
            ended.set()
            teller.join()


def _obey(role: Producing | Consuming) -> None:
    for line in sys.stdin:
        if line.strip() == STOP:
            break
        if line.strip() == CALM and isinstance(role, Consuming):
            role.calm()
    role.stop()


def _tell(role: Producing | Consuming, ended: threading.Event) -> None:
    while True:
        last = ended.wait(EVERY_S)
        if isinstance(role, Producing):
            counters: dict[str, object] = {"scheduled": role.scheduled}
        else:
            late = role.take_lateness()
            counters = {"delivered": role.delivered, "late_ms": [round(ms, 1) for ms in late]}
        print(json.dumps(counters), flush=True)
        if last:
            return


if __name__ == "__main__":
    main()
