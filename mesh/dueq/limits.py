"""Every limit of the mesh in one place; their relations are asserted at import.

Sizes are bytes (`_bytes`), durations milliseconds (`_ms`) unless the name says otherwise.
"""

from __future__ import annotations

from typing import Final

# Payloads and requests
PAYLOAD_BYTES_MAX: Final = 64 << 20
CHUNK_BYTES: Final = 256 << 10
"""A payload longer than this travels and is stored in chunks of this size, ahead of the record that names it."""
BLOCK_BYTES: Final = 32 << 10
"""Short payloads of neighbouring rows of one record are stored together in blocks of at most this size."""
FRAME_BYTES_MAX: Final = 4 << 20
REQUEST_BYTES_MAX: Final = 3 << 20
"""Inline payload bytes of one request; the SDK cuts longer runs."""
REQUEST_ROWS_MAX: Final = 1024
RECORD_ROWS_MAX: Final = 2048
RECORD_BYTES_MAX: Final = 3 << 20
DUE_MS_MAX: Final = (1 << 48) - 1
LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 12 * 3600 * 1000
DELAY_MS_MAX: Final = 366 * 24 * 3600 * 1000

# Ids
UID_MAX: Final = (1 << 24) - 1
SEQUENCE_MAX: Final = (1 << 40) - 1

# Topics
TOPIC_NAME_MAX: Final = 255
PARTITIONS_MAX: Final = 1024
REPLICAS_MAX: Final = 7

# Deduplication (one window per client and partition)
DEDUP_WINDOW: Final = 256
DEDUP_MS: Final = 15 * 60 * 1000
DEDUP_BYTES_MAX: Final = 8 << 20
REQUESTS_IN_FLIGHT_MAX: Final = 128

# Jobs (in one partition)
JOBS_MAX: Final = 4096
JOB_HIDDEN_MS_MAX: Final = 7 * 24 * 3600 * 1000
"""So far ahead may lie the instant by which a hidden job must be committed."""
JOB_MEMORY_MS: Final = 7 * 24 * 3600 * 1000
"""So long after its last record, and after that instant, is a job remembered, and the answers to its INSERTs."""
JOB_ANSWERED_MS: Final = JOB_MEMORY_MS - 24 * 3600 * 1000
"""So long after that instant is it certain that a job which home does not know was never committed."""
JOB_DEDUP_WINDOW: Final = 65_536
JOB_DEDUP_BYTES_MAX: Final = 16 << 20

# Leases and consumers
CONSUMER_LEASES_MAX: Final = 16_384
PARTITION_LEASES_MAX: Final = 65_536
CONSUMER_CREDIT_BYTES: Final = 64 << 20
CONSUMER_SESSION_MS: Final = 10_000
CONSUMER_BEAT_MS: Final = CONSUMER_SESSION_MS // 4
SESSIONS_MAX: Final = 8192
LOOK_AHEAD_MS_MIN: Final = 30
LOOK_AHEAD_MS_MAX: Final = 250
LEASE_GATHER_MS: Final = 100
"""Beyond the look-ahead, for what is leased along with what is within it."""
ACK_LINGER_MS: Final = 100
"""So long a consumer gathers acks that nobody waits for: each request is answered and counted on its own."""
ACK_GATHER_MS: Final = 100
"""So long a leader lets them wait for a record that is made anyway: each record is a sync on every replica's disk."""
LOOK_AHEAD_BYTES_MAX: Final = 32 << 20

# Replication
HEARTBEAT_MS: Final = 200
LEADER_SILENCE_MS: Final = 1500
REPLICA_LAG_MS: Final = 1500
PUSH_CONFIRM_MS: Final = 500
PAUSE_MS: Final = 250
RESEND_MS: Final = 400
APPEND_BYTES_MAX: Final = 4 << 20
"""Bytes of records and payloads in flight to one follower of one partition."""
BALANCE_CALM_MS: Final = 60_000
"""So long after the last change among the brokers do leaderships begin to go back to those that are preferred."""
UNCOMMITTED_BYTES_MAX: Final = 16 << 20
LOG_CACHE_BYTES: Final = 4 << 20
"""Applied records of one partition that are kept in memory, by what they weigh there."""
LOG_CACHE_TOTAL_BYTES: Final = 64 << 20
"""The same over all partitions of a broker."""
LOG_RETAIN_BYTES: Final = 16 << 20
UPLOADS_BYTES_MAX: Final = 256 << 20
UPLOAD_IDLE_MS: Final = 15 * 60 * 1000
SNAPSHOT_CHUNK_BYTES: Final = 1 << 20
SNAPSHOT_IDLE_MS: Final = 30_000
"""A snapshot that nobody has read from for so long is closed."""

# Reading
FORECAST_SECONDS_MAX: Final = 3600

# Browsing
BROWSE_SNAPSHOTS_MAX: Final = 8
"""Snapshots that one broker keeps for those who browse: each holds up compactions."""
BROWSE_ROWS_MAX: Final = 1024
BROWSE_BYTES_MAX: Final = 1 << 20
"""Payload bytes of one page, unless its one row has more."""

# The timeline in memory
HOT_ROWS_MAX: Final = 16_384
"""Waiting messages of one partition that are kept in memory, soonest first."""
HOT_ROWS_TOTAL: Final = 131_072
HOT_SCAN_ROWS: Final = 4096
CHECKPOINT_ROWS: Final = 4096
CHECKPOINT_MS: Final = 2000

# Clocks
MAX_CLOCK_OFFSET_MS: Final = 250
CLOCK_STEP_MS: Final = 50
CLOCK_DRIFT_PPM: Final = 500
"""How fast clocks may part while one is slewed (the most that adjtimex does): an old measurement is the less worth."""
HANDOVER_MS: Final = 60_000

# ZooKeeper
ZOOKEEPER_SESSION_MS: Final = 3000

# Free space: the smaller of a share of the disk and a size
DISK_LOW_SHARE: Final = 0.10
DISK_LOW_BYTES: Final = 512 << 20
DISK_CRITICAL_SHARE: Final = 0.03
DISK_CRITICAL_BYTES: Final = 128 << 20
BALLAST_SHARE: Final = 0.02
BALLAST_BYTES: Final = 64 << 20

DEFAULT_TIMEOUT_S: Final = 30.0

assert REQUEST_ROWS_MAX <= RECORD_ROWS_MAX < 1 << 16
assert BLOCK_BYTES <= CHUNK_BYTES < REQUEST_BYTES_MAX <= RECORD_BYTES_MAX < FRAME_BYTES_MAX
assert BROWSE_BYTES_MAX + CHUNK_BYTES < FRAME_BYTES_MAX
assert REQUESTS_IN_FLIGHT_MAX * 2 <= DEDUP_WINDOW
assert JOB_HIDDEN_MS_MAX <= JOB_MEMORY_MS
assert 4 * MAX_CLOCK_OFFSET_MS < JOB_ANSWERED_MS < JOB_MEMORY_MS
assert HEARTBEAT_MS * 2 < PUSH_CONFIRM_MS < LEADER_SILENCE_MS <= REPLICA_LAG_MS
assert CONSUMER_BEAT_MS * 3 < CONSUMER_SESSION_MS
assert HEARTBEAT_MS < PAUSE_MS < LEADER_SILENCE_MS
