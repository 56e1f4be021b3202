"""A broker as a process with files: what it has written and synced, and what a power cut leaves of that."""
