"""`dueq gateway`."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

import click

from dueq.cli.options import endpoints
from dueq.errors import DueqError
from dueq.sealing import Keys

EXTRA: Final = "pip install 'dueq[gateway]'"


_NAME: Final = re.compile(r"\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+")
"""What a request's `Host` may name, without a port."""


class GatewayMissing(DueqError):
    """The packages of the gateway are not installed."""


def _names(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    for name in given:
        if not _NAME.fullmatch(name):
            raise click.BadParameter(
                f"{name!r:.80} is no name of a host, such as mesh.example.net; it has no port and no http://"
            )
    return given


@click.command()
@click.option(
    "--listen", default="127.0.0.1:7480", show_default=True, metavar="HOST:PORT",
    help="Where to listen, on the loopback. Port 0: any free port.",
)  # fmt: skip
@click.option(
    "--endpoint", "-e", "given", multiple=True, metavar="tcp://HOST:PORT",
    help="A broker; may be given several times. Default: DUEQ_ENDPOINTS, else tcp://127.0.0.1:7400.",
)  # fmt: skip
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", callback=_names,
    help="A name by which clients may call it, besides localhost; may be given several times.",
)  # fmt: skip
@click.option("--read-only", is_flag=True, help="Refuse whatever changes or delivers something.")
@click.option(
    "--webhook-allow", "allowed", multiple=True, metavar="CIDR", envvar="DUEQ_WEBHOOK_ALLOW",
    help="A network to which webhooks may go, besides public addresses; may be given several times.",
)  # fmt: skip
@click.option(
    "--secrets-key-file", type=click.Path(dir_okay=False, path_type=Path), envvar="DUEQ_SECRETS_KEY_FILE",
    help="The brokers' keys that open the secrets of endpoints; or DUEQ_SECRETS_KEY.",
)  # fmt: skip
@click.option(
    "--oidc-issuer", default="", metavar="URL", envvar="DUEQ_OIDC_ISSUER",
    help="Issue tokens for tasks of Cloud Tasks with an oidcToken, under this URL: receivers fetch the keys below it.",
)  # fmt: skip
@click.option(
    "--oidc-key-file", type=click.Path(dir_okay=False, path_type=Path), envvar="DUEQ_OIDC_KEY_FILE",
    help="RSA private keys (PEM) for that, the same for all gateways. The first one signs, all are published.",
)  # fmt: skip
@click.option(
    "--doq-errors", type=click.Choice(["legacy", "new"]), default="legacy", show_default=True,
    help="HTTP statuses of errors in doq's API: 400 and 409 as until July 2026, or 404 and 422 as since then.",
)  # fmt: skip
@click.option(
    "--doq-grpc", default="", metavar="HOST:PORT",
    help="Serve doq's gRPC API there, on the loopback, such as 127.0.0.1:10000; needs dueq[grpc].",
)  # fmt: skip
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True,
    help="The least severe lines to log.",
)  # fmt: skip
def gateway(
    listen: str,
    given: tuple[str, ...],
    hosts: tuple[str, ...],
    read_only: bool,
    allowed: tuple[str, ...],
    secrets_key_file: Path | None,
    oidc_issuer: str,
    oidc_key_file: Path | None,
    doq_errors: Literal["legacy", "new"],
    doq_grpc: str,
    log_level: str,
) -> int:
    """Serve the mesh by HTTP until SIGINT or SIGTERM: the dashboard at /, the API at /v1, its description at /docs.

    Prints `ready` and its address. It listens on the loopback only, because it asks nobody who they are.
    """
    chosen = endpoints(given)
    try:
        from dueq.gateway import serving
    except ModuleNotFoundError as error:
        raise GatewayMissing(f"the gateway needs the package {error.name}: {EXTRA}") from error
    if doq_grpc and find_spec("grpc") is None:
        raise GatewayMissing("doq's gRPC API needs the package grpcio: pip install 'dueq[grpc]'")
    listener = serving.listening(listen)
    return serving.run(
        listener, chosen, hosts, allowed, log_level, lambda url: click.echo(f"ready {url}"), read_only,
        doq_errors, doq_grpc, Keys.load(os.environ.get("DUEQ_SECRETS_KEY", ""), secrets_key_file),
        oidc_issuer, oidc_key_file,
    )  # fmt: skip
