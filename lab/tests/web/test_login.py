"""Who may do what: logins, sessions, forged forms, and where a login leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import argon2
import pytest
from web_visitor import PASSWORD, TESTER, Clock, WebVisitor

from ringroad_lab.record import RunRecord
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web import passwords
from ringroad_lab.web.accounts import remove_user, set_password
from ringroad_lab.web.application import make_application
from ringroad_lab.web.login_limit import WITH_ACCOUNT
from ringroad_lab.web.reviews import Review, read_review
from ringroad_lab.web.sessions import COOKIE_NAME
from ringroad_lab.web.settings import WebSettings

PAGES = ["/runs", "/trends", "/compare", "/audit", "/runs/RUN", "/runs/RUN/record.json"]
MakeVisitor = Callable[..., WebVisitor]


@pytest.mark.parametrize("page", PAGES)
def test_reading_needs_a_login(visitor: WebVisitor, run: RunRecord, page: str) -> None:
    response = visitor.get(page.replace("RUN", run.run_id))

    assert response.status_code == 303
    assert response.headers["location"].startswith("/login")
    assert run.name not in response.text


@pytest.mark.parametrize("page", PAGES)
def test_public_reading_needs_no_login(make_visitor: MakeVisitor, run: RunRecord, page: str) -> None:
    assert make_visitor(public_read=True).get(page.replace("RUN", run.run_id)).status_code == 200


def test_writing_needs_a_login_even_where_reading_is_public(make_visitor: MakeVisitor, run: RunRecord, store: ResultStore) -> None:
    visitor = make_visitor(public_read=True)

    response = visitor.client.post(f"/runs/{run.run_id}/review", data={"verdict": "pass", "last_change": "0", "form_token": "x"})

    assert response.headers["location"] == "/login"
    assert read_review(store, run.run_id).review == Review()


def test_a_login_leads_to_where_one_wanted_to_go(visitor: WebVisitor, run: RunRecord) -> None:
    login = visitor.get("/runs?state=finished").headers["location"]

    response = visitor.log_in(next=visitor.form_values(login)["next"])

    assert response.headers["location"] == "/runs?state=finished"
    assert run.name in visitor.get(response.headers["location"]).text


def test_scripts_cannot_read_the_cookie_and_other_sites_cannot_send_forms_with_it(visitor: WebVisitor) -> None:
    cookie = visitor.log_in().headers["set-cookie"].lower()

    assert "httponly" in cookie
    assert "samesite=lax" in cookie


def test_the_cookie_is_sent_by_https_alone_where_there_is_https(visitor: WebVisitor) -> None:
    visitor.client.base_url = "https://testserver"

    assert "secure" in visitor.log_in().headers["set-cookie"].lower()


@pytest.mark.parametrize(
    ("name", "password"),
    [(TESTER, "wrong"), (TESTER, ""), ("nobody", PASSWORD), ("' OR 1=1 --", PASSWORD), ("\0", "\0"), (TESTER, "x" * 1999)],
    ids=["wrong", "empty", "unknown", "injection", "NUL", "long"],
)
def test_a_wrong_name_or_password_is_refused_with_the_same_words(visitor: WebVisitor, name: str, password: str) -> None:
    response = visitor.log_in(name, password)

    assert response.status_code == 401
    assert "Name or password are wrong." in response.text
    assert visitor.get("/runs").status_code == 303


def test_two_login_pages_opened_at_once_both_log_in(visitor: WebVisitor) -> None:
    first = visitor.form_values("/login")
    visitor.form_values("/login")

    assert visitor.client.post("/login", data={**first, "name": TESTER, "password": PASSWORD}).status_code == 303


def test_guessing_is_stopped_for_a_while(visitor: WebVisitor, clock: Clock) -> None:
    for _ in range(WITH_ACCOUNT.free_failures):
        assert visitor.log_in(password="wrong").status_code == 401

    response = visitor.log_in()
    assert response.status_code == 429
    assert "Try again in 1 s." in response.text

    clock.now_s += int(response.headers["retry-after"])
    assert visitor.log_in().status_code == 303


def test_an_own_login_allows_no_further_guesses(visitor: WebVisitor, store: ResultStore) -> None:
    set_password(store, "attacker", PASSWORD)
    for _ in range(WITH_ACCOUNT.free_failures):
        assert visitor.log_in(password="wrong").status_code == 401
        assert visitor.log_in("attacker").status_code == 303
        visitor.client.cookies.clear()

    assert visitor.log_in(password="wrong").status_code == 429


def test_guesses_from_elsewhere_keep_no_user_out(store: ResultStore, clock: Clock) -> None:
    application = make_application(store, WebSettings(clock=clock))
    for host in range(10):
        stranger = WebVisitor(application, f"198.51.100.{host}")
        while stranger.log_in(password="wrong").status_code == 401:
            pass

    assert WebVisitor(application).log_in().status_code == 303


@pytest.mark.parametrize("name", [TESTER, "nobody", "' OR 1=1 --"])
def test_an_unknown_name_costs_as_much_as_a_wrong_password(
    visitor: WebVisitor, store: ResultStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    set_password(store, TESTER, PASSWORD)
    costs = []

    class Hasher(argon2.PasswordHasher):
        def hash(self, *_: object, **__: object) -> str:
            raise AssertionError("a login calculates no hash but the one to compare")

        def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:  # noqa: A002 - as it is called there
            costs.append(argon2.extract_parameters(str(hash)))
            return super().verify(hash, password)

    monkeypatch.setattr(passwords, "_HASHER", Hasher())
    visitor.log_in(name, "wrong")

    assert costs == [argon2.extract_parameters(argon2.PasswordHasher().hash("another"))]


def test_a_session_ends_after_its_time(make_visitor: MakeVisitor, clock: Clock) -> None:
    visitor = make_visitor(session_s=100.0)
    visitor.log_in()
    clock.now_s += 99
    assert visitor.get("/runs").status_code == 200

    clock.now_s += 1

    assert visitor.get("/runs").status_code == 303


def test_logout_ends_the_session_of_a_kept_cookie(tester: WebVisitor) -> None:
    cookie = tester.client.cookies[COOKIE_NAME]

    response = tester.client.post("/logout", data=tester.form_values("/runs"))

    assert response.headers["location"] == "/login"
    assert COOKIE_NAME not in tester.client.cookies
    tester.client.cookies.set(COOKIE_NAME, cookie)
    assert tester.get("/runs").status_code == 303


def test_a_new_password_ends_sessions(tester: WebVisitor, store: ResultStore) -> None:
    set_password(store, TESTER, "another password")

    assert tester.get("/runs").status_code == 303
    assert tester.log_in().status_code == 401
    assert tester.log_in(password="another password").status_code == 303


def test_the_session_of_a_removed_user_is_over_even_when_the_name_is_given_again(tester: WebVisitor, store: ResultStore) -> None:
    remove_user(store, TESTER)
    assert tester.get("/runs").status_code == 303

    set_password(store, TESTER, PASSWORD)
    assert tester.get("/runs").status_code == 303


@pytest.mark.parametrize(
    "forge",
    [lambda cookie: cookie[:-2] + ("AA" if cookie[-2:] != "AA" else "BB"), lambda cookie: "x" + cookie, lambda _: "x.y.z"],
    ids=["signature", "content", "nonsense"],
)
def test_a_forged_cookie_is_refused(tester: WebVisitor, forge: Callable[[str], str]) -> None:
    cookie = tester.client.cookies[COOKIE_NAME]
    tester.client.cookies.clear()
    tester.client.cookies.set(COOKIE_NAME, forge(cookie))

    assert tester.get("/runs").status_code == 303


def test_a_cookie_of_another_server_is_refused(tester: WebVisitor, make_visitor: MakeVisitor) -> None:
    other = make_visitor()
    other.client.cookies.set(COOKIE_NAME, tester.client.cookies[COOKIE_NAME])

    assert other.get("/runs").status_code == 303


@pytest.mark.parametrize("token", ["", "wrong", "é"])
def test_a_forged_form_changes_nothing(tester: WebVisitor, run: RunRecord, store: ResultStore, token: str) -> None:
    response = tester.review(run.run_id, verdict="fail", comment="forged", form_token=token)

    assert response.status_code == 403
    assert read_review(store, run.run_id).review == Review()
    assert "forged" not in tester.get(f"/runs/{run.run_id}").text


def test_the_form_of_another_user_is_a_forged_one(tester: WebVisitor, make_visitor: MakeVisitor, run: RunRecord) -> None:
    other = make_visitor()
    other.log_in()

    assert tester.review(run.run_id, verdict="fail", form_token=other.form_values("/runs")["form_token"]).status_code == 403


def test_a_forged_logout_has_no_effect(tester: WebVisitor) -> None:
    assert tester.client.post("/logout", data={"form_token": "wrong"}).status_code == 403
    assert tester.get("/runs").status_code == 200


def test_a_forged_login_has_no_effect(visitor: WebVisitor) -> None:
    response = visitor.client.post("/login", data={"name": TESTER, "password": PASSWORD, "form_token": "wrong"})

    assert response.status_code == 403
    assert visitor.get("/runs").status_code == 303


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
        "",
        "/\n",
    ],
)
def test_a_login_leads_nowhere_else(visitor: WebVisitor, target: str) -> None:
    assert visitor.log_in(next=target).headers["location"] == "/runs"


def test_a_name_of_another_host_is_refused_where_names_are_given(make_visitor: MakeVisitor) -> None:
    visitor = make_visitor(host_names=("lab.example", "::1"), public_read=True)

    assert visitor.client.get("/runs", headers={"Host": "evil.example"}).status_code == 400
    assert visitor.client.get("/runs", headers={"Host": "lab.example:8080"}).status_code == 200
    assert visitor.client.get("/runs", headers={"Host": "[::1]:8080"}).status_code == 200
