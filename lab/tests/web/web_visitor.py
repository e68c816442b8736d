"""A visitor of the web page, with an HTTP client instead of a browser."""

from __future__ import annotations

import re
import warnings
from html import unescape

from httpx import Response
from starlette.types import ASGIApp

with warnings.catch_warnings():
    # Starlette recommends a client that is not widely packaged yet.
    warnings.simplefilter("ignore", UserWarning)
    from starlette.testclient import TestClient

TESTER = "tester"
OWNER_TOKEN = "a token that cannot be guessed"


class WebVisitor:
    """Opens pages and sends forms."""

    def __init__(self, application: ASGIApp) -> None:
        """Open the application; redirects are not followed."""
        self.client = TestClient(application, follow_redirects=False)

    def get(self, path: str) -> Response:
        """Open a page."""
        response: Response = self.client.get(path)
        return response

    def form_values(self, path: str) -> dict[str, str]:
        """Return the hidden values of the forms of a page."""
        text = self.client.get(path).text
        return {unescape(name): unescape(value) for name, value in re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', text)}

    def log_in(self, token: str = OWNER_TOKEN, **values: str) -> Response:
        """Send the form of the login page."""
        response: Response = self.client.post("/login", data={**self.form_values("/login"), "token": token, **values})
        return response

    def review(self, run_id: str, **values: str) -> Response:
        """Send the form of a run's page."""
        shown = self.form_values(f"/runs/{run_id}")
        form = {"last_change": shown["last_change"], "verdict": "", "comment": "", "bug_link": ""}
        response: Response = self.client.post(f"/runs/{run_id}/review", data={**form, **values})
        return response
