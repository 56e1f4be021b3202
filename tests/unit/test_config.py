"""A broker's configuration: where its values come from, and what they may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from dueq.cli.gateway import gateway
from dueq.config import BrokerConfig
from dueq.errors import InvalidRequest

NEEDED = {"id": "b1", "data": Path("d")}


def test_flags_overrule_the_environment_and_that_overrules_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('id = "file"\ndata = "file"\nlog_level = "error"\nhot_rows_total = 100\n')
    environment = {"DUEQ_DATA": "environment", "DUEQ_LOG_LEVEL": "warning", "DUEQ_HOT_ROWS_TOTAL": "200"}
    config = BrokerConfig.load({"log_level": "debug", "metrics": None}, file, environment)
    assert config == BrokerConfig("file", Path("environment"), log_level="debug", hot_rows_total=200)


@pytest.mark.parametrize(
    ("flags", "text", "environment"),
    [
        ({"colour": "red"}, "", {}),
        ({}, "colour = 'red'", {}),
        ({}, "", {"DUEQ_COLOUR": "red"}),
        ({}, "[broker]\nid = 'b2'", {}),
    ],
)
def test_an_unknown_name_is_an_error_wherever_it_stands(
    flags: dict[str, str], text: str, environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(text)
    with pytest.raises(InvalidRequest, match="there is no setting"):
        BrokerConfig.load(NEEDED | flags, file, environment)


def test_an_unknown_variable_is_named_as_it_is_set() -> None:
    with pytest.raises(
        InvalidRequest, match=r"there is no setting 'colour' \(DUEQ_COLOUR in the environment\)"
    ):
        BrokerConfig.load(NEEDED, None, {"DUEQ_COLOUR": "red"})


def test_variables_that_are_for_others_are_left_alone() -> None:
    """The SDK's own, and those that Kubernetes sets for a service called dueq."""
    environment = {
        "DUEQ_ENDPOINTS": "tcp://127.0.0.1:7400",
        "DUEQ_WEBHOOK_ALLOW": "127.0.0.0/8",
        "DUEQ_SERVICE_HOST": "10.0.0.1",
        "DUEQ_SERVICE_PORT_CLIENTS": "7400",
        "DUEQ_PORT": "tcp://10.0.0.1:7400",
        "DUEQ_B1_PORT_7400_TCP_ADDR": "10.0.0.1",
        "PATH": "/bin",
    }
    assert BrokerConfig.load(NEEDED, None, environment) == BrokerConfig("b1", Path("d"))


def test_variables_of_a_gateway_beside_it_are_left_alone() -> None:
    """One file of variables may be for both: a broker did not start where a gateway was to issue tokens."""
    environment = {str(option.envvar): "x" for option in gateway.params if option.envvar}
    assert BrokerConfig.load(NEEDED, None, environment).id == "b1"


@pytest.mark.parametrize("missing", ["id", "data"])
def test_what_has_no_default_must_be_given(missing: str) -> None:
    with pytest.raises(InvalidRequest, match=f"'{missing}' is missing"):
        BrokerConfig.load({name: value for name, value in NEEDED.items() if name != missing}, None, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", ""), ("id", "a" * 65), ("id", "b 1"), ("id", "b1\n"), ("id", 7), ("data", ""), ("data", 7),
        ("listen", ""), ("listen", "127.0.0.1:7400"), ("listen", "tcp://127.0.0.1"), ("listen", "tcp://:7400"),
        ("listen", "ipc://x:1"), ("listen", "tcp://127.0.0.1:65536"), ("listen", "tcp://127.0.0.1:port"),
        ("advertise", "tcp://b1.example:0"), ("advertise", "b1.example:7400"),
        ("advertise", "tcp://0.0.0.0:7400"), ("advertise", "tcp://*:7400"), ("advertise", "tcp://[::]:7400"),
        ("metrics", "9100"), ("metrics", ":9100"), ("metrics", "127.0.0.1:99999"), ("metrics", "127.0.0.1:"),
        ("log_level", "loud"), ("log_format", "xml"),
        ("max_clock_offset_ms", 0), ("max_clock_offset_ms", 60_001), ("max_clock_offset_ms", 1.5),
        ("max_clock_offset_ms", True), ("max_clock_offset_ms", "fast"), ("max_clock_offset_ms", "-5"),
        ("disk_timeout_ms", 4_999), ("disk_timeout_ms", 3_600_001), ("disk_timeout_ms", "5s"),
        ("hot_rows_total", 63), ("hot_rows_total", (1 << 24) + 1), ("hot_rows_total", ""),
    ],
)  # fmt: skip
def test_a_value_out_of_its_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=name):
        BrokerConfig.load(NEEDED | {name: value}, None, {})


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"data": "/d"}, "the setting 'id' is missing"),
        ({"id": "b1", "data": "/d", "colour": "red"}, "there is no setting 'colour'"),
        ({"id": "b 1", "data": "/d"}, "not 'b 1'"),
        ({"id": "b1", "data": "/d", "listen": "localhost:1"}, "listen is tcp://ADDRESS:PORT"),
        ({"id": "b1", "data": "/d", "max_clock_offset_ms": "soon"}, "a whole number, not 'soon'"),
        ({"id": "b1", "data": "/d", "max_clock_offset_ms": 0}, "max_clock_offset_ms is 1 to 60000, not 0"),
        ({"id": "b1", "data": "/d", "log_level": "loud"}, "log_level is one of"),
        ({"id": "b1", "data": "/d", "metrics": "here"}, "metrics is ADDRESS:PORT"),
        ({"id": "b1"}, "the setting 'data' is missing"),
        (
            {"id": "b1", "data": "/d", "store": "redis"},
            "there is no store 'redis'; there are leveldb, memory",
        ),
        ({"id": "b1", "store": "memory", "store_memory_bytes": 7}, "store_memory_bytes is 16777216 to"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(flags: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        BrokerConfig.load(flags, environment={})
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listen", "tcp://*:7400"), ("listen", "tcp://[::]:7400"), ("listen", "tcp://127.0.0.1:0"),
        ("advertise", "tcp://b1.example.org:7400"), ("metrics", "0.0.0.0:9100"), ("metrics", "127.0.0.1:0"),
        ("zookeeper", "zk1:2181,zk2:2181/dueq"), ("id", "broker-1.east_2"),
    ],
)  # fmt: skip
def test_the_usual_values_are_taken_as_they_are(name: str, value: str) -> None:
    assert getattr(BrokerConfig.load(NEEDED | {name: value}, None, {}), name) == value


def test_a_file_that_is_not_toml_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    for text in (b"id = ", b"id = \xff"):
        file.write_bytes(text)
        with pytest.raises(InvalidRequest, match=r"broker\.toml"):
            BrokerConfig.load({}, file, {})
    with pytest.raises(InvalidRequest, match=r"missing\.toml"):
        BrokerConfig.load({}, tmp_path / "missing.toml", {})


def test_a_store_in_memory_needs_no_folder() -> None:
    config = BrokerConfig.load({"id": "b1"}, None, {"DUEQ_STORE": "memory"})
    assert (config.store, config.data) == ("memory", None)


def test_the_working_directory_may_be_the_data_folder() -> None:
    config = BrokerConfig.load({"id": "b1", "data": "."}, environment={})
    assert config.data == Path()


def test_an_empty_variable_is_not_the_working_directory() -> None:
    with pytest.raises(InvalidRequest, match="data is a path, not nothing"):
        BrokerConfig.load({"id": "b1"}, environment={"DUEQ_DATA": ""})
