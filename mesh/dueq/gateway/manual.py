"""`/docs`: the API to look at and to try, without any network.

The page of FastAPI loads its program from elsewhere, and begins it by a script inside the page, which our content
policy forbids. So here is a page of our own over the files of fastapi-offline.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles

from dueq.gateway.guards import POLICY

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>dueq: HTTP API</title>
<link rel="icon" href="/docs/files/favicon.png">
<link rel="stylesheet" href="/docs/files/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<script src="/docs/files/swagger-ui-bundle.js"></script>
<script src="/docs/begin.js"></script>
</body>
</html>
"""
_SCRIPT: Final = """SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
});
"""
_STYLED: Final = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
"""The page's program writes styles into the page."""

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def page() -> Response:
    """The page."""
    return HTMLResponse(_PAGE, headers={"content-security-policy": _STYLED})


@router.get("/docs/begin.js")
async def script() -> Response:
    """Return the script that begins the page's program."""
    return Response(_SCRIPT, media_type="text/javascript")


def install(app: FastAPI) -> None:
    """Add the description, the page and its files.

    The description is made once, in a thread: that takes a second, in which others are served.
    """
    making = asyncio.Lock()

    @app.get("/openapi.json", include_in_schema=False)
    async def described() -> Response:
        async with making:
            return JSONResponse(await asyncio.to_thread(app.openapi))

    app.include_router(router)
    found = find_spec("fastapi_offline")
    assert found is not None
    assert found.origin is not None
    app.mount("/docs/files", StaticFiles(directory=Path(found.origin).parent / "static"))
