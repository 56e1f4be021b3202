"""Campaigns: millions of messages from a table of people, planned with Spark and loaded once.

    spec = Spec.read(Path("spring.toml"))
    report = run(spark, ["tcp://127.0.0.1:7400"], spec, dry=True, plot=Path("spring.png"))
    report = run(spark, ["tcp://127.0.0.1:7400"], spec)

`dueq campaign` is the same as a command. `spec` says what a specification may hold, and `preparing` how rows become
messages. `local_time` says how local times are read when clocks are set forward or back, and `smoothing` how a crowd
is spread.
"""

from dueq.campaign.report import CampaignReport
from dueq.campaign.running import cancel, loaded_before, run
from dueq.campaign.spec import Spec

__all__ = ["CampaignReport", "Spec", "cancel", "loaded_before", "run"]
