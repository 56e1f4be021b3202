"""The SDK: `Client` and `AsyncClient` over one pure session machine (`dueq.client.core`).

`core/` decides, `runtime.py` is the one I/O thread of a client, `aio/` and `sync/` are the two
faces, the second made of the first (`scripts/generate-faces`).
Importing this package imports nothing heavy; see `dueq` for the public names.
"""
