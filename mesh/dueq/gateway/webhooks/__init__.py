"""Webhooks: the messages of topics with an endpoint, sent to its URL (see ARCHITECTURE.md)."""
