"""The nemesis: a real mesh (processes, ZooKeeper, disks, sockets) under faults and traffic, and a verdict.

plan        the faults and their instants, from a scenario or a seed; pure data
machine     which faults this machine allows, and why not the others
target      the mesh under test: brokers behind wires that can be cut, disks that can fill, clocks that can jump
faults      each begins and ends; whatever happens, it is undone
conductor   plays a plan on a target
traffic     producers and consumers in processes of their own, every operation recorded
report      one page: faults above delivered rate and lateness, and the verdict
"""
