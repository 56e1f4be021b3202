"""Cloud Tasks v2 (REST): its queues are topics, its tasks are messages, and this gateway sends them.

    queues, tasks (routes) ─► names, wire, queue, task (documents) ─► service
                                                     ▲
    dispatching: a consumer per queue ───────────────┘ ─► the sender of webhooks
        issuer: tokens that say who sends
    refusals: what the gateway answers before or beside the routes, in the words of this protocol

The protocol: https://cloud.google.com/tasks/docs/reference/rest (v2).
"""

from dueq.gateway.faces.cloud_tasks import issuer, queues, refusals, tasks

__all__ = ["issuer", "queues", "refusals", "tasks"]
