"""Recurrences: what one says, whether that can be, and at which instants it fires. Clients and brokers share it."""
