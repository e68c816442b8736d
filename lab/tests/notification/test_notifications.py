"""Notifications, by real servers on this machine."""

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
from ringroad_lab.notification.interface import Occasion, Stage
from ringroad_lab.notification.mail import Mail
from ringroad_lab.notification.message import Notice
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
    """A mail server that wants a password."""
    with mail_receiver(MailReceiver(), certificate, password="secret-password") as receiver:
        yield receiver


def told(notice: Notice, *, webhook: dict[str, Any] | None = None, mail: dict[str, Any] | None = None) -> list[str]:
    """Tell it to one of them; what went wrong."""
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

    assert told(notice, webhook={"url": hook.url, "secret_file": tmp_path / "secret"}) == []

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
    assert told(notice, webhook={"url": hook.url}) == []
    assert "x-ringroad-lab-signature-256" not in hook.got[0][1]


def test_a_server_in_trouble_is_tried_again_with_the_same_delivery(hook: HttpReceiver, notice: Notice) -> None:
    hook.statuses = [503, 429, 204]

    assert told(notice, webhook={"url": hook.url}) == []

    assert len(hook.got) == 3
    assert len({(headers["x-ringroad-lab-delivery"], body) for _, headers, body in hook.got}) == 1


@pytest.mark.parametrize(("status", "more"), [(400, {}), (404, {}), (302, {"Location": "http://127.0.0.1:1/"})])
def test_what_a_server_refuses_is_not_tried_again(hook: HttpReceiver, notice: Notice, status: int, more: dict[str, str]) -> None:
    hook.statuses, hook.headers_answered = [status], more

    (problem,) = told(notice, webhook={"url": hook.url})

    assert f"status {status}" in problem
    assert "token" not in problem
    assert len(hook.got) == 1


def test_a_server_that_asks_for_a_longer_wait_than_there_is_time_is_given_up(hook: HttpReceiver, notice: Notice) -> None:
    hook.statuses, hook.headers_answered = [503], {"Retry-After": "3600"}

    assert "status 503 (1 try)" in told(notice, webhook={"url": hook.url})[0]
    assert len(hook.got) == 1


def test_a_server_that_never_answers_holds_nobody_up(hook: HttpReceiver, notice: Notice) -> None:
    hook.is_silent = True

    (problem,) = told(notice, webhook={"url": hook.url, "within_s": 0.3})

    assert "in time" in problem or "within the time" in problem
    assert hook.got


def test_a_server_that_is_not_there_is_reported_without_the_secret_of_its_url(notice: Notice) -> None:
    with socket.create_server((ADDRESS, 0)) as free:
        port = free.getsockname()[1]

    (problem,) = told(notice, webhook={"url": f"http://user:secret@{ADDRESS}:{port}/secret?secret", "within_s": 0.2})

    assert "cannot be reached" in problem
    assert "secret" not in problem


def test_one_server_that_is_away_keeps_the_news_from_no_other(hook: HttpReceiver, notice: Notice) -> None:
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

    assert told(notice, mail=mail_to(post, certificate)) == []

    assert post.logins == [(b"lab", b"secret-password")]
    (envelope,) = post.got
    assert (envelope.mail_from, envelope.rcpt_tos) == ("lab@example.org", ["a@example.org", "b@example.org"])
    assert isinstance(envelope.content, bytes)
    message = email.message_from_bytes(envelope.content, policy=email.policy.default)
    assert message.get_all("Subject") == ["NEW\ufffdSubject: forged (new-run): 1 regression beside OLD (old-run)"]
    assert message["Auto-Submitted"] == "auto-generated"
    assert "Regression: Throughput of ovs" in message.get_content()


def test_a_mail_server_that_is_busy_is_tried_again(
    post: MailReceiver, certificate: Path, notice: Notice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", "secret-password")
    post.replies = ["451 later", "250 taken"]

    assert told(notice, mail=mail_to(post, certificate)) == []

    assert len(post.got) == 2
    assert len({email.message_from_bytes(each.content or b"")["Message-ID"] for each in post.got if isinstance(each.content, bytes)}) == 1


@pytest.mark.parametrize(
    ("reply", "password", "more", "expected"),
    [
        ("554 spam", "secret-password", {}, "refuses the mail with reply 554"),
        ("250 taken", "wrong-password", {}, "refuses user and password"),
        ("250 taken", "secret-password", {"ca_file": None}, "certificate is not right"),
        ("250 taken", "secret-password", {"security": "tls"}, "certificate is not right, or it speaks no TLS"),
    ],
)
def test_what_a_mail_server_refuses_is_reported_once_without_the_password(
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

    (problem,) = told(notice, mail=mail_to(post, certificate, **more))

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
        ("[[mail]]\nserver = 'm'\nsender = 'a@b'\nto = ['c@d']\nuser = 'u'\npassword_env = 'P'\nsecurity = 'none'", "readable"),
        ("[[mail]]\nserver = 'm'\nsender = 'a@b\\r\\nBcc: x@y'\nto = ['c@d']", "mail.0.sender"),
        ("[[webhok]]\nurl = 'http://a/'", "did you mean 'webhook'"),
        ("[webhook]\nurl = 'http://a/'", r"\[\[webhook\]\]"),
        ("[[webhook]]\nurl = 'http://a/'\nstages = ['begun']", "webhook.0.stages.0"),
        ("[[webhook]]\nurl = 'http://a/'\n" * 51, "51 are to be told, more than 50"),
        ("[[mail]\n", "no TOML"),
    ],
)
def test_wrong_settings_are_reported_with_their_place(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "notifications.toml"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=expected):
        read_notifications(file)


@pytest.mark.parametrize("url", ["ftp://host/secret", "http:///secret", "secret", "http://[secret/"])
def test_a_url_that_is_none_is_refused_before_the_run_without_being_shown(url: str) -> None:
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


def test_one_who_is_reported_has_a_name_of_his_own_that_holds_no_secret() -> None:
    notifiers = [Webhook.model_validate({"url": f"http://a:8080/{secret}"}) for secret in ("one", "two")]
    notifiers.append(Webhook.model_validate({"url": "http://a:8080/three", "name": "team"}))
    assert [each.name for each in targets(notifiers)] == ["webhook http://a:8080", "webhook http://a:8080 (2)", "team"]


def test_of_what_has_not_ended_only_those_are_reported_who_ask_for_it(notice: Notice) -> None:
    quiet, curious = (Webhook.model_validate({"url": "http://a/", **more}) for more in ({}, {"stages": ["running"]}))
    running = Notice(None, stage=Stage.RUNNING)
    assert (quiet.concerns(running), curious.concerns(running)) == (False, True)
    assert (quiet.concerns(notice), curious.concerns(notice)) == (True, False)
    assert quiet.concerns(Notice(None, stage=Stage.ERROR, outcome="dead"))
    assert not quiet.concerns(Notice(None, stage=Stage.ERROR, outcome="cancelled"))


def test_a_record_has_no_url_of_a_webhook() -> None:
    arguments = ["run", "X", "--webhook", "https://secret", "--json", "--webhook=https://secret", "--label", "a=b"]
    assert without_secrets(arguments) == ["run", "X", "--json", "--label", "a=b"]


def test_a_stored_run_is_reported_by_command(hook: HttpReceiver, notice: Notice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGROAD_LAB_CONFIG", str(tmp_path))
    monkeypatch.setenv("RINGROAD_LAB_STORE", str(tmp_path / "results.db"))
    nobody = CliRunner().invoke(make_app(), ["notify", "old-run"])
    assert isinstance(nobody.exception, ScenarioError)
    (tmp_path / "notifications.toml").write_text(f"[[webhook]]\nurl = {json.dumps(hook.url)}\n")

    done = CliRunner().invoke(make_app(), ["notify", "old-run", "--webhook", hook.url])

    assert done.exit_code == 0, done.output
    assert [json.loads(body)["run_id"] for _, _, body in hook.got] == [OLD.run_id] * 2
    hook.statuses = [404]
    refused = CliRunner().invoke(make_app(), ["notify", NEW.run_id])
    assert isinstance(refused.exception, LabError)
    assert "status 404" in str(refused.exception)
