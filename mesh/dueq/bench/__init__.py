"""The measurements of `scripts/bench`. Not part of the public face.

figures      what is measured and how it came out; percentiles
growth       the same at several sizes: how costs grow
report       the tables and the JSON document; growth_table, plot: how costs grow; numbers: as people read them
machine      what the figures were measured on
child        a task in a process of its own: the child's side
workers      the same, the parent's side
tasks        what such processes do: produce, consume, call, move and cancel; crowd: very many consumers
stage        what a measurement works with: fresh meshes, topics, workers, repetition
serving      until a mesh serves (again); processes: what one costs
bare, pushing, primitives                                        the machine's own limits
scheduling, delivering, lateness, altering, failover, far_ahead  the measurements
many_topics, many_partitions, many_consumers                     how the mesh grows
catalogue    all of them, in order
"""
