"""Sets the status of a commit at GitHub."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ringroad_lab.notification.commit_status import CommitStatus, Status
from ringroad_lab.notification.interface import UnsentError
from ringroad_lab.notification.message import Notice
from ringroad_lab.text_types import Word

_STATES = {
    Status.QUEUED: "pending",
    Status.RUNNING: "pending",
    Status.SUCCESS: "success",
    Status.FAILURE: "failure",
    Status.ERROR: "error",
    Status.CANCELLED: "error",
}


class GithubStatus(CommitStatus):
    """https://docs.github.com/en/rest/commits/statuses."""

    title = "Sets the status of a commit at GitHub"
    forge = "GitHub"

    api_url: Word = "https://api.github.com"

    def headers(self, token: str) -> Mapping[str, str]:
        """Return the HTTP headers that GitHub requires."""
        return {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}

    def message(self, notice: Notice, repository: str, commit: str) -> tuple[str, bytes]:
        """Return the path below the API's URL, and the body."""
        if repository.count("/") != 1:
            raise UnsentError("the label repository is not a repository of GitHub: use OWNER/NAME")
        values = {"state": _STATES[self.status(notice)], "context": self.title_of(notice), "description": self.description(notice)}
        link = self.link(notice)
        return f"repos/{repository}/statuses/{commit}", json.dumps(values | ({"target_url": link} if link else {})).encode()
