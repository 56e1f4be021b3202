"""Spark finds the data source by itself."""

from __future__ import annotations

from pkgutil import iter_modules

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import DataSource


def test_spark_finds_a_top_level_module_with_a_default_source() -> None:
    import pyspark_dueq

    assert "pyspark_dueq" in {module.name for module in iter_modules()}
    assert issubclass(pyspark_dueq.DefaultSource, DataSource)
    assert pyspark_dueq.DefaultSource.name() == "dueq"
