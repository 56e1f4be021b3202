"""Hints for mistyped words, and for a machine without Java."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from dueq.errors import InvalidRequest
from dueq.spark.hints import did_you_mean
from dueq.spark.session import check_java


def test_a_mistyped_word_gets_a_question() -> None:
    assert (
        did_you_mean("leves_at", ["leaves_at", "body"])
        == "; did you mean 'leaves_at'? There are: body, leaves_at"
    )
    assert did_you_mean("xyz", ["body"]) == ". There are: body"
    assert did_you_mean("x", []) == "; there are none"


def test_a_machine_without_java_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(InvalidRequest, match=r"Spark needs Java 17 or later: there is no `java`.*install"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidRequest, match=r"JAVA_HOME=.* has no bin/java"):
        check_java()


@pytest.mark.parametrize(
    ("version", "fits"), [("17.0.15", True), ("1.8.0_402", False), ("21-ea", True), ("?", True)]
)
def test_a_java_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, fits: bool
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if fits:
        check_java()
    else:
        with pytest.raises(InvalidRequest, match="is Java 8"):
            check_java()
