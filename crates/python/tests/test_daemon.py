"""The daemon's reports and orders."""

import json
from typing import Any, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import pytest

import ringroad
from ringroad.reports import MacEntryReport, StatusReport


def check(value: object, kind: Any) -> None:  # noqa: ANN401
    """Assert that a value of a reply matches its type, field by field."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        assert isinstance(value, dict)
        hints = get_type_hints(kind, include_extras=True)
        optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
        assert set(value) | optional == set(hints), kind.__name__
        for name, hint in hints.items():
            if name in value:
                check(value[name], get_args(hint)[0] if name in optional else hint)
    elif origin is list:
        assert isinstance(value, list)
        for item in value:
            check(item, arguments[0])
    elif origin is dict:
        assert isinstance(value, dict)
        for item in value.values():
            check(item, arguments[1])
    elif type(None) in arguments:
        if value is not None:
            check(value, arguments[0])
    elif arguments:
        assert value in arguments
    else:
        assert type(value) is kind


def test_reports_match_their_types(daemon: ringroad.Daemon) -> None:
    """Each field of a real status, and no other."""
    daemon.attach("vale0:guest", f"vhost-user:{daemon.status()['socket']}.guest")
    with ringroad.Port("vale0:a", queues=2) as a, ringroad.Port("vale0:b") as b:
        a.send(bytes.fromhex("ffffffffffff02000000000188b5").ljust(60))
        assert b.recv(timeout=10)
        status = daemon.status()
        check(status, StatusReport)
        assert {port["name"] for port in status["ports"]} == {"vale0:guest", "vale0:a", "vale0:b"}
        macs = daemon.macs("vale0")
        assert [(entry["mac"], entry["port"]) for entry in macs] == [("02:00:00:00:00:01", "vale0:a")]
        check(macs[0], MacEntryReport)
        port = daemon.port("vale0:a")
        assert port
        assert port["counters"]["received_frames"] == 1


def test_orders_are_carried_out_and_refusals_have_reason_and_remedy(daemon: ringroad.Daemon) -> None:
    """Ports come and go; what cannot be is an exception."""
    (attached,) = daemon.attach("vale0:later", for_program=True, slots=64)
    assert attached["name"] == "vale0:later"
    port = daemon.port("vale0:later")
    assert port
    assert (port["persistent"], port["slots"]) == (True, 64)
    daemon.set_address("vale0", "02:00:00:00:00:07", "later")
    assert [entry["static"] for entry in daemon.macs("vale0")] == [True]
    assert daemon.forget_addresses("vale0") == 0
    daemon.detach("vale0:later")
    assert daemon.port("vale0:later") is None
    with pytest.raises(ringroad.DaemonRefused, match="there is no port vale0:later") as refused:
        daemon.detach("vale0:later")
    assert refused.value.kind == "no_such_port"
    assert refused.value.advice
    daemon.reload()
    assert daemon.request("mirrors") == []
    with pytest.raises(ValueError, match="unknown variant"):
        daemon.request("dance")
    with pytest.raises(ValueError, match=r"ringroad\.Port"):
        daemon.request("open", name="vale0:x", wish={})
    with pytest.raises(ringroad.RingroadError, match="no daemon listens"):
        ringroad.Daemon("/nonexistent/socket")
    assert json.loads(daemon.request_json('"status"'))["status"]["rejected_requests"] == 1
