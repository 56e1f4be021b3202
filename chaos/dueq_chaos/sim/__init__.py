"""A world in one thread: simulated clocks, network, disks and coordinator around the real broker cores."""
