"""Notifications, sent to real servers on this machine."""

from __future__ import annotations

import email
import email.policy
import hashlib
import hmac
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from receivers import ADDRESS, HttpReceiver, MailReceiver, http_receiver, mail_receiver, write_certificate
from typer.testing import CliRunner

from fabricated_runs import EPOCH, fabricated_run, fabricated_throughput
from ringroad_lab.cli.main import make_app
from ringroad_lab.cli.notify import without_secrets
from ringroad_lab.comparison import compare_runs
from ringroad_lab.errors import LabError, ScenarioError
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.notification.delivery import notify, targets
from ringroad_lab.notification.mail import Mail
from ringroad_lab.notification.message import Notice, Occasion, Stage
from ringroad_lab.notification.settings import read_notifications
from ringroad_lab.notification.webhook import Webhook
from ringroad_lab.record import MeasurementStatus, RunState
from ringroad_lab.store.result_store import ResultStore

OLD = fabricated_run(run_id="old-run", name="OLD", capacities_fps={"ovs": 1e6}, frames=["64"], repetitions=12, latency=False)
NEW = fabricated_run(
    run_id="new-run",
    name="NEW\nSubject: forged",
    capacities_fps={"ovs": 0.8e6},
    frames=["64"],
    repetitions=12,
    seed=2,
    started_at=EPOCH + 1e6,
    latency=False,
)


@pytest.fixture
def notice(tmp_path: Path) -> Notice:
    """A run with a regression."""
    with ResultStore(str(tmp_path / "results.db")) as store:
        store.add_runs([OLD, NEW])
        store.keep_comparison(OLD.run_id, NEW.run_id, compare_runs(OLD, NEW))
        return Notice(NEW, store.comparisons(NEW.run_id)[0])


@pytest.fixture
def hook() -> Iterator[HttpReceiver]:
    """An HTTP server."""
    with http_receiver(HttpReceiver()) as receiver:
        yield receiver


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of this machine, with its key."""
    return write_certificate(tmp_path_factory.mktemp("tls") / "certificate.pem")


@pytest.fixture
def post(certificate: Path) -> Iterator[MailReceiver]:
    """A mail server that requires a password."""
    with mail_receiver(MailReceiver(), certificate, password="secret-password") as receiver:
        yield receiver


def problems_of(notice: Notice, *, webhook: dict[str, Any] | None = None, mail: dict[str, Any] | None = None) -> list[str]:
    """Send a notice to the configured recipients; return the errors."""
    notifiers = [*([Webhook.model_validate(webhook)] if webhook else []), *([Mail.model_validate(mail)] if mail else [])]
    return notify(targets(notifiers), notice, first_wait_s=0.01)


def mail_to(receiver: MailReceiver, certificate: Path, **more: object) -> dict[str, Any]:
    return {
        "server": ADDRESS,
        "port": receiver.port,
        "ca_file": certificate,
        "user": "lab",
        "password_env": "MAIL_PASSWORD",
        "sender": "lab@example.org",
        "to": ["a@example.org", "b@example.org"],
        **more,
    }


def test_a_webhook_gets_signed_json(hook: HttpReceiver, notice: Notice, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("shared secret\n")

    assert problems_of(notice, webhook={"url": hook.url, "secret_file": tmp_path / "secret"}) == []

    ((path, headers, body),) = hook.got
    assert path == "/hook?token=in-the-url"
    signature = hmac.new(b"shared secret", body, hashlib.sha256).hexdigest()
    assert headers["x-ringroad-lab-signature-256"] == f"sha256={signature}"
    assert headers["content-type"] == "application/json"
    content = json.loads(body)
    assert (content["run_id"], content["occasions"]) == (NEW.run_id, ["regression"])
    assert (content["stage"], content["verdict"], content["request"]) == ("complete", "regression", None)
    assert content["comparison"]["counts"] == {"regression": 1}
    assert "Regression: Throughput of ovs, P2P, 64 bytes: \u2212" in content["text"]
    assert "\u202f%" in content["text"]


def test_a_webhook_without_a_secret_is_not_signed(hook: HttpReceiver, notice: Notice) -> None:
    assert problems_of(notice, webhook={"url": hook.url}) == []
    assert "x-ringroad-lab-signature-256" not in hook.got[0][1]


def test_a_temporary_error_causes_a_retry_with_the_same_delivery(hook: HttpReceiver, notice: Notice) -> None:
    hook.statuses = [503, 429, 204]

    assert problems_of(notice, webhook={"url": hook.url}) == []

    assert len(hook.got) == 3
    assert len({(headers["x-ringroad-lab-delivery"], body) for _, headers, body in hook.got}) == 1


@pytest.mark.parametrize(("status", "more"), [(400, {}), (404, {}), (302, {"Location": "http://127.0.0.1:1/"})])
def test_a_permanent_error_causes_no_retry(hook: HttpReceiver, notice: Notice, status: int, more: dict[str, str]) -> None:
    hook.statuses, hook.headers_answered = [status], more

    (problem,) = problems_of(notice, webhook={"url": hook.url})

    assert f"status {status}" in problem
    assert "token" not in problem
    assert len(hook.got) == 1


def test_a_requested_wait_beyond_the_time_limit_ends_the_tries(hook: HttpReceiver, notice: Notice) -> None:
    hook.statuses, hook.headers_answered = [503], {"Retry-After": "3600"}

    assert "status 503 (1 try)" in problems_of(notice, webhook={"url": hook.url})[0]
    assert len(hook.got) == 1


def test_a_server_that_never_answers_does_not_block_the_caller(hook: HttpReceiver, notice: Notice) -> None:
    hook.is_silent = True

    (problem,) = problems_of(notice, webhook={"url": hook.url, "within_s": 0.3})

    assert "in time" in problem or "timed out" in problem
    assert hook.got


def test_an_unavailable_server_is_reported_without_the_secret_of_its_url(notice: Notice) -> None:
    with socket.create_server((ADDRESS, 0)) as free:
        port = free.getsockname()[1]

    (problem,) = problems_of(notice, webhook={"url": f"http://user:secret@{ADDRESS}:{port}/secret?secret", "within_s": 3.0})

    assert "cannot be reached" in problem
    assert "secret" not in problem


def test_an_unavailable_server_does_not_affect_other_recipients(hook: HttpReceiver, notice: Notice) -> None:
    notifiers = (Webhook.model_validate({"url": "http://127.0.0.1:1/", "within_s": 0.2}), hooked(hook))

    (problem,) = notify(targets(notifiers), notice, first_wait_s=0.01)

    assert ":1: " in problem
    assert len(hook.got) == 1


def hooked(hook: HttpReceiver) -> Webhook:
    return Webhook.model_validate({"url": hook.url})


def test_a_mail_is_sent_encrypted_with_a_password(
    post: MailReceiver, certificate: Path, notice: Notice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", "secret-password")

    assert problems_of(notice, mail=mail_to(post, certificate)) == []

    assert post.logins == [(b"lab", b"secret-password")]
    (envelope,) = post.got
    assert (envelope.mail_from, envelope.rcpt_tos) == ("lab@example.org", ["a@example.org", "b@example.org"])
    assert isinstance(envelope.content, bytes)
    message = email.message_from_bytes(envelope.content, policy=email.policy.default)
    assert message.get_all("Subject") == ["NEW\ufffdSubject: forged (new-run): 1 regression compared with OLD (old-run)"]
    assert message["Auto-Submitted"] == "auto-generated"
    assert "Regression: Throughput of ovs" in message.get_content()


def test_a_temporary_error_of_a_mail_server_causes_a_retry(
    post: MailReceiver, certificate: Path, notice: Notice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", "secret-password")
    post.replies = ["451 later", "250 taken"]

    assert problems_of(notice, mail=mail_to(post, certificate)) == []

    assert len(post.got) == 2
    assert len({email.message_from_bytes(each.content or b"")["Message-ID"] for each in post.got if isinstance(each.content, bytes)}) == 1


@pytest.mark.parametrize(
    ("reply", "password", "more", "expected"),
    [
        ("554 spam", "secret-password", {}, "rejects the mail with reply 554"),
        ("250 taken", "wrong-password", {}, "rejects user and password"),
        ("250 taken", "secret-password", {"ca_file": None}, "certificate is invalid"),
        ("250 taken", "secret-password", {"security": "tls"}, "certificate is invalid, or the server does not use TLS"),
    ],
)
def test_a_rejection_by_a_mail_server_is_reported_once_without_the_password(
    post: MailReceiver,
    certificate: Path,
    notice: Notice,
    monkeypatch: pytest.MonkeyPatch,
    reply: str,
    password: str,
    more: dict[str, object],
    expected: str,
) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", password)
    post.replies = [reply]

    (problem,) = problems_of(notice, mail=mail_to(post, certificate, **more))

    assert expected in problem
    assert password not in problem


def test_occasions_are_regressions_and_failures(notice: Notice) -> None:
    broken = fabricated_throughput(0, "ovs", parse_frame_mix("64"), 1.0, status=MeasurementStatus.INVALID, reasons=("died",))

    assert notice.occasions == {Occasion.ALWAYS, Occasion.REGRESSION}
    assert Notice(OLD, None).occasions == {Occasion.ALWAYS}
    assert Occasion.FAILURE in Notice(OLD.model_copy(update={"state": RunState.FAILED}), None).occasions
    assert Occasion.FAILURE in Notice(OLD.model_copy(update={"measurements": (broken,)}), None).occasions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[webhook]]\nsecret_env = 'X'", "one of url, url_file and url_env"),
        ("[[webhook]]\nurl = 'http://a/'\nsecret = 'x'", "webhook.0.secret"),
        ("[[webhook]]\nurl = 'http://a/'\non = ['sometimes']", "webhook.0.on.0"),
        ("[[mail]]\nserver = 'm'\nsender = 'a@b'\nto = ['c@d']\nuser = 'u'", "user with one of"),
        ("[[mail]]\nserver = 'm'\nsender = 'a@b'\nto = ['c@d']\nuser = 'u'\npassword_env = 'P'\nsecurity = 'none'", "unencrypted"),
        ("[[mail]]\nserver = 'm'\nsender = 'a@b\\r\\nBcc: x@y'\nto = ['c@d']", "mail.0.sender"),
        ("[[webhok]]\nurl = 'http://a/'", "did you mean 'webhook'"),
        ("[webhook]\nurl = 'http://a/'", r"\[\[webhook\]\]"),
        ("[[webhook]]\nurl = 'http://a/'\nstages = ['begun']", "webhook.0.stages.0"),
        ("[[webhook]]\nurl = 'http://a/'\n" * 51, "51 recipients, more than 50"),
        ("[[mail]\n", "invalid TOML"),
    ],
)
def test_invalid_settings_are_reported_with_their_position(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "notifications.toml"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=expected):
        read_notifications(file)


@pytest.mark.parametrize("url", ["ftp://host/secret", "http:///secret", "secret", "http://[secret/"])
def test_an_invalid_url_is_rejected_before_the_run_without_being_shown(url: str) -> None:
    with pytest.raises(ScenarioError, match="https://HOST/PATH") as error:
        targets([Webhook.model_validate({"url": url})])
    assert "secret" not in str(error.value)


def test_a_missing_secret_is_reported_before_the_run(tmp_path: Path) -> None:
    for notifier in (
        Webhook.model_validate({"url_env": "NO_SUCH_VARIABLE"}),
        Webhook.model_validate({"url": "http://a/", "secret_file": tmp_path / "none"}),
        Mail(server="m", sender="a@b", to=("c@d",), user="u", password_env="NO_SUCH_VARIABLE"),
    ):
        with pytest.raises(ScenarioError, match=r"NO_SUCH_VARIABLE is empty|cannot be read"):
            targets([notifier])


def test_recipients_have_unique_names_without_secrets() -> None:
    notifiers = [Webhook.model_validate({"url": f"http://a:8080/{secret}"}) for secret in ("one", "two")]
    notifiers.append(Webhook.model_validate({"url": "http://a:8080/three", "name": "team"}))
    assert [each.name for each in targets(notifiers)] == ["webhook http://a:8080", "webhook http://a:8080 (2)", "team"]


def test_only_recipients_with_the_stage_get_notices_before_the_end(notice: Notice) -> None:
    default, with_running = (Webhook.model_validate({"url": "http://a/", **more}) for more in ({}, {"stages": ["running"]}))
    running = Notice(None, stage=Stage.RUNNING)
    assert (default.concerns(running), with_running.concerns(running)) == (False, True)
    assert (default.concerns(notice), with_running.concerns(notice)) == (True, False)
    assert default.concerns(Notice(None, stage=Stage.ERROR, outcome="dead"))
    assert not default.concerns(Notice(None, stage=Stage.ERROR, outcome="cancelled"))


def test_a_record_contains_no_webhook_url() -> None:
    arguments = ["run", "X", "--webhook", "https://secret", "--json", "--webhook=https://secret", "--label", "a=b"]
    assert without_secrets(arguments) == ["run", "X", "--json", "--label", "a=b"]


def test_a_command_sends_notifications_about_a_stored_run(
    hook: HttpReceiver, notice: Notice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGROAD_LAB_CONFIG", str(tmp_path))
    monkeypatch.setenv("RINGROAD_LAB_STORE", str(tmp_path / "results.db"))
    no_recipient = CliRunner().invoke(make_app(), ["notify", "old-run"])
    assert isinstance(no_recipient.exception, ScenarioError)
    (tmp_path / "notifications.toml").write_text(f"[[webhook]]\nurl = {json.dumps(hook.url)}\n")

    done = CliRunner().invoke(make_app(), ["notify", "old-run", "--webhook", hook.url])

    assert done.exit_code == 0, done.output
    assert [json.loads(body)["run_id"] for _, _, body in hook.got] == [OLD.run_id] * 2
    hook.statuses = [404]
    refused = CliRunner().invoke(make_app(), ["notify", NEW.run_id])
    assert isinstance(refused.exception, LabError)
    assert "status 404" in str(refused.exception)
