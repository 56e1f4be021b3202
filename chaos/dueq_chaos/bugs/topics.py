"""Planted bugs of changing topics: which settings are in force, where, and from when on."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

TOPICS: Final = (
    Bug(
        "messages-before-settings",
        "A new topic's settings are logged in the next tick, and messages are taken before.",
        "dueq itself: a message of a topic with one attempt was retried, if it came in the first milliseconds",
        (
            change("core.partition.partition:Partition.request", "self._settings.missing", "False"),
            change(
                "core.partition.settings:SettingsCare.begin",
                "self.look(now)",
                "self._ctx.attend(self._partition.uid)",
            ),
        ),
        seeds=1,
        finders=(0,),
    ),
    Bug(
        "leased-before-the-pause",
        "A pause stops new leases only, so a message that was leased before is pushed when it falls due.",
        "RabbitMQ, Pub/Sub and others: messages that were prefetched go on arriving after a queue was paused",
        (
            change(
                "core.delivery.pushing:Pushing._push_leased",
                "if slots is not None and lane.is_silent(mesh_ms):",
                "if False:",
            ),
            change("core.delivery.pushing:Pushing._push_prepared", " or lane.is_silent(mesh_ms):", ":"),
            change("core.delivery.pushing:Pushing.push", " and not lane.leases_triggered:", " and False:"),
            change("core.delivery.lane:Lane.silenced", "self.return_granted(", "len, ("),
        ),
        seeds=178,
        finders=(177, 129),
    ),
    Bug(
        "trigger-waits-for-the-end-of-the-pause",
        "A triggered message is due at once, and a pause of its topic holds it as it holds any other.",
        "a run-now button that only changes the date",
        (
            change(
                "core.delivery.leasing:Leasing._lease_triggered",
                "if not lane.partition.timeline.triggered:",
                "if not lane.partition.timeline.triggered or lane.is_silent(mesh_ms):",
            ),
        ),
        seeds=268,
        finders=(257,),
    ),
    Bug(
        "homes-move-with-growth",
        "A job's home is looked for among all partitions of a topic, those that were added since included.",
        "Kafka: a topic that gets more partitions, and keys that go to other ones from then on",
        (
            change(
                "core.partition.partition:Partition._timeline_of",
                "self.topic.home_partitions",
                "len(self.topic.partitions)",
            ),
            change("core.partition.jobs:Jobs._look_after", "topic.home_partitions", "len(topic.partitions)"),
        ),
        seeds=0,
        finders=(92533638, 92535030),
    ),
    Bug(
        "settings-not-saved",
        "A checkpoint leaves the settings out, so a replica that starts again delivers a paused topic.",
        "state that is kept in memory beside the log, and lost with the log's beginning",
        (
            change(
                "core.state.settings_table:SettingsTable.changed_rows",
                "if not self._changed:",
                "if True:",
            ),
        ),
        seeds=64,
        finders=(17, 27),
    ),
    Bug(
        "tokens-not-taken",
        "A limited topic is delivered as fast as any other.",
        "rate limits that are configured, shown and never asked",
        (
            change(
                "core.delivery.lane:Lane.spend",
                "self.tokens.take(len(entries))",
                "self.tokens.take(0)",
            ),
        ),
        seeds=162,
        finders=(161, 65),
    ),
    Bug(
        "purge-without-a-beginning",
        "A purge takes messages that were scheduled or moved after it began.",
        "truncate by a running scan: rows that are inserted meanwhile go with the old ones",
        (change("core.state.matching:matching", "(last < before)", "(last < 1 << 62)"),),
        seeds=64,
        finders=(17,),
    ),
    Bug(
        "pass-before-its-checkpoint",
        "A pass reads the disk's index, and misses messages that are only in memory yet.",
        "a scan of an index that is behind the state which it is to change",
        (
            change(
                "core.partition.passes:Passes._start",
                "self._partition.checkpoints.after(durable, now)",
                "durable(frozenset(), now)",
            ),
        ),
        seeds=64,
        finders=(17,),
    ),
    Bug(
        "late-change-wins",
        "A change of a topic that was delayed on its way is stored over later changes.",
        "a lost update: writes without compare-and-set (Berenson and others 1995, P4)",
        (
            change(
                "cluster.znodes:updated_topic",
                "if order.creation_id != topic.creation_id or order.settings.version != topic.settings.version + 1:",
                "if False:",
            ),
        ),
        seeds=627,
        finders=(209, 555),
    ),
    Bug(
        "existing-topic-refused",
        "A creation that lets the topic exist is refused if another one has made it.",
        "CREATE TABLE IF NOT EXISTS that fails: PostgreSQL, two sessions at once",
        (
            change(
                "core.front.topics:Topics.order_done",
                "if code == Code.TOPIC_EXISTS and order.exist_ok:",
                "if False:",
            ),
        ),
        seeds=0,
        finders=(92000000, 92000003),
    ),
)
