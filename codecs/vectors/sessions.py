"""Hellos, metadata, topics, and what else a session asks for."""

from __future__ import annotations

import dataclasses

from dueq_codecs import messages as m
from vectors.pieces import AT, CLIENT, settings


def sessions() -> dict[str, tuple[m.Message, list[bytes]]]:
    """Return them, by the names of their files."""
    partitions = (
        m.PartitionInfo(12, "north", 5, True, ("north", "south", "west")),
        m.PartitionInfo(13, "", 0, False, ("south",)),
    )
    topics = (
        m.TopicInfo("flights", "timeline", 3, 2, 1 << 20, 0, partitions),
        m.TopicInfo("empty", "timeline", 1, 1, 1 << 26, 86_400_000),
    )
    brokers = (
        m.BrokerInfo("north", "tcp://192.0.2.1:7411", 11),
        m.BrokerInfo("süd", "tcp://[2001:db8::1]:7411"),
    )
    return {
        "hello": (
            m.Hello(m.Role.CLIENT, CLIENT.hex(), "c-1", 3, 4, 1, 1, AT * 1000, "dueq 0.1.0", "anna"),
            [],
        ),
        "hello_reply": (
            m.HelloReply(
                m.Code.OK, "", "c-1", "north", 11, 1, 1, AT * 1000, AT * 1000 + 90, AT * 1000 + 95, -40
            ),
            [],
        ),
        "metadata_request": (m.MetadataRequest(1, "flights"), []),
        "metadata_reply": (m.MetadataReply(1, m.Code.OK, "", brokers, topics), []),
        "create_topic_request": (
            m.CreateTopicRequest(2, CLIENT, "flights", "timeline", 8, 3, 2, 1 << 20, 86_400_000, True),
            [],
        ),
        "create_topic_request_settings": (
            m.CreateTopicRequest(2, CLIENT, "flights", "priority", 1, 3, document='{"max_attempts":5}'),
            [],
        ),
        "create_topic_unique": (
            m.CreateTopicRequest(
                2, CLIENT, "flights", replicas=3, document='{"keys":"unique","remember_ms":3600000}'
            ),
            [],
        ),
        "delete_topic_request": (m.DeleteTopicRequest(3, "flights"), []),
        "delete_topic_request_uid": (m.DeleteTopicRequest(3, "flights", 12), []),
        "update_topic_request": (
            m.UpdateTopicRequest(3, CLIENT, "flights", 2, '{"paused":true}', 12),
            [],
        ),
        "update_topic_request_uid": (
            m.UpdateTopicRequest(3, CLIENT, "flights", 2, '{"paused":true}', 0, 12),
            [],
        ),
        "metadata_reply_settings": (
            m.MetadataReply(
                1,
                m.Code.OK,
                topics=(dataclasses.replace(topics[0], settings=settings(), home_partitions=1),),
            ),
            [],
        ),
        "inspect_request": (m.InspectRequest(4, "forecast", "flights", 3600), []),
        "inspect_request_to_another": (m.InspectRequest(4, "status", broker="b2"), []),
        "reply": (m.Reply(4, m.Code.BUSY, "später", '{"due": [1, 2]}', 250), []),
    }
