"""Moving and cancelling does not depend on the payload's size."""

from __future__ import annotations

from dueq.bench import bare
from dueq.bench.figures import Figure, Row, Target, median
from dueq.bench.stage import Stage
from dueq.bench.tasks import Alter

_LARGE_BYTES = 10 << 20
_SMALL_BYTES = 10
_MOVES = 20
_SAME = Target(at_most=1.25)
"""The ratio up to which two medians of this size count as equal."""


def measure(stage: Stage) -> list[Figure]:
    """Messages of 10 MiB against messages of 10 bytes."""
    bare_one = Row("altering/bare", "bare pipeline, one message: p50", "ms")
    rows = [
        bare_one,
        Row("altering/move-small", "move of a 10-byte message: median", "ms", None, bare_one.name),
        Row("altering/move-large", "move of a 10 MiB message: median", "ms"),
        Row("altering/move-ratio", "large / small", "", _SAME),
        Row("altering/cancel-small", "cancel of a 10-byte message: median", "ms", None, bare_one.name),
        Row("altering/cancel-large", "cancel of a 10 MiB message: median", "ms"),
        Row("altering/cancel-ratio", "large / small", "", _SAME),
    ]
    messages = stage.pick(20, 5)

    with stage.mesh() as (mesh, client, crew):
        topic = stage.topic(client, 3, replicas=3)

        def once() -> dict[str, float]:
            bare_ms = bare.one_ms(stage)
            workers = crew.start(
                *(
                    Alter(mesh.endpoints, topic, size, messages, _MOVES)
                    for size in (_SMALL_BYTES, _LARGE_BYTES)
                ),
                timeout_s=120.0,
            )
            medians_ms = []
            for worker in workers:
                worker.go()
                medians_ms.append([median(durations) for durations in worker.result(60.0)])
            (move_small, cancel_small), (move_large, cancel_large) = medians_ms
            values = (
                bare_ms, move_small, move_large, move_large / move_small,
                cancel_small, cancel_large, cancel_large / cancel_small,
            )  # fmt: skip
            return {row.name: value for row, value in zip(rows, values, strict=True)}

        return stage.repeat(rows, 3, once)
