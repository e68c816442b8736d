#!/usr/bin/env python3
"""A member of a rendezvous: arrives at numbered barriers, and waits until all members arrive, a deadline expires, or a member aborts.

This file is self-contained: it needs only Python 3.6 or newer with its standard library, and can be copied to any machine.

Each request uses its own TCP connection, and the server holds a request for a few seconds at most. So there is no long-lived connection to
lose: after a network failure, a changed address, a reboot or a server restart, the member sends its next request. The greeting of the
server contains a single-use number. Request and answer carry an HMAC-SHA256 with the secret. The HMAC of a request covers that number and
the request; the HMAC of an answer covers the request's HMAC and the answer.

    server: ringroad-rendezvous 1 NUMBER
    member: HMAC {"ask": "arrive", "member": "dut", "barrier": 2, ...}
    server: HMAC {"state": "wait", ...}

Exit statuses: 0 met, 1 aborted, 2 invalid usage, 3 deadline expired.
"""

import argparse
import hashlib
import hmac
import json
import os
import socket
import sys
import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

MET, ABORTED, USAGE, DEADLINE = 0, 1, 2, 3

GREETING = "ringroad-rendezvous 1 "
PORT = 6777
SERVERS_VARIABLE = "RINGROAD_LAB_RENDEZVOUS"
SECRET_VARIABLE = "RINGROAD_LAB_RENDEZVOUS_SECRET"
SECRET_CHARACTERS = 16
# Time that the server holds a request that it cannot answer yet.
HOLD_S = 5.0
MAX_QUESTION_BYTES = 8 * 1024
MAX_ANSWER_BYTES = 64 * 1024
MAX_REASON_CHARACTERS = 500
MAX_BARRIER = 1000000
MAX_DEADLINE_S = 30 * 86400.0
# Time limit for a connection, for the greeting, and for an answer after the server's holding time.
_NETWORK_S = 5.0
# A member continues to poll this long after its deadline, to get the names of the missing members.
_GRACE_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


class UsageError(Exception):
    """The request is invalid; a retry will not help."""


class _NoAnswerError(Exception):
    """The server gave no valid answer; it may be available later."""


def sign(secret: bytes, about: str, text: str) -> str:
    """Return the HMAC of `text` and `about`: the server's number for a request, the request's HMAC for an answer."""
    return hmac.new(secret, "{} {}".format(about, text).encode(), hashlib.sha256).hexdigest()


def read_secret(file: Optional[str]) -> bytes:
    """Return the secret: the first line of a file, or else the value of the variable.

    Raises:
        UsageError: the secret is missing or too short.
    """
    where = file or "$" + SECRET_VARIABLE
    if file is None:
        secret = os.environ.get(SECRET_VARIABLE, "")
    else:
        try:
            with open(file, encoding="utf-8") as opened:
                secret = opened.readline(1000).strip()
        except (OSError, UnicodeError) as error:
            raise UsageError("the secret cannot be read: {}: {}".format(file, getattr(error, "strerror", None) or error))
    if len(secret) < SECRET_CHARACTERS:
        raise UsageError("the secret in {} is missing or too short: use {} characters or more".format(where, SECRET_CHARACTERS))
    return secret.encode()


def read_servers(given: Optional[Sequence[str]]) -> List[Tuple[str, int]]:
    """Return the possible addresses of the server: HOST, HOST:PORT or [IPV6]:PORT. Default: the variable, separated by blanks.

    Raises:
        UsageError: there is no address, or an address is invalid.
    """
    found = []
    for text in given or os.environ.get(SERVERS_VARIABLE, "").split():
        host, colon, port = text.rpartition(":")
        if not colon or (":" in host and not host.startswith("[")):
            host, port = text, str(PORT)
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise UsageError("'{}' is not a server address: use HOST or HOST:PORT".format(text))
        found.append((host, int(port)))
    if not found:
        raise UsageError("set the server with --server HOST:PORT or ${}".format(SERVERS_VARIABLE))
    return found


def boot_id() -> str:
    """Return the id of the machine's current boot; empty if the system does not provide it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class Member:
    """Sends requests to a server, and retries until it gets an answer."""

    def __init__(self, servers: Sequence[Tuple[str, int]], secret: bytes) -> None:
        """Take the possible addresses of the server, in the order of tries, and the secret."""
        self._servers = list(servers)
        self._secret = secret
        self._printed = ""

    def arrive(self, barrier: int, role: str, deadline_s: float, boot: str) -> int:
        """Arrive at a barrier, wait there, print the result, and return the exit status."""
        ends = time.monotonic() + deadline_s
        request = {"ask": "arrive", "member": role, "barrier": barrier, "deadline_s": deadline_s, "boot": boot}
        has_waited = False
        while True:
            request["left_s"] = max(0.0, ends - time.monotonic())
            answer = self._request(request, ends)
            if answer is None:
                return DEADLINE
            state = answer["state"]
            if state in ("met", "met-before"):
                print("barrier {}: met{}".format(barrier, "" if has_waited or state == "met" else " before"))
                return MET
            if state == "aborted":
                self._print("aborted: {}".format(answer.get("reason")))
                return DEADLINE if answer.get("barrier") == barrier else ABORTED
            has_waited = True
            self._print("barrier {}: {}".format(barrier, answer.get("why")))

    def abort(self, reason: str, role: str, deadline_s: float) -> int:
        """Abort the rendezvous for all members, and return the exit status; the first reason is kept."""
        request = {"ask": "abort", "member": role, "reason": reason[:MAX_REASON_CHARACTERS]}
        answer = self._request(request, time.monotonic() + deadline_s)
        if answer is None:
            return DEADLINE
        print("aborted: {}".format(answer.get("reason")))
        return MET

    def status(self, deadline_s: float, as_json: bool) -> int:
        """Print the state of all members, and return the exit status."""
        answer = self._request({"ask": "status"}, time.monotonic() + deadline_s)
        if answer is None:
            return DEADLINE
        if as_json:
            print(json.dumps(answer, indent=2))
        else:
            print("barriers met: {}".format(answer.get("met")))
            for name, each in sorted(answer.get("members", {}).items()):
                silent = each.get("silent_s")
                contact = "no contact yet" if silent is None else "last contact {:.0f} s ago".format(silent)
                print("{}: at barrier {}, {} boots, {}".format(name, each.get("arrived"), each.get("boots"), contact))
            if answer["state"] == "aborted":
                print("aborted: {}".format(answer.get("reason")))
        return ABORTED if answer["state"] == "aborted" else MET

    def _request(self, request: Dict[str, Any], ends: float) -> Optional[Dict[str, Any]]:
        """Repeat a request until the server answers; print the reason and return None after the deadline and a grace period."""
        pause = _FIRST_PAUSE_S
        while True:
            left = ends + _GRACE_S - time.monotonic()
            if left <= 0:
                self._print("the deadline expired, and the server did not answer")
                return None
            try:
                answer = self._exchange(request, min(left, HOLD_S + 3 * _NETWORK_S))
            except (OSError, _NoAnswerError) as error:
                self._print("{}: {}".format(_shown(self._servers[0]), getattr(error, "strerror", None) or error))
                self._servers.append(self._servers.pop(0))
            else:
                if answer.get("state") == "refused":
                    raise UsageError(str(answer.get("why")))
                return answer
            time.sleep(max(0.0, min(pause, ends + _GRACE_S - time.monotonic())))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _exchange(self, request: Dict[str, Any], limit_s: float) -> Dict[str, Any]:
        """Send a request once. The limit covers a server that accepts but never answers, for example because its machine was turned off."""
        ends = time.monotonic() + limit_s
        with _connect(self._servers[0], min(limit_s, _NETWORK_S)) as connection:
            number = _read_line(connection, 200, min(ends, time.monotonic() + _NETWORK_S))
            if not number.startswith(GREETING):
                raise _NoAnswerError("the peer is not a rendezvous server of this version")
            text = json.dumps(dict(request, nonce=os.urandom(16).hex()))
            code = sign(self._secret, "question " + number[len(GREETING) :], text)
            connection.settimeout(_NETWORK_S)
            connection.sendall("{} {}\n".format(code, text).encode())
            its_code, _, its_text = _read_line(connection, MAX_ANSWER_BYTES, ends).partition(" ")
        if not hmac.compare_digest(its_code.encode(), sign(self._secret, "answer " + code, its_text).encode()):
            # Any process can have sent this answer: continue to try.
            raise _NoAnswerError("the answer is not signed with our secret: does the server have another secret?")
        answer = json.loads(its_text)
        if not isinstance(answer, dict) or not isinstance(answer.get("state"), str):
            raise _NoAnswerError("the answer has no state")
        return answer

    def _print(self, text: str) -> None:
        if text != self._printed:
            print(text, file=sys.stderr)
            sys.stderr.flush()
        self._printed = text


def _connect(server: Tuple[str, int], limit_s: float) -> socket.socket:
    ends = time.monotonic() + limit_s
    found: List[Any] = []

    def resolve() -> None:
        try:
            found.extend(socket.getaddrinfo(server[0], server[1], type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.append(error)

    # Name resolution without a network can take longer than any deadline and cannot be interrupted. So a thread does it.
    resolver = threading.Thread(target=resolve, daemon=True)
    resolver.start()
    resolver.join(limit_s)
    last: Exception = _NoAnswerError("the host name was not resolved within {:g} s".format(limit_s))
    for entry in list(found):
        if isinstance(entry, Exception):
            last = _NoAnswerError("host name resolution failed: {}".format(entry))
            continue
        left = ends - time.monotonic()
        if left <= 0:
            break
        family, kind, protocol, _, address = entry
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(left)
            connection.connect(address)
            return connection
        except socket.timeout:
            last = _NoAnswerError("no answer")
            connection.close()
        except OSError as error:
            last = error
            connection.close()
    raise last


def _read_line(connection: socket.socket, most: int, ends: float) -> str:
    read = b""
    while not read.endswith(b"\n"):
        left = ends - time.monotonic()
        if left <= 0:
            raise _NoAnswerError("no answer")
        connection.settimeout(left)
        try:
            more = connection.recv(4096)
        except socket.timeout:
            raise _NoAnswerError("no answer")
        if not more:
            raise _NoAnswerError("the server closed the connection: does it have another secret?")
        read += more
        if len(read) > most:
            raise _NoAnswerError("the answer is too long")
    return read.decode("utf-8", "replace").rstrip("\n")


def _shown(server: Tuple[str, int]) -> str:
    return ("[{}]:{}" if ":" in server[0] else "{}:{}").format(*server)


def check_deadline(deadline_s: float) -> float:
    """Return a deadline if it is valid.

    Raises:
        UsageError: the deadline is invalid.
    """
    if not 0 < deadline_s <= MAX_DEADLINE_S:
        raise UsageError("the deadline must be more than 0 s and at most {:g} s".format(MAX_DEADLINE_S))
    return deadline_s


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the program; return its exit status."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--server", action="append", metavar="HOST:PORT", help="server, repeatable; default: $" + SERVERS_VARIABLE)
    common.add_argument("--secret-file", metavar="FILE", help="file with the secret in its first line; default: $" + SECRET_VARIABLE)
    parser = argparse.ArgumentParser(description="Meet the other machines of a job at numbered barriers.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    arrive = verbs.add_parser("arrive", parents=[common], help="arrive at a barrier, and wait for the other members")
    arrive.add_argument("barrier", type=int, metavar="N", help="number of the barrier, from 1")
    arrive.add_argument("--as", dest="role", required=True, metavar="ROLE", help="name of this member")
    arrive.add_argument("--deadline", type=float, required=True, metavar="S", help="time limit for all members to arrive, s")
    arrive.add_argument("--boot", metavar="ID", help="id of this boot; default: the kernel's")
    abort = verbs.add_parser("abort", parents=[common], help="abort the rendezvous for all members")
    abort.add_argument("reason", metavar="REASON", help="reason that all members report")
    abort.add_argument("--as", dest="role", default="", metavar="ROLE", help="name of this member")
    status = verbs.add_parser("status", parents=[common], help="print the state of all members")
    status.add_argument("--json", action="store_true", help="output for programs")
    for verb in (abort, status):
        verb.add_argument("--deadline", type=float, default=60.0, metavar="S", help="how long to try, s (60)")
    given = parser.parse_args(arguments)
    if given.verb is None:
        parser.error("a verb is required: arrive, abort, status")
    try:
        member = Member(read_servers(given.server), read_secret(given.secret_file))
        deadline_s = check_deadline(given.deadline)
        if given.verb == "arrive":
            return member.arrive(given.barrier, given.role, deadline_s, boot_id() if given.boot is None else given.boot)
        if given.verb == "abort":
            return member.abort(given.reason, given.role, deadline_s)
        return member.status(deadline_s, given.json)
    except UsageError as error:
        print("{}: {}".format(parser.prog, error), file=sys.stderr)
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
