"""The gateway: HTTP for everybody who does not write Python, and for everybody who wants to look.

A process of its own (`dueq gateway`), any number of them, none of which holds anything that another could not take
over: it is a client of the mesh. `app` puts it together, `service` has the verbs that every face calls, `v1` is the
native API. Needs `pip install 'dueq[gateway]'`.
"""
