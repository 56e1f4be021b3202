"""Keys in a simulated mesh: payloads with and without them, side by side, through leader and replay."""

from __future__ import annotations

from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.messages import Push
from dueq_codecs.meta import Meta, with_key
from dueq_codecs.records import RecordKind


def test_payloads_with_and_without_keys_never_share_a_record_and_keep_their_mark() -> None:
    """Requests that come together are gathered; a push says per row which of its payloads begin with a key."""
    stage = Stage()
    producer, consumer = stage.hand("producer"), stage.hand("consumer")
    pushes: list[Push] = []
    received = consumer.received

    def note(message: object, bodies: list[bytes | memoryview]) -> None:
        if isinstance(message, Push):
            pushes.append(message)
        received(message, bodies)  # type: ignore[arg-type]

    consumer.received = note  # type: ignore[method-assign]
    due = stage.now_ms + 5_000
    stage.step("four requests in one turn of the leader")
    stage.nodes["b1"].pause(50_000)
    stored = [b"plain", with_key(b"name", b"one"), with_key(b"", b"two"), b"again"]
    requests = [
        producer.insert("b1", [payload], [due], keyed=Meta.KEY if number in (1, 2) else Meta.NONE)
        for number, payload in enumerate(stored)
    ]
    for request in requests:
        stage.settled(producer, request)
    log = [stage.replica("b1").replica.log.get(sequence) for sequence in range(1, 20)]
    inserts = [entry.record for entry in log if entry is not None and entry.record.kind == RecordKind.INSERT]
    stage.expect(all(len({record.keyed}) == 1 for record in inserts), "one kind each")
    stage.expect(sum(record.rows for record in inserts if record.keyed) == 2, "two rows with keys")

    stage.step("another leader pushes them")
    stage.nodes["b1"].crash()
    stage.until(lambda: stage.leader_of(stage.uid), "a leader")
    consumer.attach(stage.leader)
    consumer.stay()
    stage.delivered(consumer, *[message for request in requests for message in request.stored()])
    found = {}
    for push in pushes:
        for row, sequence in enumerate(push.sequence.tolist()):
            found[sequence, int(push.row[row])] = bool(push.keyed[row]) if len(push.keyed) else False
    marks = [found[message.key[1:]] for request in requests for message in request.stored()]
    stage.expect(marks == [False, True, True, False], f"the marks, not {marks}")
    stage.nodes["b1"].start()
    stage.finish()
