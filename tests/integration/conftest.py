"""A mesh for the tests that leave it as they found it; who breaks things makes one of his own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from dueq import Client
from dueq.local import LocalMesh

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.http_caller import Caller


# These end with the folder's last test: a mesh that nobody needs still takes a twentieth of a core.
@pytest.fixture(scope="package")
def mesh() -> Iterator[LocalMesh]:
    """Three brokers and a ZooKeeper that nobody harms."""
    with LocalMesh() as found:
        yield found


@pytest.fixture
def client(mesh: LocalMesh) -> Iterator[Client]:
    """A client that knows every broker."""
    with Client(mesh.endpoints) as found:
        yield found


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of the test's own: three partitions on every broker."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", request.node.name)[:80]
    client.create_topic(name, partitions=3, replicas=3)
    yield name
    client.delete_topic(name)


@pytest.fixture(scope="package")
def http_mesh() -> Iterator[LocalMesh]:
    """A broker and a gateway that nobody harms."""
    pytest.importorskip("fastapi")
    with LocalMesh(brokers=1, zookeeper=False, store="memory", gateway=True) as found:
        yield found


@pytest.fixture(scope="package")
def gateway(http_mesh: LocalMesh) -> Caller:
    """A client of the gateway, which holds every answer against the description of the API."""
    from tests.integration.http_caller import Caller

    return Caller(http_mesh.description()["gateway"]["url"])


@pytest.fixture
def http_topic(gateway: Caller, request: pytest.FixtureRequest) -> Iterator[str]:
    """The path of a topic of the test's own, with two partitions."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", request.node.name)[:80]
    assert gateway("POST", "/v1/topics", {"name": name, "partitions": 2})[0] == 201
    yield f"/v1/topics/{name}"
    assert gateway("DELETE", f"/v1/topics/{name}")[0] == 204


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark with two cores, in which each task may fail three times.

    All modules share it, and its Python workers.
    """
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2, 4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "FATAL")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        # Queries over a few rows end before the code that Spark would generate and compile for them had paid off.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        # A machine that is busy with other tests takes longer to start a Python than the usual 15 seconds.
        .config("spark.python.authenticate.socketTimeout", "120s")
        .getOrCreate()
    )
    yield session
    session.stop()
