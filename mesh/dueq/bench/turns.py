"""How long the turns of brokers' loops took, from what they publish."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.request import urlopen

_TURN = re.compile(r'dueq_loop_turn_seconds_bucket\{le="([^"]+)"\} (\d+)')
_PAGE_S = 60.0

Turns = dict[float, int]
"""How many turns took at most this many seconds, by these."""


def turns(addresses: Iterable[str]) -> Turns:
    """All turns since these brokers began, by the addresses of their metrics."""
    found: Turns = {}
    for address in addresses:
        with urlopen(f"http://{address}/metrics", timeout=_PAGE_S) as page:
            for bound, count in _TURN.findall(page.read().decode()):
                found[float(bound)] = found.get(float(bound), 0) + int(count)
    return found


def longest_ms(before: Turns, after: Turns) -> float:
    """The least bound of all turns between two looks, in ms."""
    all_turns = after[float("inf")] - before[float("inf")]
    return min(bound for bound in after if after[bound] - before[bound] == all_turns) * 1000
