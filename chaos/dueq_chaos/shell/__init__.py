"""The broker as a process among files: what it has written and synced, and what a power cut leaves of that."""
