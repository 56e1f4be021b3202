"""What brokers tell of endpoints."""

from __future__ import annotations

from dueq.core.front import endpoint_documents
from dueq.core.ports.membership import PartitionAssignment, Topic
from dueq_codecs.topic_settings import TopicSettings


def test_an_endpoint_is_told_with_the_uid_of_its_topic_since_versions_begin_anew_with_another_one() -> None:
    settings = TopicSettings(version=3, endpoint={"name": "billing"})
    topic = Topic("bills", "c1", "due", (PartitionAssignment(9, ("b1",)),), 1, 1, settings)
    [told] = endpoint_documents.page({"bills": topic}, "")["endpoints"]
    assert (told["topic"], told["uid"], told["version"]) == ("bills", 9, 3)
