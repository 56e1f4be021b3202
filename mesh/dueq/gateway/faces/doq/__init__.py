"""doq's HTTP API (kgantsov/doq): its queues are topics with unique keys, its messages are named by numbers.

    queues, messages, cluster (routes) ─► verbs ─► queue (a topic), number (ids) ─► service

Leases are detached, and belong to nobody: any client that knows a message's number may settle it.
"""

from dueq.gateway.faces.doq import cluster, messages, queues

__all__ = ["cluster", "messages", "queues"]
