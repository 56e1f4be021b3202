"""The SDK: `Client` and `AsyncClient` over one pure session machine (`dueq.client.core`).

`core/` decides, `runtime.py` is the one I/O thread of a client, `sync.py` and `aio.py` are the two faces.
Importing this package imports nothing heavy; see `dueq` for the public names.
"""
