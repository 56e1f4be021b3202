"""Golden frames: what travels and what is kept, byte for byte, for tests and for writers of other clients."""
