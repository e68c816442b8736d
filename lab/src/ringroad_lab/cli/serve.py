"""`ringroad-lab serve`: the web page."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringroad_lab.cli.request import user_name
from ringroad_lab.cli.rules import FleetFile
from ringroad_lab.cli.store_options import StoreOption, open_store
from ringroad_lab.errors import LabError

if TYPE_CHECKING:
    from ringroad_lab.store.result_store import ResultStore
    from ringroad_lab.web.settings import WebSettings


def serve(
    store: StoreOption = None,
    listen: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free port, which is printed.")] = 8080,
    public_read: Annotated[bool, typer.Option("--public-read", help="Reading needs no login.")] = False,
    host_name: Annotated[
        list[str] | None, typer.Option(help="Host name by which browsers reach the page; others are rejected. Can be repeated.")
    ] = None,
    cert: Annotated[Path | None, typer.Option(help="Certificate for HTTPS, PEM.")] = None,
    key: Annotated[Path | None, typer.Option(help="Key of the certificate, PEM.")] = None,
    login_proxy: Annotated[
        str, typer.Option(metavar="TOKEN_NAME", help="Users log in at a proxy, which sends the token of this name with each request.")
    ] = "",
    login_header: Annotated[str, typer.Option(help="Header in which that proxy names the logged-in user.")] = "X-Forwarded-User",
    fleet: FleetFile = None,
) -> None:
    """Serve results, trends, comparisons, testers' verdicts and requests to browsers; also a JSON API, and hooks for build systems."""
    # Imported here: the import is slow, and other verbs do not need it.
    import uvicorn

    from ringroad_lab.fleet.settings import load_fleet
    from ringroad_lab.web.application import make_application
    from ringroad_lab.web.connections import TimedHttp
    from ringroad_lab.web.settings import LOOPBACK_HOSTS, WebSettings
    from ringroad_lab.web.tokens import new_token, token_names

    if (cert is None) != (key is None):
        raise LabError("--cert and --key go together")
    for file in (cert, key):
        if file is not None and not file.is_file():
            raise LabError(f"{file}: no such file")
    fleet_settings = load_fleet(fleet)
    is_loopback = listen in LOOPBACK_HOSTS
    # Another site can resolve its own name to this machine's address, and make a browser read the page (DNS rebinding): hence the names.
    host_names = (*(host_name or ()), *(LOOPBACK_HOSTS if is_loopback else ()))
    settings = WebSettings(
        public_read=public_read,
        host_names=host_names if is_loopback or host_name else (),
        owner=user_name(),
        owner_token=new_token(),
        proxy_token_name=login_proxy,
        proxy_header=login_header,
        is_encrypted=cert is not None,
        hooks={name: hook for name, source in fleet_settings.sources.items() if (hook := source.hook(name))},
        rules=fleet_settings.rules,
        beds=fleet_settings.beds,
    )
    listener = _listen(listen, port)
    with listener, open_store(store) as results:
        if login_proxy and login_proxy not in token_names(results):
            raise LabError(f"there is no token {login_proxy!r}: `ringroad-lab token add {login_proxy}` creates it for the proxy")
        _report(listener, results, settings, is_loopback=is_loopback)
        config = uvicorn.Config(
            make_application(results, settings),
            http=TimedHttp,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            ssl_certfile=cert,
            ssl_keyfile=key,
            # The application has nothing to do at its start and end.
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=5,
        )
        try:
            config.load()
        except OSError as error:
            raise LabError(f"{cert}, {key}: not a certificate and its key in PEM ({error.strerror or error})") from error
        # Uvicorn raises the interrupt again after a clean shutdown.
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


def _listen(address: str, port: int) -> socket.socket:
    from ringroad_lab.web.connections import BoundedListener

    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        listener = BoundedListener(family)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            # The socket listens now, so that the reader of the printed address can connect at once.
            listener.listen(128)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise LabError(f"cannot listen on {address} port {port}: {why}; --listen and --port name another") from error
    return listener


def _report(listener: socket.socket, results: ResultStore, settings: WebSettings, *, is_loopback: bool) -> None:
    address, port = listener.getsockname()[:2]
    host = f"[{address}]" if ":" in address else address
    site = f"http{'s' if settings.is_encrypted else ''}://{host}:{port}/"
    if not is_loopback and not settings.is_encrypted:
        typer.echo("Tokens are sent unencrypted: give --cert and --key, or put a proxy with HTTPS in front.", err=True)
    typer.echo(f"Results of {results.location} at {site} until Ctrl-C")
    typer.echo(f"To log in as {settings.owner}: {site}login?token={settings.owner_token}")
