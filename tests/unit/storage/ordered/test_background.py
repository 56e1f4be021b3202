"""LevelDB's work in the background does not get into the way of deliveries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from dueq.storage.ordered.space import Buffers

_OPEN_TWO = """
import json, os, sys, time
from contextlib import suppress
from pathlib import Path
from dueq.storage.ordered.leveldb import LevelDbEngine
for name in ("timeline", "payload"):
    engine = LevelDbEngine(Path(sys.argv[1]) / name, write_buffer_bytes=1 << 20)
    engine.write([(b"key", b"value")], sync=True)
own, patience = os.getpriority(os.PRIO_PROCESS, 0), time.monotonic() + 60
while True:
    found = []
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):
            found.append(os.getpriority(os.PRIO_PROCESS, int(thread)))
    # Who opened a database has ended, and may yet be seen for a moment.
    if sorted(found) == [own] * (len(found) - 1) + [max(own, 10)] or time.monotonic() > patience:
        break
print(json.dumps([own, sorted(found)]))
"""


def test_its_thread_has_a_lower_priority_and_no_other_has(tmp_path: Path) -> None:
    asked = subprocess.run(
        [sys.executable, "-c", _OPEN_TWO, str(tmp_path)], capture_output=True, check=True, timeout=300
    )
    own, others = json.loads(asked.stdout)
    assert own == os.getpriority(os.PRIO_PROCESS, 0)
    assert others == [own] * (len(others) - 1) + [max(own, 10)]


def test_brokers_do_not_fill_their_buffers_at_the_same_row(tmp_path: Path) -> None:
    most = Buffers.on(tmp_path)
    given = {most.of(f"broker-{number}") for number in range(1, 10)}
    assert len(given) == 9
    for buffers in given:
        assert most.timeline / 2 < buffers.timeline <= most.timeline
        assert most.payload / 2 < buffers.payload <= most.payload
