"""The report: one HTML page that needs nothing else."""

from dueq_chaos.nemesis.report.page import write_report

__all__ = ["write_report"]
