"""Webhooks: the messages of topics with an endpoint, sent to its URL (docs/explanation/gateway.md)."""
