"""What tests of several parts need."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.unit.name_server import NameServer


@pytest.fixture
def name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    """In the place of the real one."""
    found = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", found.getaddrinfo)
    yield found
    found.answers.set()
