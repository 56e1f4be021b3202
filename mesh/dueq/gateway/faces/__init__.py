"""APIs of other systems, spoken over the same service as `/v1`: one folder each, nothing of them elsewhere."""
