"""Producers and consumers in processes of their own; all that they do is recorded."""
