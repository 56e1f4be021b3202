"""A Spark session for programs of dueq's own, and a clear sentence where there cannot be one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dueq.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
_SHUFFLE: Final = "spark.sql.shuffle.partitions"
_SHUFFLE_USUAL: Final = "200"


def spark_session(name: str, **settings: str) -> SparkSession:
    """Return the running Spark session, or a new one.

    Args:
        name: the application's.
        settings: Spark's, with `_` for `.`; under spark-submit the master is the submitter's.

    Raises:
        InvalidRequest: there is no Java, or one that is too old for Spark 4.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    check_java()
    # Workers must be this Python, not whichever `python3` is first on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).config("spark.ui.showConsoleProgress", "false")
    for key, value in settings.items():
        builder = builder.config(key.replace("_", "."), value)
    session: SparkSession = builder.getOrCreate()
    _fit_to_machine(session)
    return session


def _fit_to_machine(session: SparkSession) -> None:
    """On one machine Spark's 200 partitions of every shuffle are 200 tasks, each of which starts a sender."""
    context = session.sparkContext
    if context.master.startswith("local") and session.conf.get(_SHUFFLE) == _SHUFFLE_USUAL:
        session.conf.set(_SHUFFLE, str(2 * context.defaultParallelism))


def check_java() -> None:
    """See that Spark would find a Java that it can use.

    Raises:
        InvalidRequest: it would not; the text says what to install or set.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    if shutil.which(command) is None:
        where = (
            f"JAVA_HOME={home} has no bin/java" if home else "there is no `java` on the PATH, nor JAVA_HOME"
        )
        raise InvalidRequest(
            f"Spark needs Java {JAVA_MIN} or later: {where}; install one (Debian: default-jre-headless)"
        )
    version = _version(command)
    if version is not None and version < JAVA_MIN:
        raise InvalidRequest(f"Spark needs Java {JAVA_MIN} or later: {command} is Java {version}")


def _version(command: str) -> int | None:
    """The major version; None where the text is of no known form."""
    answer = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=30)
    quoted = answer.stderr.partition('"')[2].partition('"')[0].split(".")
    numbers = quoted[1:] if quoted[0] == "1" else quoted
    return int(numbers[0]) if numbers and numbers[0].isdigit() else None
