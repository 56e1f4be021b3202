"""One mesh and one browser for all tests of the dashboard: Debian's chromium, without a window."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("selenium")

from selenium.webdriver import Chrome

from dueq import Client
from dueq.local import LocalMesh
from dueq.local.gateway import GatewayChild
from dueq.ports import free_ports
from tests.browser.tab import Tab, started

_AXE = "axe-core@4.10.3"

# A browser and a mesh that nobody looks at still take time of a core: they end with the folder's last test.


@pytest.fixture(scope="package")
def pool() -> Iterator[ThreadPoolExecutor]:
    """Start what takes long together."""
    with ThreadPoolExecutor() as found:
        yield found


@pytest.fixture(scope="package")
def driver(pool: ThreadPoolExecutor) -> Iterator[Future[Chrome]]:
    """A browser that is being started; its viewer lives in New York, where it is never the hour that it is in UTC."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("no chromium and chromedriver")
    found = pool.submit(started, "America/New_York")
    yield found
    found.result().quit()


@pytest.fixture(scope="package")
def mesh(driver: Future[Chrome], packed: Future[str]) -> Iterator[LocalMesh]:
    """Three brokers and a gateway, started while the browser starts."""
    with LocalMesh(store="memory", gateway=True) as found:
        yield found


@pytest.fixture(scope="package")
def read_only(mesh: LocalMesh, pool: ThreadPoolExecutor) -> Iterator[Future[str]]:
    """The address of another gateway, which is being started and changes nothing."""
    (port,) = free_ports(1)
    child = GatewayChild(f"127.0.0.1:{port}", mesh.folder / "logs" / "read-only.log", ("--read-only",))

    def begin() -> str:
        assert child.start(mesh.endpoints, 60)
        return child.url

    found = pool.submit(begin)
    yield found
    found.exception()
    child.stop(10)


@pytest.fixture(scope="package")
def client(mesh: LocalMesh) -> Iterator[Client]:
    """A program that uses the mesh, too."""
    with Client(mesh.endpoints) as found:
        yield found


@pytest.fixture(scope="package")
def browser(mesh: LocalMesh, driver: Future[Chrome], read_only: Future[str]) -> Tab:
    """A browser that shows the mesh's gateway."""
    return Tab(driver.result(), mesh.description()["gateway"]["url"])


@pytest.fixture
def tab(browser: Tab) -> Iterator[Tab]:
    """The browser's tab; whatever a test does in it, its console stays empty, and it asks nobody but the gateway."""
    browser.begin()
    yield browser
    assert browser.complaints() == []
    assert browser.asked_elsewhere() == []


@pytest.fixture(scope="package")
def packed(tmp_path_factory: pytest.TempPathFactory, pool: ThreadPoolExecutor) -> Future[str]:
    """The program of `axe`, which is being fetched."""
    return pool.submit(_fetched, tmp_path_factory.mktemp("axe"))


@pytest.fixture(scope="package")
def axe(packed: Future[str]) -> str:
    """A program that looks for what keeps people from using a page."""
    try:
        return packed.result()
    except _Missing as missing:
        pytest.skip(str(missing))


class _Missing(Exception):
    """Something that a test needs is missing here."""


def _fetched(folder: Path) -> str:
    if shutil.which("npm") is None:
        raise _Missing("no npm")
    command = ["npm", "pack", "--silent", "--json", _AXE]
    try:
        packed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        raise _Missing(f"npm has not brought {_AXE} within a minute") from None
    if packed.returncode:
        raise _Missing(f"npm has no {_AXE}: {packed.stderr[-200:]}")
    with tarfile.open(folder / json.loads(packed.stdout)[0]["filename"]) as archive:
        program = archive.extractfile("package/axe.min.js")
        assert program is not None
        return program.read().decode()
