"""The gateway: HTTP for everybody who does not write Python, and for everybody who wants to look.

A gateway is a process of its own (`dueq gateway`) and a client of the mesh. There may be any number of them, and none
holds anything that another could not take over. `app` puts it together, `service` has the verbs that every face calls,
`v1` is the native API. Needs `pip install 'dueq[gateway]'`.
"""
