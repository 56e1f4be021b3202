"""One mesh and one browser for all tests of the dashboard: Debian's chromium, without a window."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("selenium")

from dueq import Client
from dueq.local import LocalMesh
from tests.browser.tab import Tab, opened

_AXE = "axe-core@4.10.3"


@pytest.fixture(scope="session")
def mesh() -> Iterator[LocalMesh]:
    """Three brokers and a gateway."""
    with LocalMesh(store="memory", gateway=True) as found:
        yield found


@pytest.fixture(scope="session")
def client(mesh: LocalMesh) -> Iterator[Client]:
    """A program that uses the mesh, too."""
    with Client(mesh.endpoints) as found:
        yield found


@pytest.fixture(scope="session")
def browser(mesh: LocalMesh) -> Iterator[Tab]:
    """A browser whose viewer lives in New York, where it is never the hour that it is in UTC."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("no chromium and chromedriver")
    with opened(mesh.description()["gateway"]["url"], "America/New_York") as found:
        yield found


@pytest.fixture
def tab(browser: Tab) -> Iterator[Tab]:
    """The browser's tab; whatever a test does in it, its console stays empty, and it asks nobody but the gateway."""
    browser.begin()
    yield browser
    assert browser.complaints() == []
    assert browser.asked_elsewhere() == []


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program that looks for what keeps people from using a page."""
    if shutil.which("npm") is None:
        pytest.skip("no npm")
    folder = tmp_path_factory.mktemp("axe")
    command = ["npm", "pack", "--silent", "--json", _AXE]
    try:
        packed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm has not brought {_AXE} within a minute")
    if packed.returncode:
        pytest.skip(f"npm has no {_AXE}: {packed.stderr[-200:]}")
    with tarfile.open(folder / json.loads(packed.stdout)[0]["filename"]) as archive:
        program = archive.extractfile("package/axe.min.js")
        assert program is not None
        return program.read().decode()
