"""Lets Spark find `format("dueq")` by itself: of top-level modules named `pyspark_…` it takes the `DefaultSource`."""

from dueq.spark.source import DueqDataSource as DefaultSource

__all__ = ["DefaultSource"]
