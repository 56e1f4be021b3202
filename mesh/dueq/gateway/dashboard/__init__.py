"""The dashboard: pages for a person, live, over the same service as every face.

    AsyncClient ─► snapshot ─► history, alarms ─► feed ─► views ─► every open page (server-sent events)

One snapshot of the mesh a second at most serves all open pages; none is taken while nobody looks.
"""
