"""A broker as a process with files: its writes and syncs, and the part of them that a power cut leaves."""
