"""The Spark producer: schedule the rows of a DataFrame.

    report = dueq.spark.schedule(frame, topic="departures", due="leaves_at", payload="ticket")

Every Spark task opens its own connection and sends its rows in batches. A task that Spark runs again repeats
the very same requests, which the mesh recognises: rows are scheduled once (see `schedule` for the limits).
"""

from dueq.spark.producer import ScheduleReport, schedule

__all__ = ["ScheduleReport", "schedule"]
