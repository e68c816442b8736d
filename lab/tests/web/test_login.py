"""Permissions: logins, sessions, forms of other sites, and the redirect after a login."""

from __future__ import annotations

from collections.abc import Callable

import itsdangerous.timed
import pytest
from web_visitor import OWNER_TOKEN, TESTER, WebVisitor

from ringroad_lab.record import RunRecord
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.application import COOKIE_NAME
from ringroad_lab.web.reviews import Review, read_review
from ringroad_lab.web.tokens import add_token, remove_token

PAGES = ["/runs", "/trends", "/compare", "/audit", "/runs/RUN", "/runs/RUN/reports/json"]
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

    response = visitor.client.post(f"/runs/{run.run_id}/review", data={"verdict": "pass", "last_change": "0"})

    assert response.headers["location"] == "/login"
    assert read_review(store, run.run_id).review == Review()


def test_a_login_redirects_to_the_requested_page(visitor: WebVisitor, run: RunRecord) -> None:
    login = visitor.get("/runs?state=finished").headers["location"]

    response = visitor.log_in(next=visitor.form_values(login)["next"])

    assert response.headers["location"] == "/runs?state=finished"
    assert run.name in visitor.get(response.headers["location"]).text


def test_scripts_cannot_read_the_cookie_and_other_sites_cannot_send_forms_with_it(visitor: WebVisitor) -> None:
    cookie = visitor.log_in().headers["set-cookie"].lower()

    assert "httponly" in cookie
    assert "samesite=lax" in cookie


def test_the_cookie_is_sent_only_by_https_if_the_page_is_encrypted(make_visitor: MakeVisitor) -> None:
    assert "secure" in make_visitor(is_encrypted=True).log_in().headers["set-cookie"].lower()


@pytest.mark.parametrize("token", ["wrong", "", "' OR 1=1 --", "\0", "x" * 200], ids=["wrong", "empty", "injection", "NUL", "long"])
def test_a_wrong_token_does_not_log_in(visitor: WebVisitor, token: str) -> None:
    response = visitor.log_in(token)

    assert response.status_code == 401
    assert "not a token of this server" in response.text
    assert visitor.get("/runs").status_code == 303


def test_the_printed_link_logs_the_owner_in(visitor: WebVisitor) -> None:
    assert visitor.client.get("/login", params={"token": OWNER_TOKEN}).headers["location"] == "/runs"

    assert TESTER in visitor.get("/runs").text


def test_a_link_with_another_token_does_not_log_in(visitor: WebVisitor, store: ResultStore) -> None:
    for token in (add_token(store, "alice"), "wrong"):
        assert visitor.client.get("/login", params={"token": token}).status_code == 401
        assert visitor.get("/runs").status_code == 303


def test_without_an_owner_an_empty_token_is_not_the_owners(make_visitor: MakeVisitor) -> None:
    visitor = make_visitor(owner_token="")

    assert visitor.log_in("").status_code == 401
    assert visitor.client.get("/login", params={"token": ""}).status_code == 200


def test_a_token_names_the_tester(visitor: WebVisitor, run: RunRecord, store: ResultStore) -> None:
    assert visitor.log_in(add_token(store, "alice")).status_code == 303

    assert visitor.review(run.run_id, verdict="pass").status_code == 303

    assert read_review(store, run.run_id).tester == "alice"


def test_the_proxy_names_the_logged_in_user(make_visitor: MakeVisitor, run: RunRecord, store: ResultStore) -> None:
    visitor = make_visitor(proxy_token_name="proxy", proxy_header="Remote-User")
    by_proxy = {"Authorization": f"Bearer {add_token(store, 'proxy')}", "Remote-User": "alice@lab.example"}
    visitor.client.headers.update(by_proxy)

    assert "alice@lab.example" in visitor.get("/runs").text
    assert visitor.review(run.run_id, verdict="pass").status_code == 303
    assert read_review(store, run.run_id).tester == "alice@lab.example"


@pytest.mark.parametrize("shown", ["", "Bearer wrong", "Bearer OTHER"])
def test_only_the_proxy_names_the_logged_in_user(make_visitor: MakeVisitor, store: ResultStore, shown: str) -> None:
    add_token(store, "proxy")
    authorization = shown.replace("OTHER", add_token(store, "ci"))
    visitor = make_visitor(proxy_token_name="proxy")
    visitor.client.headers.update({"Authorization": authorization, "X-Forwarded-User": "alice"})

    assert visitor.get("/runs").status_code == 303


@pytest.mark.parametrize("name", [None, "", "a b", "x" * 65, "<script>"])
def test_a_request_of_the_proxy_without_a_valid_name_is_not_logged_in(
    make_visitor: MakeVisitor, store: ResultStore, name: str | None
) -> None:
    visitor = make_visitor(proxy_token_name="proxy")
    visitor.client.headers.update(
        {"Authorization": f"Bearer {add_token(store, 'proxy')}"} | ({"X-Forwarded-User": name} if name is not None else {})
    )

    assert visitor.get("/runs").status_code == 303
    assert visitor.get("/api/runs").status_code == 401
    assert visitor.client.post("/api/runs", content="{}").status_code == 401


def test_a_session_ends_after_its_time(make_visitor: MakeVisitor, monkeypatch: pytest.MonkeyPatch) -> None:
    visitor = make_visitor(session_s=100)
    visitor.log_in()
    cookie = visitor.client.cookies[COOKIE_NAME]
    now = itsdangerous.timed.time.time()  # type: ignore[attr-defined]
    statuses = []
    for later_s in (98, 102):
        monkeypatch.setattr(itsdangerous.timed.time, "time", lambda later_s=later_s: now + later_s)  # type: ignore[attr-defined]
        visitor.client.cookies.clear()
        visitor.client.cookies.set(COOKIE_NAME, cookie)
        statuses.append(visitor.get("/runs").status_code)

    assert statuses == [200, 303]


def test_logout_removes_the_cookie(tester: WebVisitor) -> None:
    response = tester.client.post("/logout")

    assert response.headers["location"] == "/login"
    assert COOKIE_NAME not in tester.client.cookies
    assert tester.get("/runs").status_code == 303


def test_the_logins_of_a_removed_token_end_even_if_the_name_is_reused(visitor: WebVisitor, store: ResultStore) -> None:
    visitor.log_in(add_token(store, "alice"))
    assert visitor.get("/runs").status_code == 200
    remove_token(store, "alice")
    assert visitor.get("/runs").status_code == 303

    add_token(store, "alice")
    assert visitor.get("/runs").status_code == 303


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


FROM_ELSEWHERE = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://testserver"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://testserver:8081"},
    {"Origin": "http://[testserver"},
]


@pytest.mark.parametrize("headers", FROM_ELSEWHERE, ids=str)
def test_a_form_of_another_site_changes_nothing(tester: WebVisitor, run: RunRecord, store: ResultStore, headers: dict[str, str]) -> None:
    tester.client.headers.update(headers)

    assert tester.review(run.run_id, verdict="fail", comment="forged").status_code == 403
    assert tester.client.post("/logout").status_code == 403
    assert read_review(store, run.run_id).review == Review()
    assert tester.get("/runs").status_code == 200


@pytest.mark.parametrize("headers", FROM_ELSEWHERE, ids=str)
def test_another_site_cannot_log_in(visitor: WebVisitor, headers: dict[str, str]) -> None:
    visitor.client.headers.update(headers)

    assert visitor.log_in().status_code == 403
    assert visitor.get("/runs").status_code == 303


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": "http://testserver"}], ids=str
)
def test_a_form_of_this_site_is_accepted(tester: WebVisitor, run: RunRecord, headers: dict[str, str]) -> None:
    tester.client.headers.update(headers)

    assert tester.review(run.run_id, verdict="fail").status_code == 303


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
def test_a_login_does_not_redirect_to_another_site(visitor: WebVisitor, target: str) -> None:
    assert visitor.log_in(next=target).headers["location"] == "/runs"


def test_other_host_names_are_refused_if_host_names_are_set(make_visitor: MakeVisitor) -> None:
    visitor = make_visitor(host_names=("lab.example", "::1"), public_read=True)

    assert visitor.client.get("/runs", headers={"Host": "evil.example"}).status_code == 400
    assert visitor.client.get("/runs", headers={"Host": "lab.example:8080"}).status_code == 200
    assert visitor.client.get("/runs", headers={"Host": "[::1]:8080"}).status_code == 200
