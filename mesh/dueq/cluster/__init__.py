"""The coordinator: which brokers are alive, and which of them lead what.

`coordinator.py` is its port; `zookeeper.py` is ZooKeeper through kazoo, `standalone.py` the stand-in for a mesh of one
broker, `server.py` a real ZooKeeper process for local meshes and tests.
"""
