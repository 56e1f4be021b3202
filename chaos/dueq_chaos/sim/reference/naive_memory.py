"""A partition's memory of past requests, once more: a plain list of answers, the oldest first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from dueq.core.state.dedup import ANSWER_BYTES, CLIENT_BYTES, DedupLimits
from dueq_codecs.messages import Code
from dueq_codecs.records import Record, RecordKind, RequestRef

Met = tuple[int, int, int, int]
"""A message that a row met: first, sequence, row, due; all 0: nobody is told."""


@dataclass(eq=False, slots=True)
class Answer:
    """The answer to a request that took effect.

    Attributes:
        client, number, digest: the request.
        age: of the partition, when it took effect.
        sequence, row, stamp: of its record; the request's first row there.
        rows: how many outcomes are remembered.
        outcomes: one per row; none for an INSERT of which all rows took effect.
        window: of an INSERT with windows, the choice for each row.
        met: of an INSERT, the messages that rows met which did not take effect.
    """

    client: bytes
    number: int
    digest: int
    age: int
    sequence: int
    row: int
    stamp: int
    rows: int
    outcomes: list[int] = field(default_factory=list)
    window: list[int] = field(default_factory=list)
    met: list[Met] = field(default_factory=list)

    @property
    def extra(self) -> int:
        """Its weight beside its head, bytes."""
        met = len(self.outcomes) + 26 * len(self.met) if self.met else 0
        return self.rows + 4 * len(self.window) + met


Verdict = tuple[Code, Answer | None, bool]
"""The code; what is answered; whether it takes effect now."""


class NaiveMemory:
    """The answers to past requests."""

    def __init__(self, limits: DedupLimits) -> None:
        self.limits = limits
        self.answers: list[Answer] = []
        self.by_name: dict[tuple[bytes, int], Answer] = {}
        self.floors: dict[bytes, tuple[int, int]] = {}
        self._answers_of: Counter[bytes] = Counter()
        self._rows = 0

    def _weight(self) -> int:
        clients = len(self._answers_of) + sum(client not in self._answers_of for client in self.floors)
        return CLIENT_BYTES * clients + ANSWER_BYTES * len(self.answers) + self._rows

    def _drop(self, answer: Answer) -> None:
        self.answers.remove(answer)
        del self.by_name[answer.client, answer.number]
        self._rows -= answer.extra
        self._answers_of[answer.client] -= 1
        if not self._answers_of[answer.client]:
            del self._answers_of[answer.client]
        floor, age = self.floors.get(answer.client, (-1, 0))
        self.floors[answer.client] = max(floor, answer.number), max(age, answer.age)

    def _idle(self) -> list[tuple[int, bytes]]:
        """Clients of which only the floor is left: (its age, client), the oldest first."""
        return sorted(
            (age, client) for client, (_, age) in self.floors.items() if client not in self._answers_of
        )

    def expire(self, age: int) -> None:
        """Forget what is too old at this age of the partition."""
        while self.answers and self.answers[0].age < age - self.limits.age_ms:
            self._drop(self.answers[0])
        for floor_age, client in self._idle() if self.floors else ():
            if floor_age < age - self.limits.age_ms:
                del self.floors[client]

    def recall(self, request: RequestRef) -> Verdict | None:
        """Return what is known of a request; None: nothing."""
        answer = self.by_name.get((request.client_id, request.sequence))
        if answer is not None:
            same = answer.digest == request.digest
            return (Code.OK, answer, False) if same else (Code.SEQUENCE_REUSED, None, False)
        if request.sequence <= self.floors.get(request.client_id, (-1, 0))[0]:
            return Code.OUTCOME_UNKNOWN, None, False
        return None

    def judge(self, request: RequestRef, record: Record, row: int, age: int) -> Verdict:
        """Decide whether a request takes effect, and remember it if it does."""
        verdict = self.recall(request)
        if verdict is not None:
            return verdict
        answer = Answer(
            request.client_id, request.sequence, request.digest, age, record.sequence, row, record.stamp,
            0 if record.kind == RecordKind.INSERT else request.rows,
            window=record.window[row : row + request.rows].tolist(),
        )  # fmt: skip
        self.answers.append(answer)
        self.by_name[answer.client, answer.number] = answer
        self._rows += answer.extra
        self._answers_of[answer.client] += 1
        if self._answers_of[answer.client] > self.limits.window:
            mine = (other for other in self.answers if other.client == answer.client)
            self._drop(min(mine, key=lambda other: other.number))
        self._make_room()
        return Code.OK, answer, True

    def _make_room(self) -> None:
        while self._weight() > self.limits.bytes_max:
            if self.answers:
                self._drop(self.answers[0])
            else:
                del self.floors[self._idle()[0][1]]

    def note(self, answer: Answer, met: list[Met]) -> None:
        """Note what the rows of an INSERT met, or that all took effect."""
        if not met:
            answer.outcomes = []
            return
        self._rows -= answer.extra if answer in self.answers else 0
        answer.met = met
        self._rows += answer.extra if answer in self.answers else 0
        self._make_room()

    def names(self) -> set[tuple[str, int]]:
        """Return (client in hex, number) of everything remembered, floors too."""
        mine = {(client.hex(), number) for client, number in self.by_name}
        return mine | {(client.hex(), floor) for client, (floor, _) in self.floors.items()}
