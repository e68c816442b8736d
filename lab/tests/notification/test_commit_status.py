"""Setting the status of a commit, with a real HTTP server that answers like the forges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError
from receivers import HttpReceiver, http_receiver

from fabricated_runs import fabricated_run
from ringroad_lab.notification.commit_status import CommitStatus
from ringroad_lab.notification.delivery import notify, targets
from ringroad_lab.notification.github import GithubStatus
from ringroad_lab.notification.gitlab import GitlabStatus
from ringroad_lab.notification.message import Notice, Stage
from ringroad_lab.record import RunRecord, RunState

COMMIT = "C0FFEE00" * 5
RUN = fabricated_run(run_id="run-of-a-commit", name="BRIDGE_VETH", frames=["64"], latency=False)


@pytest.fixture
def forge() -> Iterator[HttpReceiver]:
    with http_receiver(HttpReceiver(statuses=[201])) as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "the-token")


def run(commit: str = COMMIT, repository: str = "example/switch", **update: object) -> RunRecord:
    return RUN.model_copy(update={"labels": {"commit": commit, "repository": repository}, **update})


def settings(kind: type[CommitStatus], forge: HttpReceiver, **more: Any) -> CommitStatus:  # noqa: ANN401
    return kind.model_validate({"api_url": forge.url.partition("/hook")[0], "token_env": "TOKEN", "within_s": 2, **more})


def problems_of(notifier: CommitStatus, notice: Notice) -> list[str]:
    return notify(targets([notifier]), notice, first_wait_s=0.01)


def bodies(forge: HttpReceiver) -> list[dict[str, Any]]:
    return [json.loads(body) for _, _, body in forge.got]


def test_github_gets_the_state_and_the_link_to_the_run(forge: HttpReceiver) -> None:
    notifier = settings(GithubStatus, forge, web_url="https://lab.example/")

    assert problems_of(notifier, Notice(run(), outcome="measured")) == []

    ((path, headers, _),) = forge.got
    assert path == f"/repos/example/switch/statuses/{COMMIT.lower()}"
    assert headers["authorization"] == "Bearer the-token"
    assert headers["x-github-api-version"] == "2022-11-28"
    assert bodies(forge) == [
        {
            "state": "success",
            "context": "ringroad-lab/BRIDGE_VETH",
            "description": "finished",
            "target_url": "https://lab.example/runs/run-of-a-commit",
        }
    ]


def test_the_url_for_gitlab_contains_the_path_of_the_repository(forge: HttpReceiver) -> None:
    assert problems_of(settings(GitlabStatus, forge), Notice(run(repository="group/sub/switch"), outcome="regression")) == []

    ((path, headers, _),) = forge.got
    assert path == f"/projects/group%2Fsub%2Fswitch/statuses/{COMMIT.lower()}"
    assert headers["private-token"] == "the-token"
    assert bodies(forge) == [{"state": "failed", "name": "ringroad-lab/BRIDGE_VETH", "description": "finished"}]


@pytest.mark.parametrize(
    ("notice", "github", "gitlab"),
    [
        (Notice(run(), stage=Stage.QUEUED), "pending", "pending"),
        (Notice(run(), stage=Stage.RUNNING), "pending", "running"),
        (Notice(run(), outcome="no difference"), "success", "success"),
        (Notice(run(), outcome="improvement"), "success", "success"),
        (Notice(run(), outcome="inconclusive"), "success", "success"),
        (Notice(run(), outcome="regression"), "failure", "failed"),
        (Notice(run(), outcome="measured"), "success", "success"),
        (Notice(run(), outcome="a verdict that is none of a comparison"), "failure", "failed"),
        (Notice(run(), outcome="invalid"), "error", "failed"),
        (Notice(run(state=RunState.FAILED)), "error", "failed"),
        (Notice(run(), stage=Stage.ERROR, outcome="dead", reason="no disk"), "error", "failed"),
        (Notice(run(), stage=Stage.ERROR, outcome="cancelled"), "error", "canceled"),
        (Notice(run(), stage=Stage.ERROR, outcome="superseded"), "error", "canceled"),
    ],
)
def test_each_result_has_its_state(forge: HttpReceiver, notice: Notice, github: str, gitlab: str) -> None:
    for kind in (GithubStatus, GitlabStatus):
        assert settings(kind, forge).concerns(notice)
        assert problems_of(settings(kind, forge), notice) == []
    assert [body["state"] for body in bodies(forge)] == [github, gitlab]


def test_an_inconclusive_result_fails_if_this_is_set(forge: HttpReceiver) -> None:
    assert problems_of(settings(GithubStatus, forge, fail_on_inconclusive=True), Notice(run(), outcome="inconclusive")) == []
    assert bodies(forge)[0]["state"] == "failure"


def test_a_description_is_cut_to_githubs_limit(forge: HttpReceiver) -> None:
    problems_of(settings(GithubStatus, forge), Notice(run(), stage=Stage.ERROR, outcome="dead\n" + "x" * 200))
    assert len(bodies(forge)[0]["description"]) == 140
    assert "\n" not in bodies(forge)[0]["description"]


def test_only_commits_of_configured_repositories_get_a_status(forge: HttpReceiver) -> None:
    notifier = settings(GithubStatus, forge, repositories=["example/*"])
    assert notifier.concerns(Notice(run()))
    assert not notifier.concerns(Notice(run(repository="other/switch")))
    assert not notifier.concerns(Notice(run(repository="")))
    assert not notifier.concerns(Notice(run(commit="")))
    assert not notifier.concerns(Notice(RUN))


@pytest.mark.parametrize("repository", ["example", "a/b/c", "../orgs", "example/..", "example/.", "a/b?x=1", "a/b#c", "a%2Fb/c", "a/b\nc"])
def test_an_invalid_repository_label_is_reported(forge: HttpReceiver, repository: str) -> None:
    (problem,) = problems_of(settings(GithubStatus, forge), Notice(run(repository=repository)))
    assert "label repository is not a repository" in problem
    assert forge.got == []


@pytest.mark.parametrize("commit", ["main", "c0ffee", "../" * 14, f"{COMMIT}/x"])
def test_an_invalid_commit_label_is_reported(forge: HttpReceiver, commit: str) -> None:
    (problem,) = problems_of(settings(GithubStatus, forge), Notice(run(commit=commit)))
    assert "is not a commit" in problem
    assert forge.got == []


def test_the_answer_of_the_forge_is_reported_without_the_token(forge: HttpReceiver) -> None:
    forge.statuses, forge.body_answered = [422], b'{"message":"No commit found for SHA: c0ffee"}'
    (problem,) = problems_of(settings(GithubStatus, forge), Notice(run()))
    assert "GitHub answers with status 422" in problem
    assert "No commit found" in problem
    assert "the-token" not in problem
    assert len(forge.got) == 1


def test_an_exceeded_rate_limit_causes_a_retry(forge: HttpReceiver) -> None:
    forge.statuses, forge.headers_answered = [403, 201], {"X-RateLimit-Remaining": "0"}
    assert problems_of(settings(GithubStatus, forge), Notice(run())) == []
    assert len(forge.got) == 2
    # Without a rate limit, status 403 is permanent.
    forge.statuses, forge.headers_answered = [403], {}
    (problem,) = problems_of(settings(GithubStatus, forge), Notice(run()))
    assert "status 403" in problem
    assert len(forge.got) == 3


def test_a_status_that_gitlab_already_has_counts_as_delivered(forge: HttpReceiver) -> None:
    refusal = '{{"message":"Cannot transition status via :{} from :{} (Reason(s): Status cannot transition via \\"{}\\")"}}'
    forge.statuses, forge.body_answered = [400], refusal.format("enqueue", "pending", "enqueue").encode()
    assert problems_of(settings(GitlabStatus, forge), Notice(run(), stage=Stage.QUEUED)) == []
    (problem,) = problems_of(settings(GitlabStatus, forge), Notice(run(), stage=Stage.RUNNING))
    assert "Cannot transition" in problem


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"token_file": "/x"}, "one of token_file and token_env"),
        ({"token_env": None}, "one of token_file and token_env"),
        ({"api_url": "http://forge.example/api"}, "unencrypted"),
        ({"repositories": []}, "repositories"),
    ],
)
def test_invalid_settings_are_reported(forge: HttpReceiver, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        settings(GithubStatus, forge, **more)
