"""Sets the status of a commit at GitLab."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import quote

from ringroad_lab.notification.commit_status import CommitStatus, Status
from ringroad_lab.notification.http import Answer
from ringroad_lab.notification.message import Notice
from ringroad_lab.text_types import Word

_STATES = {
    Status.QUEUED: "pending",
    Status.RUNNING: "running",
    Status.SUCCESS: "success",
    Status.FAILURE: "failed",
    Status.ERROR: "failed",
    Status.CANCELLED: "canceled",
}
# GitLab rejects a state that the commit already has, for example after a lost answer.
_NO_TRANSITION = re.compile(rb"Cannot transition status via :\w+ from :(\w+)")


class GitlabStatus(CommitStatus):
    """https://docs.gitlab.com/api/commits/#set-commit-pipeline-status."""

    title = "Sets the status of a commit at GitLab"
    forge = "GitLab"

    api_url: Word = "https://gitlab.com/api/v4"

    def headers(self, token: str) -> Mapping[str, str]:
        """Return the HTTP headers that GitLab requires."""
        return {"PRIVATE-TOKEN": token}

    def message(self, notice: Notice, repository: str, commit: str) -> tuple[str, bytes]:
        """Return the path below the API's URL, and the body."""
        values = {"state": _STATES[self.status(notice)], "name": self.title_of(notice), "description": self.description(notice)}
        link = self.link(notice)
        return f"projects/{quote(repository, safe='')}/statuses/{commit}", json.dumps(
            values | ({"target_url": link} if link else {})
        ).encode()

    def is_there(self, notice: Notice, answer: Answer) -> bool:
        """Return whether GitLab rejected the status because the commit already has it."""
        found = _NO_TRANSITION.search(answer.body) if answer.status == 400 else None
        return found is not None and found[1].decode() == _STATES[self.status(notice)]
