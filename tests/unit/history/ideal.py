"""A random but correct execution, as a history: a mesh that does everything right, clients that do not.

Each message has a life of its own, played in the order of its moments of effect. The history shows an interval around
each moment, an outcome that may be unknown, and a mesh clock that is slightly wrong.
"""

from __future__ import annotations

from random import Random

from tests.unit.history.scribe import END_MS, RULES, Scribe

_LAST_MS = 25_000
"""Nothing begins later; the rest is quiet."""


class Ideal:
    """Plays messages into a scribe.

    Args:
        seed: of everything.
    """

    def __init__(self, seed: int) -> None:
        self.scribe = Scribe()
        self._random = Random(seed)
        self._clients = 0

    def play(self, messages: int) -> Scribe:
        """Play so many messages."""
        for number in range(messages):
            self._message(f"m{number}")
        return self.scribe

    # ------------------------------------------------------------ one message

    def _message(self, message: str) -> None:
        random = self._random
        due = random.randrange(0, 12_000)
        inserted = random.uniform(10, 9_000)
        fate = random.random()
        if fate < 0.1:
            self.scribe.schedule(message, due, inserted, inserted + 10, "refused")
            return
        if fate < 0.25:
            until = random.choice((None, inserted + random.uniform(0.1, 3_000)))
            self.scribe.schedule(message, due, inserted - 5, until, "unknown")
            if fate < 0.17:
                return
        else:
            self.scribe.schedule(
                message, due, inserted - random.uniform(0, 5), inserted + random.uniform(0, 50)
            )
        self._live(message, due, inserted)

    def _live(self, message: str, due: int, now: float) -> None:
        """From its insert on: what producers ask for, at their moments, between what the mesh does."""
        random = self._random
        last = min(max(now, due) + 2_000, _LAST_MS)
        asked = sorted(random.uniform(now + 60, last) for _ in range(random.choice((0, 0, 1, 2, 3))))
        token = 0
        while True:
            ready = max(now, due)
            while asked and asked[0] < ready:
                at = asked.pop(0)
                if random.random() < 0.3:
                    if self._ask("cancel", message, at, "done"):
                        self._too_late(message, asked, "not_found")
                        return
                else:
                    wanted = random.randrange(0, 20_000)
                    if self._ask("move", message, at, "done", wanted):
                        due = wanted
                now, ready = max(now, at), max(at, due)
            token += random.randrange(1, 5)
            finished, now = self._lease(message, due, ready, token, asked)
            if finished:
                self._too_late(message, asked, "not_found")
                return

    def _ask(self, kind: str, message: str, at: float, outcome: str, due: int = 0) -> bool:
        """Ask for a change that has its moment at `at`; return whether it happened."""
        random = self._random
        since, until = at - random.uniform(0, 40), at + random.uniform(0, 40)
        happened = True
        chance = random.random()
        if chance < 0.1:
            outcome, happened = "refused", False
        elif chance < 0.3:
            outcome, happened = "unknown", random.random() < 0.5
        end = None if outcome == "unknown" and random.random() < 0.5 else until
        self._clients += 1
        client = f"p{self._clients}"
        if kind == "move":
            self.scribe.move(message, due, since, end, outcome, client)
        else:
            self.scribe.cancel(message, since, end, outcome, client)
        return happened

    def _too_late(self, message: str, asked: list[float], outcome: str) -> None:
        for at in asked:
            self._ask("cancel", message, at, outcome)
        asked.clear()

    # ------------------------------------------------------------ one lease

    def _lease(
        self, message: str, due: int, ready: float, token: int, asked: list[float]
    ) -> tuple[bool, float]:
        """Deliver it once; return whether it is finished, and when it waits again."""
        random = self._random
        self._clients += 1
        client = f"c{self._clients}"
        wrong = random.uniform(-0.45, 0.45) * RULES.clock_us / 1000
        released = ready + max(0.0, -wrong) + random.uniform(0, 3)
        received = released + random.uniform(0.1, 30)
        lease = random.randrange(200, 6_000)
        over = released + lease
        self.scribe.deliver(
            message,
            due,
            released + wrong,
            received,
            token,
            token,
            int(max(over - received, 0)),
            client=client,
        )
        self.scribe.polls(client, received + 1, over, 700)
        if random.random() < 0.3 and over > received + 100:
            over = self._extend(message, token, client, received + 30, over)
        choice = random.random() if received < _LAST_MS else 0.0
        at = random.uniform(received + 60, max(received + 61, min(over - 1, received + 4_000)))
        finished = choice < 0.5 and at < over
        end = at if finished else over
        if finished:
            self._settle("ack", message, token, client, at)
        elif choice < 0.6:
            self._settle("ack", message, token, client, over + 1, "stale")
            self.scribe.lose(message, over + 60, token, client)
        elif choice < 0.8 and at < over:
            end = at
            delay = random.choice((0, 500))
            self._settle(random.choice(("nack", "release")), message, token, client, at)
            ready = at + delay
        elif choice < 0.9 and at < over:
            self.scribe.close(at - 1, at + 500, client)
            end = at
        while asked and asked[0] < end:
            self._ask(random.choice(("cancel", "move")), message, asked.pop(0), "leased")
        return finished, max(end, ready)

    def _extend(self, message: str, token: int, client: str, at: float, over: float) -> float:
        random = self._random
        length = random.randrange(100, 6_000)
        happened = random.random() < 0.8
        known = happened and random.random() < 0.7
        self.scribe.settle(
            "extend", message, at - 5, at + 10, token, "done" if known else "unknown", client, ms=length
        )
        if happened:
            over = at + length
        self.scribe.polls(client, at + 20, over, 700)
        return over

    def _settle(
        self, kind: str, message: str, token: int, client: str, at: float, outcome: str = "done"
    ) -> None:
        random = self._random
        if outcome == "done" and random.random() < 0.2:
            outcome = "unknown"
        end = None if outcome == "unknown" and random.random() < 0.5 else at + random.uniform(0, 40)
        self.scribe.settle(kind, message, at - random.uniform(0, 20), end, token, outcome, client)


def with_victim(seed: int) -> Scribe:
    """A random execution that holds one more message, `victim`: due at 5,000, delivered at 5,000.5, acked at 5,100."""
    scribe = Ideal(seed).play(20)
    scribe.schedule("victim", 5_000, 100, 110)
    assert END_MS > _LAST_MS
    return scribe
