"""The SDK's log, where the user's handlers fail."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from dueq.client.logs import log


class Away(logging.Handler):
    """The log's collector cannot be reached."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def handle(self, record: logging.LogRecord) -> bool:
        self.asked.append(record.getMessage())
        raise OSError("the log collector is away")


@pytest.fixture
def away() -> Iterator[Away]:
    handler = Away()
    logger = logging.getLogger("dueq.client")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_who_logs_goes_on_if_a_handler_raises(away: Away) -> None:
    log.warning("leases.lost", count=2)
    log.log(logging.ERROR, "link.lost")
    try:
        raise LookupError("of what")
    except LookupError:
        log.exception("client.broken")
    names = [said.split()[0] for said in away.asked]
    assert names == ["event='leases.lost'", "event='link.lost'", "event='client.broken'"]
    assert "LookupError: of what" in away.asked[2]
