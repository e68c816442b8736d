"""Guards all pages: refuses forms of other sites, limits the size of requests, and sets the security headers for browsers."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringroad_lab.request.message import MAX_PAYLOAD_BYTES

MAX_FORM_BYTES = 128 * 1024
MAX_RECORD_BYTES = 64 * 1024 * 1024
RECORD_PATH = "/api/runs"
HOOKS_PATH = "/hooks/"

# Methods that change nothing (RFC 9110, 9.2.1).
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

# Scripts and styles are files of this server.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
# The chart library adds a style element.
CHART_SECURITY_POLICY = CONTENT_SECURITY_POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
# A report contains its scripts. The sandbox treats it as another site: it has no cookie, and cannot reach this server.
REPORT_SECURITY_POLICY = (
    "sandbox allow-scripts allow-downloads allow-modals; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class HttpGuard:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, host_names: Collection[str] = ()) -> None:
        """Take the application, and the host names that requests are allowed to use; empty: all."""
        self._app = app
        self._host_names = frozenset(name.lower() for name in host_names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._host_names and _host_name(Headers(scope=scope).get("host", "")) not in self._host_names:
            text = "Unknown host name. The server's option --host-name sets its names.\n"
            await PlainTextResponse(text, 400)(scope, receive, send)
            return
        if scope["method"] not in _SAFE_METHODS and _is_from_another_site(Headers(scope=scope)):
            text = "Another site sent this form. Open the page of this server, and send the form again.\n"
            await PlainTextResponse(text, 403)(scope, receive, send)
            return
        limit = _limit(scope["path"])
        read = 0

        async def receive_limited() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise HTTPException(413, f"the request is larger than {limit} bytes")
            return message

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.setdefault("X-Frame-Options", "DENY")
                headers.setdefault("Referrer-Policy", "same-origin")
                headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
                headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._app(scope, receive_limited, send_guarded)
        except ClientDisconnect:
            # Nobody waits for an answer, and a log that strangers can fill helps nobody.
            return


def _limit(path: str) -> int:
    """Return the maximum size of a request, bytes."""
    if path.startswith(HOOKS_PATH):
        return MAX_PAYLOAD_BYTES
    return MAX_RECORD_BYTES if path == RECORD_PATH else MAX_FORM_BYTES


def _is_from_another_site(headers: Headers) -> bool:
    """Return whether a browser reports that a page of another site sent this request. Other programs do not report this."""
    # https://www.w3.org/TR/fetch-metadata/; browsers before 2023 have only the other header.
    if (site := headers.get("sec-fetch-site")) is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    try:
        return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        return True


def _host_name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
