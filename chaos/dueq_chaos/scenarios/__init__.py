"""Building blocks of named scenarios: a simulated mesh that a script leads through one situation step by step."""
