"""dueq and Spark: the rows of a DataFrame become messages; what is scheduled, and what falls due, become rows.

    report = dueq.spark.schedule(frame, topic="departures", due="leaves_at", payload="ticket")

    dueq.spark.register(spark)        # not needed where a session was there before this was imported
    waiting = spark.read.format("dueq").option("topic", "departures").load()

Every Spark task opens its own connection and sends its rows in batches. A task that Spark runs again repeats
the very same requests, which the mesh recognises: rows are scheduled once (see `schedule`). `dueq.spark.source` has the
data source, `dueq.spark.reorder` a reorder buffer, `dueq.spark.analytics` evaluates what `dueq export` wrote.
"""

try:
    from pyspark.sql import SparkSession

    from dueq.spark.producer import schedule
    from dueq.spark.report import ScheduleReport
    from dueq.spark.session import spark_session
    from dueq.spark.source import DueqDataSource, register
except ImportError as error:
    raise ImportError("dueq.spark needs PySpark 4.1 and PyArrow: pip install 'dueq[spark]'") from error

__all__ = ["DueqDataSource", "ScheduleReport", "register", "schedule", "spark_session"]

_session = SparkSession.getActiveSession()
if _session is not None:
    register(_session)
