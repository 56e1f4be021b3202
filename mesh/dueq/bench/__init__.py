"""The measurements of `scripts/bench`. Not part of the public face.

figures      the figures that are measured, and their results; percentiles
growth       the same at several sizes: how costs grow
report       the tables and the JSON document; growth_table, plot: how costs grow; numbers: as people read them
machine      the machine on which the figures were measured
child        a task in a process of its own: the child's side
workers      the same, the parent's side
tasks        the work of such processes: produce, consume, call, move and cancel; crowd: very many consumers
stage        the tools of a measurement: fresh meshes, topics, workers, repetition
serving      waiting until a mesh serves (again); processes: the cost of one
bare, pushing, primitives                                        the machine's own limits
scheduling, delivering, lateness, altering, failover, far_ahead  the measurements
many_topics, many_partitions, many_consumers                     how the mesh grows
catalogue    all of them, in order
"""
