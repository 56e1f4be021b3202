"""Named scenarios of feature levels: a mesh whose brokers are replaced by the next build, one at a time."""

from __future__ import annotations

from zlib import crc32

from dueq.core.ports.events import Event, PeerFrameReceived
from dueq.storage.ordered import layout
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.storms.upgrades import NEXT_LEVEL
from dueq_codecs.envelope import seal
from dueq_codecs.layouts import Kind
from dueq_codecs.log import RECORD
from dueq_codecs.messages import PeerFrame
from dueq_codecs.records import FEATURE_LEVEL, Record


def replace(stage: Stage, *brokers: str, level: int = NEXT_LEVEL) -> None:
    """Stop each, and start it with another build; the next one follows when the mesh is whole."""
    for broker in brokers:
        stage.nodes[broker].crash(goodbye=True)
        stage.nodes[broker].level = level
        stage.nodes[broker].start()
        stage.until(lambda broker=broker: level_of(stage, broker) and stage.whole(), f"{broker} is back")  # type: ignore[misc]


def level_of(stage: Stage, broker: str) -> int:
    """The level that its replica has reached; 0: it has just begun."""
    core = stage.nodes[broker].core
    found = core.partition(stage.uid) if core is not None else None
    return found.timeline.level if found is not None else 0


def last_version(stage: Stage) -> int:
    """The version of the newest record."""
    log = stage.replica(stage.leader).replica.log
    entry = log.get(log.end)
    assert entry is not None
    return entry.record.version


def test_the_level_rises_after_the_last_replica_was_replaced_and_not_before() -> None:
    stage = Stage()
    replace(stage, "b2", "b3")
    stage.stored(b"two are new")
    stage.run_ms(3_000)
    stage.expect(level_of(stage, stage.leader) == FEATURE_LEVEL, "b1 holds it where it is")
    stage.expect(last_version(stage) == FEATURE_LEVEL, "every record is one that b1 can apply")
    replace(stage, "b1")
    stage.until(lambda: all(level_of(stage, name) == NEXT_LEVEL for name in stage.names), "it has risen")
    stage.stored(b"all are new")
    stage.expect(last_version(stage) == NEXT_LEVEL, "records carry the level")
    stage.finish()


def test_a_replica_that_is_away_holds_the_level() -> None:
    """It has left the ISR and its registration is gone: it will be back, with the build that it had."""
    stage = Stage()
    stage.nodes["b3"].crash(goodbye=True)
    stage.until(lambda: stage.isr() == ["b1", "b2"], "b3 is out")
    for broker in ("b1", "b2"):
        stage.nodes[broker].crash(goodbye=True)
        stage.nodes[broker].level = NEXT_LEVEL
        stage.nodes[broker].start()
        stage.until(lambda: stage.leader_of(stage.uid) and len(stage.isr()) == 2, "two serve")
    stage.stored(b"b3 is away")
    stage.run_ms(20_000)
    stage.expect(level_of(stage, stage.leader) == FEATURE_LEVEL, "b3 holds it where it is")
    stage.nodes["b3"].start()
    stage.until(stage.whole, "b3 is back, with the old build")
    stage.expect(not stage.replica("b3").broken, "nothing has stopped it")
    replace(stage, "b3")
    stage.until(lambda: level_of(stage, "b1") == NEXT_LEVEL, "it has risen")
    stage.finish()


def test_a_replica_that_was_upgraded_and_is_away_does_not_hold_the_level() -> None:
    """Its broker has died with the new build. Those that are replaced after that have never seen it."""
    stage = Stage()
    replace(stage, "b3")
    stage.nodes["b3"].crash(goodbye=True)
    stage.until(lambda: stage.isr() == ["b1", "b2"], "b3 is out")
    for broker in ("b1", "b2"):
        stage.nodes[broker].crash(goodbye=True)
        stage.nodes[broker].level = NEXT_LEVEL
        stage.nodes[broker].start()
        stage.until(lambda: stage.leader_of(stage.uid) and len(stage.isr()) == 2, "two serve")
    stage.until(lambda: level_of(stage, stage.leader) == NEXT_LEVEL, "it has risen")
    stage.stored(b"b3 is away")
    stage.nodes["b3"].start()
    stage.until(lambda: level_of(stage, "b3") == NEXT_LEVEL, "b3 takes it up")
    stage.finish()


def test_a_level_once_reached_stays_through_leaders_restarts_and_snapshots() -> None:
    stage = Stage(log_retain_bytes=2_000)
    replace(stage, "b1", "b2", "b3")
    stage.until(lambda: level_of(stage, "b2") == NEXT_LEVEL, "it has risen")
    stage.run_ms(6_000)  # a checkpoint has it
    stage.lose_disk("b3")
    stage.until(stage.whole, "b3 was filled")
    stage.until(lambda: level_of(stage, "b3") == NEXT_LEVEL, "by a snapshot that has it")
    for broker in stage.names:
        stage.nodes[broker].crash()
    for broker in stage.names:
        stage.nodes[broker].start()
    stage.until(stage.whole, "a whole mesh")
    stage.stored(b"after")
    stage.expect(last_version(stage) == NEXT_LEVEL, "the new leader goes on with it")
    stage.finish()


def test_a_broker_taken_back_after_the_level_has_risen_stops_and_says_what_to_run() -> None:
    stage = Stage()
    replace(stage, "b1", "b2", "b3")
    stage.until(lambda: level_of(stage, "b3") == NEXT_LEVEL, "it has risen")
    stage.nodes["b3"].crash(goodbye=True)
    stage.nodes["b3"].level = FEATURE_LEVEL
    stage.nodes["b3"].start()
    stage.until(lambda: level_of(stage, "b3") and stage.replica("b3").broken, "b3 stops")
    levels = f"feature level {NEXT_LEVEL}, this build has {FEATURE_LEVEL}"
    stage.expect(levels in stage.replica("b3").broken, stage.replica("b3").broken)
    stage.stored(b"the others go on")
    replace(stage, "b3")
    stage.expect(not stage.replica("b3").broken, "the newer build goes on")
    stage.finish()


def test_a_frame_with_a_record_that_cannot_be_read_stops_one_partition_of_the_follower() -> None:
    """The other partition's records come in the same frames, and heartbeats do."""
    stage = Stage(partitions=2)
    other = stage.uids[1]

    def unreadable(event: Event) -> bool:
        if isinstance(event, PeerFrameReceived) and isinstance(event.message, PeerFrame):
            for append in event.message.appends:
                if append.uid == stage.uid and append.entries:
                    append.entries, append.unreadable = [], "a record of kind 99, which is not known"
        return False

    door = stage.hold("b3", unreadable)
    stage.stored(b"a new kind of record", uid=stage.uid)
    stage.stored(b"an old one", uid=other)
    stage.until(lambda: "b3" not in stage.isr(), "b3 has left the ISR")
    stage.expect("b3" in stage.isr(other), "of that partition alone")
    stage.expect(stage.replica("b3").replica.role == "stopped", "it is shown")
    [line] = stage.told("b3", "partition.stopped")
    stage.expect("kind 99" in str(line["reason"]), f"it says why: {line}")
    door.forget()
    stage.step("the newer build is installed")
    stage.nodes["b3"].crash(goodbye=True)
    stage.nodes["b3"].start()
    stage.finish()


def test_a_log_that_only_a_newer_build_can_read_keeps_one_partition_closed() -> None:
    """A broker was taken back: it starts, serves the rest, and leaves that replica as it is."""
    stage = Stage(partitions=2)
    other = stage.uids[1]
    for uid in stage.uids:
        stage.stored(b"before", uid=uid)
    node = stage.nodes["b3"]
    node.crash()
    timeline = node.disk.timeline
    prefix = layout.head(stage.uid, b"L")
    *_, (key, row) = timeline.scan(prefix, layout.after(prefix))
    newer = Record(99, stage.uid, int.from_bytes(key[4:], "big") + 1, 9, 5)  # type: ignore[arg-type]
    encoded = seal(Kind.RECORD, RECORD.write(newer))
    link = layout.LINK.pack(crc32(encoded, layout.LINK.unpack_from(row)[0]))
    added = layout.log_key(stage.uid, newer.sequence)
    timeline.write([(added, link + encoded)], sync=True)
    untouched = list(timeline.scan(*layout.whole(stage.uid)))
    node.start()
    stage.until(lambda: "b3" in stage.isr(other), "b3 holds the other partition")
    stage.stored(b"meanwhile", uid=stage.uid)
    stage.run_ms(5_000)
    assert node.core is not None
    stage.expect(node.core.partition(stage.uid) is None, "the replica is not opened")
    shown = node.core._status.head(node.now())["broker"]["unopened"]
    stage.expect("kind 99" in shown[str(stage.uid)] and str(other) not in shown, "the status shows it")
    stage.expect("kind 99" in str(stage.told("b3", "partition.stopped")), "it says why")
    stage.expect(list(timeline.scan(*layout.whole(stage.uid))) == untouched, "nothing was changed")
    stage.step("the newer build is installed again; it goes on, and cuts what was never committed")
    node.crash(goodbye=True)
    timeline.write([(added, None)], sync=True)
    node.start()
    stage.finish()
    stage.expect(stage.replica("b3").timeline.scheduled_count == 2, "it has every message")
