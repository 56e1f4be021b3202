"""Planted bugs of the disk: order of writes, checkpoints, snapshots, recovery, the hot window."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

STORAGE: Final = (
    Bug(
        "payload-after-record",
        "Records are synced before their payloads.",
        "rocketmq-rust #9154: a position is durable before its data",
        (
            change(
                "storage.ordered.store:OrderedStore._flush",
                "    if payload:\n        self._payload.write(payload, sync=True)\n"
                "    if timeline:\n        self._timeline.write(timeline, sync=True)\n",
                "    if timeline:\n        self._timeline.write(timeline, sync=True)\n"
                "    if payload:\n        self._payload.write(payload, sync=True)\n",
            ),
        ),
        seeds=1_908,
        finders=(8,),
    ),
    Bug(
        "checkpoint-position-first",
        "A checkpoint's position is written before its rows, in a batch of its own.",
        "rocketmq-rust #9154: index and log disagree after a crash",
        (
            change(
                "storage.ordered.store:OrderedStore._checkpoint",
                "    if len(write.unwait):",
                "    self._flush()\n"
                "    epoch = self._logs[uid].epoch_at(write.applied)\n"
                "    position = CHECKPOINT.pack(write.applied, epoch, write.low_water)\n"
                "    self._timeline.write([(layout.head(uid, b'C'), position + write.summary)], sync=True)\n"
                "    batch = self._timeline_batch\n"
                "    if len(write.unwait):",
            ),
        ),
        seeds=603,
        finders=(200,),
    ),
    Bug(
        "snapshot-without-leases",
        "A snapshot holds the waiting messages, but not the leased ones.",
        "nats-server #7556: a snapshot of less than the state",
        (
            change(
                "storage.ordered.snapshots:_Open._all_rows",
                "yield 0, key, value",
                "if key[3:4] != b'l':\n                    yield 0, key, value",
            ),
        ),
        seeds=24,
        finders=(5,),
    ),
    Bug(
        "snapshot-without-cold-rows",
        "A snapshot holds only the messages that wait soonest, as memory does.",
        "Pulsar PR #26230: what was not loaded is not in the rebuilt index",
        (
            change(
                "storage.ordered.snapshots:_Open._all_rows",
                "        for key, value in self._timeline.scan(*bounds):\n",
                "        of_index = 0\n"
                "        for key, value in self._timeline.scan(*bounds):\n"
                "            of_index += key[3:4] == b'i'\n"
                "            if key[3:4] == b'i' and of_index > 16:\n"
                "                continue\n",
            ),
        ),
        seeds=24,
        finders=(5,),
    ),
    Bug(
        "snapshot-without-answers",
        "A snapshot holds the messages, but not what was answered to whom.",
        "Kafka KIP-890: producer state lost on reassignment",
        (
            change(
                "storage.ordered.snapshots:_Open._all_rows",
                "yield 0, key, value",
                "if key[3:4] != b'd':\n                    yield 0, key, value",
            ),
        ),
        seeds=24,
        finders=(5, 11),
    ),
    Bug(
        "installation-not-marked",
        "A replica that is being filled does not say so on its disk.",
        "nats-server #7549: a node with part of the data becomes leader",
        (
            change("storage.ordered.store:OrderedStore._install_begin", "(mark, layout.INSTALLING),", ""),
            change(
                "storage.ordered.store:OrderedStore._install_begin",
                "kept=(mark, topic, meta)",
                "kept=(topic, meta)",
            ),
        ),
        seeds=2400,
        finders=(1101,),
    ),
    Bug(
        "wipe-takes-new-rows",
        "A snapshot is asked for while old rows are still being deleted, and its rows go with them.",
        "Cassandra: a tombstone that deletes what was written after it",
        (
            change("core.replication.installing:Installation._ask", "if self._wiping:", "if False:"),
            change("storage.ordered.store:OrderedStore._make_way", "self._wiping.finish(write.uid)", "pass"),
        ),
        seeds=0,
        finders=(90_000_002, 90_000_000),
    ),
    Bug(
        "move-keeps-old-index-row",
        "A moved message stays in the index on disk under its old instant too.",
        "Pulsar PR #26251: index and log disagree after a merge",
        (
            change(
                "core.state.checkpoint:write_rows",
                "unwait = np.flatnonzero((disk == OnDisk.WAITING) & ~stays)",
                "unwait = np.flatnonzero((disk == OnDisk.WAITING) & (state != State.WAITING))",
            ),
        ),
        seeds=24,
        finders=(
            19,
            0,
        ),
    ),
    Bug(
        "short-row-forgets-the-first-instant",
        "A message that was moved gets its first instant, and so its id, from where it waits now.",
        "what follows from a key usually is taken to follow always",
        (
            change(
                "storage.ordered.short_rows:shortened",
                "    masks = ",
                "    differences[:, _INSTANTS[1]] = 0\n    masks = ",
            ),
        ),
        seeds=24,
        finders=(0,),
    ),
    Bug(
        "low-water-above-waiting",
        "Scans of the index begin at the latest stamp, though messages may wait below it.",
        "RocksDB wiki, queues: a remembered first id",
        (change("core.state.checkpoint:low_water_of", "mark = min(mark, int(waiting.min()))", "pass"),),
        seeds=210,
        finders=(69,),
    ),
    Bug(
        "stale-read-wins",
        "Memory drops rows while an older read is in flight, and its answer brings the old state back.",
        "Pulsar PR #26230: a lazily loaded index says otherwise than the newer one",
        (
            change("core.state.cold:ColdReads.settled", "return oldest >= self._saved_at", "return True"),
            change("core.state.cold:ColdReads.settled", "return False", "return True"),
        ),
        seeds=279,
        finders=(93,),
    ),
    Bug(
        "window-forgets-pinned-rows",
        "A message that a record in the log names may leave memory before the record is applied.",
        "Pulsar PR #5489: entries dropped from memory while they are in use",
        (
            change(
                "core.state.residency:Residency.cold",
                "    table.pins[slots] += 1\n",
                "    hold.unresolved += 0\n",
            ),
            change("core.state.residency:Residency._hold_few", "self.table.pins[slot] += 1", "pass"),
        ),
        seeds=24,
        finders=(2,),
    ),
    Bug(
        "block-deleted-with-first-row",
        "A block of payloads is garbage when the first of its messages ends.",
        "RocketMQ #6984: the fate of one decides for its batch",
        (change("storage.ordered.garbage:Garbage._count_down", "    if left > 0:", "    if False:"),),
        seeds=24,
        finders=(19,),
    ),
    Bug(
        "garbage-before-the-log",
        "A payload goes as soon as its message ends, though the log still holds the record.",
        "RocketMQ: a cleaned commit log that a lagging replica still needs",
        (
            change(
                "storage.ordered.garbage:Garbage._count_down",
                '    batch.append((garbage, b""))',
                "    self._payload.write([(layout.block_key(uid, sequence, block_row), None)], sync=True)",
            ),
        ),
        seeds=252,
        finders=(1,),
    ),
    Bug(
        "chunks-not-waited-for",
        "A follower takes a record whose uploaded payload it does not have.",
        "rocketmq-rust #9154: a position is durable before its data",
        (
            change(
                "core.partition.partition:Partition.missing_upload",
                "return self.uploads.missing(entry, leader, self.ctx.turn)",
                "return False",
            ),
        ),
        seeds=327,
        finders=(109,),
    ),
    Bug(
        "torn-tail-trusted",
        "Recovery accepts a log with a hole, and records whose payloads are lost.",
        "LevelDB skips damaged blocks unless paranoid_checks is set; nats-server #7549",
        (
            change(
                "storage.ordered.recovery:Recovery._verify_log", "if sequence != log.end + 1:", "if False:"
            ),
            change(
                "storage.ordered.recovery:Recovery._verify_log",
                "if LINK.unpack_from(row)[0] != crc32(encoded, log.link):",
                "if False:",
            ),
            change("storage.ordered.recovery:Recovery._read", "self._cut_payloads(uid, log.end)", "pass"),
        ),
        seeds=210,
        finders=(69,),
    ),
    Bug(
        "newer-checkpoint-stops-the-broker",
        "A checkpoint that this build cannot read ends the whole process, at every start.",
        "Kafka KIP-584: a downgraded broker dies of a feature level that it does not know",
        (
            change(
                "core.partition.partition:Partition._timeline_of",
                "    except UnknownVersion as error:\n        self.stop(str(error))",
                "    except UnknownVersion as error:\n        raise error",
            ),
        ),
        seeds=24,
        finders=(1, 48),
    ),
    Bug(
        "newer-checkpoint-taken-for-an-empty-one",
        "A build takes a checkpoint that it cannot read for an empty one.",
        "Pulsar PR #26251: what cannot be read is replaced by what is there",
        (
            change(
                "core.partition.partition:Partition._timeline_of",
                "    except UnknownVersion as error:\n        self.stop(str(error))\n"
                "        return Timeline(self.uid, None, self.hot_rows_max, place=place, build_level=level)",
                "    except UnknownVersion as error:\n"
                "        recovered.summary, recovered.tables = b'', {}\n"
                "        return Timeline(self.uid, recovered, self.hot_rows_max, place=place, build_level=level)",
            ),
        ),
        seeds=24,
        finders=(1, 48),
    ),
    Bug(
        "side-table-not-in-the-checkpoint",
        "A checkpoint leaves out one of the side tables, so its rows are gone with the process.",
        "a table that was added, and forgotten in one of the places that had to be told of it",
        (
            change(
                "core.state.side_tables:SideTables.changed_rows",
                "if rows}",
                "if rows and tag != b'j'}",
            ),
        ),
        seeds=24,
        finders=(5,),
    ),
    Bug(
        "payload-position-not-compared",
        "A payload/ that is older than timeline/ is trusted.",
        "RocketMQ #6984; a restored backup of one volume of two",
        (change("storage.ordered.pair:_misfit", "if payload.at < timeline.needs:", "if False:"),),
        seeds=24,
        finders=(3, 1),
    ),
    Bug(
        "timeline-position-not-compared",
        "A timeline/ that is older than payload/ is trusted.",
        "KIP-966: a replica whose log went back is counted as it was",
        (change("storage.ordered.pair:_misfit", "if timeline.at < payload.needs:", "if False:"),),
        seeds=243,
        finders=(81, 71),
    ),
    Bug(
        "payload-identity-not-compared",
        "A payload/ of another store is trusted.",
        "Kafka KIP-858: a log directory that belongs to another broker",
        (change("storage.ordered.pair:_misfit", "if other != store:", "if False:"),),
        seeds=372,
        finders=(48, 124),
    ),
    Bug(
        "lost-payloads-trusted",
        "A payload/ that is gone counts as one that never held anything.",
        "rocketmq-rust #9154: a position is durable before its data",
        (
            change("storage.ordered.pair:_misfit", "if timeline.stamped else", "if False else"),
            change("storage.ordered.pair:_misfit", "if payload.at < timeline.needs:", "if False:"),
        ),
        seeds=24,
        finders=(3, 1),
    ),
    Bug(
        "swept-before-it-is-looked-at",
        "Rows that no replica names are deleted before it is known whether both databases belong together.",
        "LevelDB's RepairDB: what is not understood is dropped",
        (
            change(
                "storage.ordered.identity:_trusted",
                "    halves = paired(timeline, payload)\n",
                "    verify(Half(timeline), Half(payload))\n    halves = paired(timeline, payload)\n",
            ),
        ),
        seeds=39,
        finders=(2,),
    ),
    Bug(
        "payloads-not-synced",
        "The batch of payloads is written and not synced.",
        "rocketmq-rust #9154: a position is durable before its data",
        (
            change(
                "storage.ordered.store:OrderedStore._flush",
                "self._payload.write(payload, sync=True)",
                "self._payload.write(payload, sync=False)",
            ),
        ),
        seeds=24,
        finders=(1, 0),
    ),
    Bug(
        "records-not-synced",
        "The batch of records is written and not synced.",
        "Kafka without flush.messages: what is acknowledged lies in the page cache",
        (
            change(
                "storage.ordered.store:OrderedStore._flush",
                "self._timeline.write(timeline, sync=True)",
                "self._timeline.write(timeline, sync=False)",
            ),
        ),
        seeds=24,
        finders=(1, 0),
    ),
    Bug(
        "snapshot-in-memory-moves",
        "A snapshot of the engine in memory shows what was written after it.",
        "etcd's boltdb read transactions: a reader must not see the pages of a later one",
        (change("storage.ordered.memory:MemorySnapshot.keep", "if self._closed:", "if True:"),),
        seeds=40,
        finders=(11,),
    ),
)
"""All of them, in the order of writing."""
