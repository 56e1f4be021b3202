"""Cloud Tasks v2 (REST): its queues are topics, its tasks are messages, and this gateway sends them.

    queues, tasks (routes) ─► names, wire, queue, task (documents) ─► service
                                                     ▲
    dispatching: a consumer per queue ───────────────┘ ─► the sender of webhooks
        issuer: tokens that say who sends

The protocol: https://cloud.google.com/tasks/docs/reference/rest (v2).
"""

from dueq.gateway.faces.cloud_tasks import issuer, queues, tasks

__all__ = ["issuer", "queues", "tasks"]
