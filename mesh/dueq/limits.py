"""Every limit of the mesh in one place; their relations are asserted at import.

Sizes are bytes (`_bytes`), durations milliseconds (`_ms`) unless the name says otherwise.
"""

from __future__ import annotations

from typing import Final

# Payloads and requests
PAYLOAD_BYTES_MAX: Final = 64 << 20
"""Longest payload of a message; a topic may allow less."""
CHUNK_BYTES: Final = 256 << 10
"""A payload longer than this travels and is stored in chunks of this size, ahead of the record that names it."""
BLOCK_BYTES: Final = 32 << 10
"""Short payloads of neighbouring rows of one record are stored together in blocks of at most this size."""
FRAME_BYTES_MAX: Final = 4 << 20
"""Longest frame that a broker or client accepts."""
HEADER_BYTES_MAX: Final = FRAME_BYTES_MAX - (64 << 10)
"""Longest request of a client without its bodies."""
REQUEST_BYTES_MAX: Final = 3 << 20
"""Inline payload bytes of one request; the SDK cuts longer runs."""
REQUEST_ROWS_MAX: Final = 1024
"""Most rows of one request."""
REQUEST_NAMES_MAX: Final = 16
"""Most rows of one request that name one message. They take effect one after the other, so each costs a batch."""
RECORD_ROWS_MAX: Final = 2048
"""Most rows of one record of the log."""
RECORD_BYTES_MAX: Final = 3 << 20
DUE_MS_MAX: Final = (1 << 48) - 1
"""Latest due instant, Unix ms."""
LEASE_MS_MIN: Final = 100
"""Shortest lease that a consumer may ask for."""
LEASE_MS_MAX: Final = 12 * 3600 * 1000
"""Longest lease that a consumer may ask for."""
DELAY_MS_MAX: Final = 366 * 24 * 3600 * 1000
"""Longest delay of a nack."""
RELEASE_DELAY_MS_MAX: Final = 24 * 3600 * 1000
"""Longest delay of a message that is released."""
RELEASE_AGE_MS_MAX: Final = 7 * 24 * 3600 * 1000
"""A message that is released with a delay is not counted as tried until it has waited for this long since its first
instant: nobody puts it off for ever."""
DISCARD_ROWS_MAX: Final = 512
"""Dead messages that one record discards because they have been dead for long enough."""
DEAD_LOOK_MS: Final = 3600 * 1000
"""Longest time between two looks at how long the first dead message of a partition has been dead."""

RANK_MAX: Final = (1 << 16) - 1
"""Largest rank of a message; the smallest is 0, and comes first."""

GROUPS_MAX: Final = 1 << 18
"""Groups of one partition that have messages or settings: all of them are in memory. Four partitions have a million.
Inserts that wait for their commit are not counted: they may bring some 350,000 more, one for 48 bytes of what waits."""
NAMES_MAX: Final = 200_000_000
"""Unique keys of one partition, borne or remembered: they lie on the disk. Beyond that new ones get Busy."""
NAMES_LOOKED_UP_MAX: Final = 64
"""Requests whose unique keys are looked up at a time in a partition that has no room for new ones; others get Busy."""
IDEMPOTENCY_KEY_BYTES_MAX: Final = 255
"""Longest idempotency key, UTF-8."""
ONCE_MS: Final = 24 * 60 * 60 * 1000
"""Time for which a repeated idempotency key gets the first answer, in the age of the partition."""
KEY_FILTER_BYTES_MAX: Final = 64 << 20
"""Most memory for what says which unique keys of a partition are not on the disk; beyond that the disk is asked."""
KEY_SCAN_ROWS: Final = 8192
"""Unique keys that one read brings from the disk, for what says which are not there, after a start."""
SWEEP_ROWS: Final = 16_384
"""Keys that are remembered no more and that one checkpoint deletes at most."""
FAIR_WAKES_MAX: Final = 4096
"""Most groups whose messages begin to be ready in one look of a leader; the others do at the next one."""
FAIR_WAKES_MIN: Final = 512
"""Groups that begin to be ready in one look, though it asks for fewer messages than half of them."""
FAIR_LOOKS_MAX: Final = 4096
"""Most groups that may not be given anything (closed, or waiting for the disk) that one look finds at their turn."""

DEAL_LOOKS_MAX: Final = 1 << 14
"""Looks at consumers without bytes of credit for a message that one deal of messages takes; the next deal goes on."""

# Ids
UID_MAX: Final = (1 << 24) - 1
"""Largest number of a partition; none is used again."""
SEQUENCE_MAX: Final = (1 << 40) - 1
"""Largest log sequence of a partition."""

# Topics
TOPIC_NAME_MAX: Final = 255
"""Longest name of a topic, in characters."""
PARTITIONS_MAX: Final = 1024
"""Most partitions of a topic."""
REPLICAS_MAX: Final = 7
"""Most replicas of a partition."""
METADATA_TOPICS: Final = 200
"""Most topics in one answer about all of them: no delivery waits for ten thousand."""
METADATA_PARTITIONS: Final = 500
"""Partitions after which such an answer takes no further topic."""
SETTINGS_BYTES_MAX: Final = 4096
"""Longest document of a change of a topic."""
UPDATES_KNOWN: Final = 16
"""Changes before its last one that a topic knows by their ids: a repetition of one of them is answered as done."""
CREATIONS_KNOWN: Final = 128
"""Deleted topics that a list knows by the ids of their creations: a repetition of one of them makes no topic again."""
SECRETS_KEYS_MAX: Final = 16
"""Keys of one broker or gateway that seal and open the secrets of endpoints."""
SECRETS_KEY_FILE_BYTES_MAX: Final = 4096
"""Longest file of such keys."""
ENDPOINTS_MAX: Final = 1024
"""Topics whose messages gateways send to a URL; each is a consumer of every gateway."""

# Deduplication (one window per client and partition)
DEDUP_WINDOW: Final = 256
"""Requests of a client whose answers a partition remembers."""
DEDUP_MS: Final = 15 * 60 * 1000
"""Time for which answers are remembered, in the age of the partition."""
DEDUP_BYTES_MAX: Final = 8 << 20
"""Most memory of the remembered answers of a partition."""
REQUESTS_IN_FLIGHT_MAX: Final = 128
"""Most requests of a client to one partition that may be without an answer."""

# Loading
INSERTS_WAITING_BYTES_MAX: Final = 64 << 20
"""Inserts that wait at one broker for their turn; beyond that they get Busy."""
CLIENT_OUT_BYTES_MAX: Final = 24 << 20
"""Payload bytes of unanswered requests of one client; the rest waits with its callers."""
STREAM_REQUESTS_MAX: Final = 64
"""Most requests of one stream that may be in flight."""

# Headers that a nack has replaced (in one partition)
HEADINGS_BYTES_MAX: Final = 2 << 20
"""Most bytes of them, as JSON: they stay in memory, and a page of browsing may have all of them. Beyond that nacks with
headers get Busy."""
REQUEST_HEADINGS_BYTES: Final = 256 << 10
"""Bytes of them that one request of the SDK brings with all of its rows, unless its one row has more."""
HEADING_BYTES_MAX: Final = 128 << 10
"""Longest JSON of one message: 16 KiB of headers, of which each byte may be written as six."""

# Triggered messages (in one partition)
TRIGGERED_MAX: Final = 4096
"""Most triggered messages that may wait for consumers, or be leased, at once; beyond that further triggers get Busy."""

# Shared bodies (in one partition)
BODIES_MAX: Final = 1024
"""Most shared bodies that a partition keeps; beyond that new ones get Busy. Those that wait for their commit are not
counted: they may bring some 14,000 more, of 32 MiB together."""
BODY_BYTES_MAX: Final = 224 << 10
"""Longest shared body: with key and headers before it, it is still no upload."""
BODY_GRACE_MS: Final = 3_600_000
"""How long a body is kept that no message names, by the partition's age: from when it was put, kept or named last."""

# Jobs (in one partition)
JOBS_MAX: Final = 4096
"""Most jobs that a partition knows; beyond that inserts of new jobs get Busy. Those that wait for their commit are not
counted: they may bring some 14,000 more, one for each record."""
JOBS_SHOWN_MAX: Final = 20_000
"""Most jobs in one answer: it has to fit a frame."""
JOB_ID_BYTES_MAX: Final = 1024
"""Longest name of a job."""
JOB_ATTEMPTS_MAX: Final = 1000
"""Most times that a job of one name may be aborted and begun again."""
JOB_HIDDEN_MS_MIN: Final = 1000
"""The earliest instant, from now, by which a hidden job may have to be committed."""
JOB_HIDDEN_MS_MAX: Final = 7 * 24 * 3600 * 1000
"""The latest instant, from now, by which a hidden job must be committed."""
JOB_MEMORY_MS: Final = 7 * 24 * 3600 * 1000
"""Memory of a job after its last record and after that instant, and of the answers to its INSERTs."""
JOB_LOOK_AGAIN_MS: Final = 24 * 3600 * 1000
"""A job that could not be forgotten then is looked at again after this long."""
JOB_ANSWERED_MS: Final = JOB_MEMORY_MS - 24 * 3600 * 1000
"""For this long after that instant, a job that home does not know was certainly never committed."""
JOB_ABORT_AFTER_MS: Final = 1000
"""Time after that instant at which home aborts a job: a committer whose clock is behind must not be surprised."""
JOB_DEDUP_WINDOW: Final = 65_536
"""Requests with a job, of a client, whose answers a partition remembers."""
JOB_DEDUP_BYTES_MAX: Final = 16 << 20
"""Most memory of the remembered answers to requests with a job, in a partition."""

# Recurrences (in one partition, where nothing else is said)
RECURRENCES_MAX: Final = 131_072
"""Most recurrences of a partition."""
WINDOW_MS_MAX: Final = 7 * 86_400_000
"""Longest window in which a leader may choose when a message is due."""
RECURRENCES_BYTES_MAX: Final = 64 << 20
"""Most bytes of their names, terms and payloads: all of them are in memory."""
RECURRENCE_PAYLOAD_BYTES_MAX: Final = 64 << 10
"""Longest payload of a recurrence; its topic may allow less."""
RECURRENCE_NAME_BYTES_MAX: Final = 255
"""Longest name of a recurrence, in bytes of UTF-8."""
CRON_LINE_MAX: Final = 256
"""Longest cron line, in characters."""
RECURRENCE_INSTANTS_MAX: Final = 1000
"""Most instants in a recurrence that is a list of them."""
EVERY_MS_MIN: Final = 1000
"""Shortest period of a recurrence."""
EVERY_MS_MAX: Final = 366 * 24 * 3600 * 1000
"""Longest period of a recurrence that is given as one."""
JITTER_MS_MAX: Final = 24 * 3600 * 1000
"""Largest jitter of a recurrence; it is also shorter than any of its periods."""
MISSED_TICKS_MAX: Final = 100
"""Most missed ticks of a recurrence that are made up for."""
MISSED_AFTER_MS: Final = 60_000
"""A tick whose message could not come for this long is missed; a younger one fires late."""
FIRE_AHEAD_MS: Final = 10_000
"""How long before its instant a tick is logged."""
FIRED_AHEAD_MAX: Final = 16
"""Most messages of one recurrence that are logged and whose instant is still to come."""

# Passes (in one partition)
PASSES_MAX: Final = 1_024
"""Most passes that a partition knows; beyond that new ones get Busy."""
PASSES_KEPT: Final = 192
"""Ended passes that a partition remembers for a day; more only for a minute."""
PASS_NAME_MAX: Final = 64
"""Longest name of a pass, in characters."""
PASS_ROWS_MAX: Final = 512
"""Messages that a pass finishes by one record: consumers are served in between."""
PASS_WALKS_MAX: Final = 3
"""Ways through the index that a pass makes at most: one more while messages that were leased come back."""
COUNT_ROWS: Final = 65_536
"""Messages that are looked at for one answer to a count."""
COUNT_READS: Final = 256
"""Reads of the index for one answer to a count: a topic may have many ranks or groups."""
LEASED_ROWS: Final = 256
"""Leased messages that one answer names."""
LEASED_LISTED_MAX: Final = 1000
"""Leased messages that one call lists."""
PASS_RETRIED_MS: Final = 60_000
"""A pass is remembered for this long after its end, however many there are: its owner may ask again."""
PASS_MEMORY_MS: Final = 24 * 3600 * 1000
"""Memory of a pass after its end, in the age of the partition."""

# Leases and consumers
CONSUMER_LEASES_MAX: Final = 16_384
"""Largest credit that a consumer may ask for, and most leases that a pull names as held."""
PARTITION_LEASES_MAX: Final = 65_536
"""Most unfinished leases of one partition."""
PUSHES_UNSEEN_MAX: Final = 32_768
"""Pushes to one consumer that it has not confirmed to have seen; one that leaves more so has to attach again."""
DELIVERIES_SEEN_MAX: Final = 65_536
"""Finished deliveries that a consumer knows again, twice: a repeat that late cannot be on its way any more."""
MICRO_BATCH_MESSAGES_MAX: Final = 8192
"""Most messages of one micro-batch of Spark."""
RUN_WORKERS_MAX: Final = 1_024
"""Most handlers that one run of a consumer has at work."""
RUN_DRAIN_MS_MAX: Final = LEASE_MS_MAX
"""Longest time that handlers may get to end."""
HANDLER_SLOW_MS: Final = 60_000
"""A handler that works for this long is named in the log, again and again."""
CONSUMER_CREDIT_BYTES: Final = 64 << 20
"""Payload bytes that a consumer holds at most, unless it asks for another limit."""
CONSUMER_SESSION_MS: Final = 10_000
"""A consumer that has been silent for this long loses its session and its leases."""
CONSUMER_BEAT_MS: Final = CONSUMER_SESSION_MS // 4
CONSUMER_LOST_US: Final = CONSUMER_SESSION_MS * 1000 * 2 // 3
"""Silence after which a leader grants a consumer nothing new, and a consumer gives up what it has of a leader."""
PULL_ROWS_MAX: Final = 1_000
"""Most messages of one pull."""
PULL_WAIT_MS: Final = 6_500
"""Longest time that one pull waits at a leader; the SDK asks again."""
PULLS_MAX: Final = 1_024
"""Most pulls of a topic that wait at one leader."""
SESSIONS_MAX: Final = 8192
"""Most consumers of a topic at one leader."""
LOOK_AHEAD_MS_MIN: Final = 30
"""Shortest time before the due instant at which leases are committed."""
LOOK_AHEAD_MS_MAX: Final = 250
"""Longest time before the due instant at which leases are committed."""
LEASE_GATHER_MS: Final = 150
"""Messages this far beyond the look-ahead are leased along with those within it."""
LEASE_ALONG_MS: Final = 50
"""With a record that is made anyway, leases are made too if the first message is no further beyond the look-ahead."""
ACK_LINGER_MS: Final = 100
"""Longest wait, in the consumer, of an ack whose caller does not wait: each request is answered and counted on its
own.
"""
ACK_GATHER_MS: Final = 100
"""Longest wait of such an ack at the leader, for a record that is made anyway: each record is a sync on every disk."""
LOOK_AHEAD_BYTES_MAX: Final = 32 << 20
"""Most payload bytes that a leader reads ahead of their instants; twice as many with those of triggered messages."""

PUSH_ROWS_MAX: Final = 2048
"""Most messages of one push."""
PUSH_BYTES_MAX: Final = 2 << 20
"""Payload bytes of one push, unless its one message has more."""

# Connections of clients
CLIENT_HELLO_MS: Final = 2000
"""Longest wait of a client for the answer to its Hello, and longest pause between two."""
CLIENT_SILENCE_MS: Final = 5000
"""A connection on which a client has heard nothing for this long is dead."""

# Replication
HEARTBEAT_MS: Final = 200
"""Longest pause between two frames to another broker."""
LEADER_SILENCE_MS: Final = 1500
"""A leader that has not heard from min_isr replicas for this long gives up."""
REPLICA_LAG_MS: Final = 1500
PUSH_CONFIRM_MS: Final = 500
"""Age of the acks beyond which a leader does not push before it has asked again."""
PAUSE_MS: Final = 250
"""A turn that begins this much after its deadline means that the process stood still."""
RESEND_MS: Final = 400
APPEND_BYTES: Final = 1 << 20
APPEND_RECORDS: Final = 128
"""Records, and their bytes, that one frame brings to one follower of one partition."""
APPEND_WINDOW_RECORDS: Final = 512
"""Records that may be on their way to one follower of one partition."""
BALANCE_CALM_MS: Final = 60_000
"""Time without a change among the brokers after which leaderships begin to go back to the preferred brokers."""
UNAPPLIED_BYTES_MAX: Final = 16 << 20
"""Records of one partition that may wait until they are applied, by what they weigh in memory, before inserts get Busy;
twice as much for all others, and at a follower."""
LOG_CACHE_BYTES: Final = 4 << 20
"""Applied records of one partition that are kept in memory, by what they weigh there."""
LOG_CACHE_TOTAL_BYTES: Final = 64 << 20
"""The same over all partitions of a broker."""
LOG_RETAIN_BYTES: Final = 16 << 20
"""Log that a replica keeps on disk for followers that are behind."""
TRIM_RECORDS_MAX: Final = 32_768
"""Records that leave a log at once: twice as many as come between two checkpoints."""
UPLOADS_BYTES_MAX: Final = 256 << 20
UPLOAD_IDLE_MS: Final = 15 * 60 * 1000
"""An upload that has not moved for this long is given up."""
SNAPSHOT_CHUNK_BYTES: Final = 1 << 20
FOLLOWER_READS_MAX: Final = 4
"""Old records and parts of snapshots that a broker reads at the same time; consumers' payloads are read in between."""
SNAPSHOT_IDLE_MS: Final = 30_000
"""A snapshot from which nothing was read for this long is closed."""

# Reading
FORECAST_SECONDS_MAX: Final = 3600
"""Longest forecast, in seconds."""

# Counting
STATISTICS_HOURS: Final = 7 * 24
"""Hours for which a broker keeps its counts."""
STATISTICS_TOPICS_MAX: Final = 500
"""Topics of one hour that have counts of their own."""
STATISTICS_SENDERS_SHOWN: Final = 100
STATISTICS_SENDERS_KEPT: Final = 1_000
"""Senders of one topic and hour that are told apart: while it is counted, and in the answer."""
METRICS_TOPICS_MAX: Final = 200
"""Topics with metrics of their own, the busiest first, and then as long as they are there; the others are counted
together."""

# Browsing
LOOKS_MAX: Final = 4096
"""Messages that are looked at at the same time at one broker."""
BROWSE_SNAPSHOTS_MAX: Final = 8
"""Snapshots that one broker keeps for those who browse: each holds up compactions."""
BROWSE_READS_MAX: Final = 4
"""Pages, and chunks of long payloads, of one snapshot that are read at the same time."""
BROWSE_ROWS_MAX: Final = 1024
BROWSE_BYTES_MAX: Final = 1 << 20
"""Payload bytes of one page, unless its one row has more."""

# The gateway
GATEWAY_HEAD_BYTES_MAX: Final = 64 << 10
"""Longest head of an HTTP request: its line and headers."""
GATEWAY_JSON_BYTES_MAX: Final = 1 << 20
"""Longest JSON body of an HTTP request, and longest line of NDJSON."""
GATEWAY_JSON_DEPTH_MAX: Final = 64
"""Deepest nesting of arrays and objects in JSON."""
GATEWAY_WHEN_CHARS_MAX: Final = 64
"""Longest text of an instant or a duration in an HTTP request, without the blanks around it."""
GATEWAY_ITEMS_MAX: Final = 1000
"""Most items of an array in an HTTP request, of a page of a list, and failures that one answer shows."""
GATEWAY_LIST_BYTES_MAX: Final = 16 << 20
"""Payloads that a page of a list shows; a longer one comes alone."""
GATEWAY_BODIES_BYTES_MAX: Final = 256 << 20
"""Bodies of HTTP requests that one gateway holds at once; beyond that requests get Busy."""
GATEWAY_ANSWERS_BYTES_MAX: Final = 256 << 20
"""Bodies of HTTP answers that one gateway holds at once; beyond that requests for payloads get Busy."""
GATEWAY_LOOKED_AT_MAX: Final = 16_384
"""Messages that one request for a list looks at; it then ends with a cursor, also if few of them are in the list."""
GATEWAY_PAUSE_MS: Final = 30_000
"""Longest pause of a client while it sends a request. So often it is looked at how much of an answer a client takes."""
GATEWAY_DROPPED_MS: Final = 5_000
"""How long a client that has sent more than is taken may take to read the answer, before it is cut off."""
GATEWAY_DROPPED_BYTES_MAX: Final = 256 << 20
"""Most bytes that it may send meanwhile: they are read and dropped."""
GATEWAY_FIELDS_UNKNOWN_MAX: Final = 16
"""Fields of one object, beyond those that there are, that are refused by name."""
GATEWAY_BYTES_PER_S_MIN: Final = 16 << 10
"""Slowest that a body may come after the longest pause, on the average; or each line, if it is taken so. A client that
takes its answer more slowly is cut off, too."""
GATEWAY_CONNECTIONS_MAX: Final = 16_384
"""Most connections of one gateway."""
GATEWAY_STOP_MS: Final = 10_000
"""Time that requests under way get when a gateway stops."""
GATEWAY_WAIT_MS_MAX: Final = 60_000
"""Longest time that one HTTP request waits for a message: proxies rarely wait for longer."""
CLOUD_TASKS_TASK_BYTES_MAX: Final = 2 << 20
"""Longest task of the Cloud Tasks API, as a message: some 1.5 MiB of body."""
CLOUD_TASKS_BODY_BYTES_MAX: Final = 4 << 20
"""Longest body of one of its requests."""

WEBHOOK_POLL_MS: Final = 1000
"""Time after which a gateway asks again which endpoints there are."""
WEBHOOK_SPARE_MS: Final = 10_000
"""How much longer the lease of a message is than the time that its receiver gets."""
WEBHOOK_CREDIT_BYTES: Final = 16 << 20
"""Payload bytes that one leader may have out to a gateway for one endpoint."""
WEBHOOK_CONNECTIONS_MAX: Final = 4096
"""Most connections of one gateway to receivers; half of them in equal shares, so that nobody takes those of others."""
WEBHOOK_LOOKUPS_MAX: Final = 64
"""Names of receivers that one gateway looks up at a time; half of them in equal shares."""
WEBHOOK_DELAY_MS_MIN: Final = 1000
WEBHOOK_DELAY_MS_MAX: Final = RELEASE_DELAY_MS_MAX
"""Shortest and longest pause that a receiver gets by `Retry-After`."""

GATEWAY_PULL_BYTES_MAX: Final = 1 << 20
"""Payloads that one pull of a gateway brings; a longer one comes alone."""
GATEWAY_CREDIT_MAX: Final = 1000
"""Most messages of one stream that are not settled."""
GATEWAY_HEARTBEAT_MS: Final = 15_000
"""How often a stream says that it is there, if nothing else is to be said."""
GATEWAY_COMMANDS_MAX: Final = 16
"""Commands of one WebSocket that are worked on at once; while there are so many, no others are read."""

# The dashboard
ENDPOINTS_DISABLED_TOLD: Final = 100
"""Disabled endpoints that a broker's summary names."""
DASHBOARD_TABS_MAX: Final = 256
"""Most open pages that one gateway keeps up to date."""
DASHBOARD_PAUSE_MS: Final = 1000
"""Shortest time between two looks at the mesh, while somebody looks at a page."""
DASHBOARD_PAUSE_MS_MAX: Final = 60_000
"""Longest time between two looks: on a mesh that takes long to look at, they are rare."""
DASHBOARD_PAST_S: Final = 300
"""Seconds of deliveries that the dashboard remembers, while somebody looks."""
DASHBOARD_AHEAD_S: Final = 300
"""Seconds ahead for which it asks topics for their forecasts."""
DASHBOARD_AHEAD_S_MAX: Final = 400 * 86_400
"""Most seconds ahead: beyond an hour forecasts are by the hour."""
DASHBOARD_FORECASTS_MAX: Final = 16
"""Topics, the fullest, whose forecasts are part of the mesh's."""
DASHBOARD_ROWS_MAX: Final = 50
"""Topics, partitions, consumers, messages and troubles that one page shows at once."""
DASHBOARD_PREVIEW_BYTES: Final = 8 << 10
"""Bytes of a payload that are shown."""
DASHBOARD_READ_BYTES_MAX: Final = 1 << 20
"""Longest payload that is read to be shown in part."""
DASHBOARD_MERGED_MAX: Final = 64
"""Partitions whose messages one list puts in one order."""
DASHBOARD_LOOKED_AT_MAX: Final = 256
"""Messages of one partition that a page of a list looks at, where it searches by key."""
DASHBOARD_COUNTED_MAX: Final = 2_097_152
"""Messages that are counted one by one for a forecast by the second: a million take a broker's core a second."""
DASHBOARD_ACTS_KEPT: Final = 50
"""Acts that a gateway remembers, to show them; the log has all."""

# The timeline in memory
HOT_ROWS_MAX: Final = 16_384
"""Waiting messages of one partition that are kept in memory, soonest first."""
HOT_ROWS_TOTAL: Final = 131_072
"""The same over all partitions of a broker."""
HOT_SCAN_ROWS: Final = 4096
"""Entries of the index that one scan reads."""
SCAN_CLASSES_MAX: Final = 1024
"""Classes of the index (ranks, groups) that one scan reads."""
CHECKPOINT_MS: Final = 2000
"""Time after which a partition that has changed makes a checkpoint."""
CHECKPOINT_ROWS: Final = 4096
"""Messages after which it makes one at once, if they wait for longer than that: the disk will have them anyway."""
CHECKPOINT_ROWS_MAX: Final = 16_384
"""Changed rows of any kind after which it makes one at once."""

DISK_TIMEOUT_MS: Final = 30_000
"""A write that the disk does not answer for this long ends the broker."""

# Clocks
MAX_CLOCK_OFFSET_MS: Final = 250
"""A broker whose clock is further than this from a majority's hands its leaderships over."""
CLOCK_STEP_MS: Final = 50
"""A wall clock that moves this much against the monotonic one has been set: pushes wait for new measurements."""
CLOCK_DRIFT_PPM: Final = 500
"""Largest drift between clocks while one is slewed (the most that adjtimex does): an old measurement is worth less."""
HANDOVER_MS: Final = 60_000
"""Shortest time between two such handovers of a broker."""

# ZooKeeper
ZOOKEEPER_SESSION_MS: Final = 3000
"""Session timeout at ZooKeeper."""

# Deleting a partition
WIPE_ROWS: Final = 1_000
"""Rows of deleted partitions that one commit looks at: 1.3 ms of processor time."""
WIPE_BYTES: Final = 4 << 20
"""Their bytes: LevelDB reads a row's value, too, to get to the next key."""

# Free space: the smaller of a share of the disk and a size
DISK_LOW_SHARE: Final = 0.10
DISK_LOW_BYTES: Final = 512 << 20
"""Below this much free space, or that share, inserts are refused."""
DISK_CRITICAL_SHARE: Final = 0.03
DISK_CRITICAL_BYTES: Final = 128 << 20
"""Below this much free space, or that share, leaderships are handed over."""
BALLAST_SHARE: Final = 0.02
BALLAST_BYTES: Final = 64 << 20
"""Size, or share of the disk, of the file that is given up so that a full disk can be reopened."""

# A store in memory
STORE_MEMORY_BYTES: Final = 1 << 30
"""How much it holds, if nothing else is configured."""
MEMORY_LOW_SHARE: Final = 0.20
"""Below this share that is free, inserts are refused."""
MEMORY_CRITICAL_SHARE: Final = 0.10
"""Below this share that is free, leaderships are handed over."""

DEFAULT_TIMEOUT_S: Final = 30.0
"""Seconds that a client's call waits, unless it says otherwise."""

assert REQUEST_ROWS_MAX <= RECORD_ROWS_MAX < 1 << 16
assert CHECKPOINT_ROWS <= CHECKPOINT_ROWS_MAX
assert FAIR_WAKES_MAX >= 2 * RECORD_ROWS_MAX, "groups begin to be ready faster than messages are given"
assert BLOCK_BYTES <= CHUNK_BYTES < REQUEST_BYTES_MAX <= RECORD_BYTES_MAX < FRAME_BYTES_MAX
assert BROWSE_BYTES_MAX + CHUNK_BYTES < FRAME_BYTES_MAX
assert APPEND_BYTES < FRAME_BYTES_MAX
assert GATEWAY_ITEMS_MAX <= REQUEST_ROWS_MAX
assert PULL_WAIT_MS < GATEWAY_STOP_MS
assert GATEWAY_JSON_BYTES_MAX <= REQUEST_BYTES_MAX
assert PAYLOAD_BYTES_MAX < GATEWAY_BODIES_BYTES_MAX
# Payloads are a third longer in base64.
assert PAYLOAD_BYTES_MAX * 4 // 3 < GATEWAY_ANSWERS_BYTES_MAX // 2
assert APPEND_RECORDS <= APPEND_WINDOW_RECORDS
assert REQUESTS_IN_FLIGHT_MAX * 2 <= DEDUP_WINDOW
assert LEASE_ALONG_MS < LEASE_GATHER_MS
assert LOOK_AHEAD_MS_MAX + LEASE_GATHER_MS < FIRE_AHEAD_MS < MISSED_AFTER_MS
assert FIRE_AHEAD_MS // EVERY_MS_MIN < FIRED_AHEAD_MAX
assert RECURRENCE_PAYLOAD_BYTES_MAX <= CHUNK_BYTES
assert BODY_BYTES_MAX + (17 << 10) <= CHUNK_BYTES, (
    "the meta before a shared body makes it too long for a block"
)
assert REQUEST_BYTES_MAX < CLIENT_OUT_BYTES_MAX < INSERTS_WAITING_BYTES_MAX
assert JOB_HIDDEN_MS_MIN < JOB_HIDDEN_MS_MAX <= JOB_MEMORY_MS
assert MICRO_BATCH_MESSAGES_MAX <= CONSUMER_LEASES_MAX < PUSHES_UNSEEN_MAX < DELIVERIES_SEEN_MAX
assert STATISTICS_SENDERS_SHOWN <= STATISTICS_SENDERS_KEPT
assert 4 * MAX_CLOCK_OFFSET_MS <= JOB_ABORT_AFTER_MS < JOB_ANSWERED_MS < JOB_MEMORY_MS
assert JOB_LOOK_AGAIN_MS <= JOB_MEMORY_MS
assert HEARTBEAT_MS * 2 < PUSH_CONFIRM_MS < LEADER_SILENCE_MS <= REPLICA_LAG_MS
assert CONSUMER_BEAT_MS * 3 < CONSUMER_SESSION_MS
assert 2 * CONSUMER_BEAT_MS < PULL_WAIT_MS
assert PULL_WAIT_MS * 1000 < CONSUMER_LOST_US
assert CONSUMER_BEAT_MS * 2 < CONSUMER_LOST_US // 1000 < CONSUMER_SESSION_MS
assert CLIENT_HELLO_MS * 2 < CLIENT_SILENCE_MS < CONSUMER_LOST_US // 1000
assert PUSH_BYTES_MAX + CHUNK_BYTES < FRAME_BYTES_MAX
assert HEARTBEAT_MS < PAUSE_MS < LEADER_SILENCE_MS
