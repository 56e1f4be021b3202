"""What a process costs, read from the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dueq.bench.processes import cpu_ms_per_s, cpu_s, disk_bytes, peak_mb, rss_anon_bytes, rss_anon_mb


def test_private_memory_is_read_from_the_status() -> None:
    assert rss_anon_bytes("Name:\tx\nRssAnon:\t    2048 kB\nRssFile:\t 9 kB\n") == 2 << 20
    with pytest.raises(ValueError, match="RssAnon"):
        rss_anon_bytes("Name:\tx\n")
    assert rss_anon_mb(os.getpid()) > 1


def test_processor_time_is_found_behind_a_name_with_spaces_and_parentheses() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    fields = ["S", *["0"] * 10, str(3 * ticks), str(ticks), *["0"] * 30]
    assert cpu_s("42 (a (odd) name) " + " ".join(fields)) == 4.0


def test_the_processor_is_watched_for_a_while() -> None:
    assert cpu_ms_per_s([os.getpid()], 0.01)[0] >= 0


def test_the_ballast_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data").write_bytes(bytes(100_000))
    (tmp_path / "ballast").write_bytes(bytes(1_000_000))
    assert 100_000 <= disk_bytes(tmp_path) < 200_000


def test_the_most_memory_of_certain_processes_below_one() -> None:
    pid = os.getpid()
    own = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]
    assert peak_mb(own, below=pid) > 5
    assert peak_mb("no such word in any command", below=pid) == 0
    assert peak_mb(own, below=2**22 + 1) == 0
