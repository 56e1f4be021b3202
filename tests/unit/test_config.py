"""Configuration: a file, overruled by the environment, overruled by flags; unknown names are errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from dueq.config import BrokerConfig
from dueq.errors import InvalidRequest


def test_flags_overrule_the_environment_and_that_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('id = "from-file"\ndata = "/d"\nmax_clock_offset_ms = 100\nlog_level = "debug"\n')
    config = BrokerConfig.load(
        {"id": "from-flag", "listen": None}, file, {"DUEQ_LOG_LEVEL": "error", "HOME": "/"}
    )
    assert (config.id, config.log_level, config.max_clock_offset_ms) == ("from-flag", "error", 100)
    assert config.data == Path("/d")


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
    ],
)
def test_a_wrong_setting_is_named_with_its_value(flags: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidRequest, match=None) as error:
        BrokerConfig.load(flags, environment={})
    assert text in str(error.value)


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("id = ")
    with pytest.raises(InvalidRequest, match=r"broker\.toml"):
        BrokerConfig.load({}, file, {})
