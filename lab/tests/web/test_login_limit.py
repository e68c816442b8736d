"""How failed logins become waits."""

from __future__ import annotations

import pytest
from web_visitor import Clock

from ringroad_lab.web import login_limit
from ringroad_lab.web.login_limit import MEMORY_S, WITH_ACCOUNT, WITH_SOURCE, LoginLimit

HERE, ELSEWHERE = "192.0.2.1", "198.51.100.1"


@pytest.fixture
def limit(clock: Clock) -> LoginLimit:
    return LoginLimit(clock)


def fail(limit: LoginLimit, address: str, account: str, times: int) -> None:
    for _ in range(times):
        assert limit.attempt(address, account) == 0


def test_each_further_failure_doubles_the_wait_up_to_a_limit(limit: LoginLimit, clock: Clock) -> None:
    fail(limit, HERE, "a", WITH_ACCOUNT.free_failures)
    waits = []
    for _ in range(14):
        waits.append(limit.attempt(HERE, "a"))
        clock.now_s += waits[-1]
        assert limit.attempt(HERE, "a") == 0
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900, 900]


def test_an_early_attempt_does_not_prolong_the_wait(limit: LoginLimit, clock: Clock) -> None:
    fail(limit, HERE, "a", WITH_ACCOUNT.free_failures)
    for _ in range(100):
        assert limit.attempt(HERE, "a") == 1
    clock.now_s += 1
    assert limit.attempt(HERE, "a") == 0


def test_another_source_does_not_wait(limit: LoginLimit) -> None:
    fail(limit, ELSEWHERE, "a", WITH_ACCOUNT.free_failures)
    assert limit.attempt(ELSEWHERE, "a") > 0
    assert limit.attempt(HERE, "a") == 0


def test_another_account_waits_once_the_source_has_failed_too_often(limit: LoginLimit) -> None:
    for number in range(WITH_SOURCE.free_failures):
        fail(limit, HERE, f"a{number}", 1)
    assert limit.attempt(HERE, "fresh") == 1
    assert limit.attempt(ELSEWHERE, "fresh") == 0


def test_success_clears_the_account_from_that_source_alone(limit: LoginLimit) -> None:
    fail(limit, HERE, "victim", WITH_ACCOUNT.free_failures)
    fail(limit, ELSEWHERE, "own", WITH_ACCOUNT.free_failures)
    fail(limit, HERE, "own", WITH_ACCOUNT.free_failures)
    limit.succeeded(HERE, "own")
    assert limit.attempt(HERE, "own") == 0
    assert limit.attempt(HERE, "victim") > 0
    assert limit.attempt(ELSEWHERE, "own") > 0


def test_logins_that_succeed_cost_the_source_nothing_and_give_it_nothing_back(limit: LoginLimit) -> None:
    for number in range(WITH_SOURCE.free_failures):
        fail(limit, HERE, f"a{number}", 1)
        if number < WITH_SOURCE.free_failures - 1:
            fail(limit, HERE, "own", 1)
            limit.succeeded(HERE, "own")
    assert limit.attempt(HERE, "own") > 0


def test_failures_are_forgotten_after_a_while_without_one(limit: LoginLimit, clock: Clock) -> None:
    fail(limit, HERE, "a", WITH_ACCOUNT.free_failures)
    clock.now_s += MEMORY_S + 1
    fail(limit, HERE, "a", WITH_ACCOUNT.free_failures)


def test_setting_the_clock_back_prolongs_no_wait(limit: LoginLimit, clock: Clock) -> None:
    fail(limit, HERE, "a", WITH_ACCOUNT.free_failures)
    clock.now_s -= 1e9
    assert limit.attempt(HERE, "a") == 1


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("unix:", "unix:", True),
    ],
)
def test_addresses_that_one_machine_has_are_one_source(limit: LoginLimit, one: str, other: str, is_same: bool) -> None:
    fail(limit, one, "a", WITH_ACCOUNT.free_failures)
    assert (limit.attempt(other, "a") > 0) == is_same


def test_remembered_failures_are_bounded(limit: LoginLimit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_limit, "_MAX_KEYS", 10)
    for number in range(100):
        limit.attempt(f"192.0.2.{number}", "a")
    assert len(limit._failures) == 10
