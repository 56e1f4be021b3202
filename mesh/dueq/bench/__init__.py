"""What this machine carries: the figures of `scripts/bench`. Not part of the public face.

figures      what is measured and how it came out; percentiles
report       the table and the JSON document
machine      what the figures were measured on
child        a task in a process of its own: the child's side
workers      the same, the parent's side
tasks        what such processes do: produce, consume, call, move and cancel
stage        what a measurement works with: fresh meshes, topics, workers, repetition
bare, primitives                                                 the machine's own limits
scheduling, delivering, lateness, altering, failover, far_ahead  the measurements
catalogue    all of them, in order
"""
