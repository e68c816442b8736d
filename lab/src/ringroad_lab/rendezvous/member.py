#!/usr/bin/env python3
"""A member of a rendezvous: comes to numbered barriers, and waits there until all have come, a deadline is over, or somebody aborts.

This file stands alone: it needs Python 3.6 or newer and its standard library, and can be copied to a machine that has nothing else.

Each question is a TCP connection of its own, and the server keeps a question for some seconds at most. So there is no connection to lose: a
network that goes away, an address that changes, a reboot and a server that is started again lead to the next question, no more. The server
greets with a number that it uses once. Question and answer carry an HMAC-SHA256 with the secret: over that number, and over the question.

    server: ringroad-rendezvous 1 NUMBER
    member: HMAC {"ask": "arrive", "member": "dut", "barrier": 2, ...}
    server: HMAC {"state": "wait", ...}

Statuses of the program: 0 met, 1 aborted, 2 wrong use, 3 the deadline is over.
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
# So long the server keeps a question that it cannot answer yet.
HOLD_S = 5.0
MAX_QUESTION_BYTES = 8 * 1024
MAX_ANSWER_BYTES = 64 * 1024
MAX_REASON_CHARACTERS = 500
MAX_BARRIER = 1000000
MAX_DEADLINE_S = 30 * 86400.0
# For a connection, for the greeting, and for an answer beyond the time that the server may keep the question.
_NETWORK_S = 5.0
# After its deadline a member still asks for so long: who was missing is what people want to know.
_GRACE_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


class UsageError(Exception):
    """What is asked for makes no sense; to ask again would not help."""


class _NoAnswerError(Exception):
    """The server could not be asked; it may be there later."""


def sign(secret: bytes, about: str, text: str) -> str:
    """Return the HMAC of a question, which is about the server's number, or of an answer, which is about the question's HMAC."""
    return hmac.new(secret, "{} {}".format(about, text).encode(), hashlib.sha256).hexdigest()


def read_secret(file: Optional[str]) -> bytes:
    """Return the secret: the first line of a file, else what the variable has.

    Raises:
        UsageError: there is none, or it is too short.
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
        raise UsageError("the secret in {} is not one: give {} characters or more".format(where, SECRET_CHARACTERS))
    return secret.encode()


def read_servers(given: Optional[Sequence[str]]) -> List[Tuple[str, int]]:
    """Return the addresses at which the server may be, from HOST, HOST:PORT or [IPV6]:PORT; else those of the variable, which has blanks.

    Raises:
        UsageError: there is none, or one is no address.
    """
    found = []
    for text in given or os.environ.get(SERVERS_VARIABLE, "").split():
        host, colon, port = text.rpartition(":")
        if not colon or (":" in host and not host.startswith("[")):
            host, port = text, str(PORT)
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise UsageError("'{}' is no server: give HOST or HOST:PORT".format(text))
        found.append((host, int(port)))
    if not found:
        raise UsageError("name the server by --server HOST:PORT or ${}".format(SERVERS_VARIABLE))
    return found


def boot_id() -> str:
    """Return what tells this boot of the machine from others; empty where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class Member:
    """One that asks a server, as often as it takes."""

    def __init__(self, servers: Sequence[Tuple[str, int]], secret: bytes) -> None:
        """Take the addresses at which the server may be, in the order in which they are tried, and the secret."""
        self._servers = list(servers)
        self._secret = secret
        self._said = ""

    def arrive(self, barrier: int, role: str, deadline_s: float, boot: str) -> int:
        """Come to a barrier, wait there, tell what came of it, and return the status."""
        ends = time.monotonic() + deadline_s
        question = {"ask": "arrive", "member": role, "barrier": barrier, "deadline_s": deadline_s, "boot": boot}
        has_waited = False
        while True:
            question["left_s"] = max(0.0, ends - time.monotonic())
            answer = self._ask(question, ends)
            if answer is None:
                return DEADLINE
            state = answer["state"]
            if state in ("met", "met-before"):
                print("barrier {}: met{}".format(barrier, "" if has_waited or state == "met" else " before"))
                return MET
            if state == "aborted":
                self._say("aborted: {}".format(answer.get("reason")))
                return DEADLINE if answer.get("barrier") == barrier else ABORTED
            has_waited = True
            self._say("barrier {}: {}".format(barrier, answer.get("why")))

    def abort(self, reason: str, role: str, deadline_s: float) -> int:
        """Have all members see that it is over, and return the status; the first reason stands."""
        question = {"ask": "abort", "member": role, "reason": reason[:MAX_REASON_CHARACTERS]}
        answer = self._ask(question, time.monotonic() + deadline_s)
        if answer is None:
            return DEADLINE
        print("aborted: {}".format(answer.get("reason")))
        return MET

    def status(self, deadline_s: float, as_json: bool) -> int:
        """Print how far all are, and return the status."""
        answer = self._ask({"ask": "status"}, time.monotonic() + deadline_s)
        if answer is None:
            return DEADLINE
        if as_json:
            print(json.dumps(answer, indent=2))
        else:
            print("barriers met: {}".format(answer.get("met")))
            for name, each in sorted(answer.get("members", {}).items()):
                silent = each.get("silent_s")
                heard = "not heard of yet" if silent is None else "heard of {:.0f} s ago".format(silent)
                print("{}: at barrier {}, {} boots, {}".format(name, each.get("arrived"), each.get("boots"), heard))
            if answer["state"] == "aborted":
                print("aborted: {}".format(answer.get("reason")))
        return ABORTED if answer["state"] == "aborted" else MET

    def _ask(self, question: Dict[str, Any], ends: float) -> Optional[Dict[str, Any]]:
        """Ask until there is an answer; None, with the reason told, where the deadline and some grace are over before."""
        pause = _FIRST_PAUSE_S
        while True:
            left = ends + _GRACE_S - time.monotonic()
            if left <= 0:
                self._say("the deadline is over, and the server gave no answer")
                return None
            try:
                answer = self._exchange(question, min(left, HOLD_S + 3 * _NETWORK_S))
            except (OSError, _NoAnswerError) as error:
                self._say("{}: {}".format(_shown(self._servers[0]), getattr(error, "strerror", None) or error))
                self._servers.append(self._servers.pop(0))
            else:
                if answer.get("state") == "refused":
                    raise UsageError(str(answer.get("why")))
                return answer
            time.sleep(max(0.0, min(pause, ends + _GRACE_S - time.monotonic())))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _exchange(self, question: Dict[str, Any], limit_s: float) -> Dict[str, Any]:
        """Ask once. A server that accepts and then says nothing, as one whose machine was turned off, is given up after the limit."""
        ends = time.monotonic() + limit_s
        with _connect(self._servers[0], min(limit_s, _NETWORK_S)) as connection:
            number = _read_line(connection, 200, min(ends, time.monotonic() + _NETWORK_S))
            if not number.startswith(GREETING):
                raise _NoAnswerError("what listens there is no server of a rendezvous of this version")
            text = json.dumps(dict(question, nonce=os.urandom(16).hex()))
            code = sign(self._secret, "question " + number[len(GREETING) :], text)
            connection.settimeout(_NETWORK_S)
            connection.sendall("{} {}\n".format(code, text).encode())
            its_code, _, its_text = _read_line(connection, MAX_ANSWER_BYTES, ends).partition(" ")
        if not hmac.compare_digest(its_code.encode(), sign(self._secret, "answer " + code, its_text).encode()):
            # Anybody may have said so: hence no reason to give up.
            raise _NoAnswerError("the answer is not signed by our secret: does the server have another?")
        answer = json.loads(its_text)
        if not isinstance(answer, dict) or not isinstance(answer.get("state"), str):
            raise _NoAnswerError("the answer has no state")
        return answer

    def _say(self, text: str) -> None:
        if text != self._said:
            print(text, file=sys.stderr)
            sys.stderr.flush()
        self._said = text


def _connect(server: Tuple[str, int], limit_s: float) -> socket.socket:
    ends = time.monotonic() + limit_s
    found: List[Any] = []

    def resolve() -> None:
        try:
            found.extend(socket.getaddrinfo(server[0], server[1], type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.append(error)

    # Without a network a name server may be waited for longer than any deadline; nothing interrupts that, so it is left behind.
    resolver = threading.Thread(target=resolve, daemon=True)
    resolver.start()
    resolver.join(limit_s)
    last: Exception = _NoAnswerError("its name is not resolved within {:g} s".format(limit_s))
    for entry in list(found):
        if isinstance(entry, Exception):
            last = _NoAnswerError("its name is not known: {}".format(entry))
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
            raise _NoAnswerError("the server hung up: does it have another secret?")
        read += more
        if len(read) > most:
            raise _NoAnswerError("the answer is too long")
    return read.decode("utf-8", "replace").rstrip("\n")


def _shown(server: Tuple[str, int]) -> str:
    return ("[{}]:{}" if ":" in server[0] else "{}:{}").format(*server)


def check_deadline(deadline_s: float) -> float:
    """Return a deadline that is one.

    Raises:
        UsageError: it is none.
    """
    if not 0 < deadline_s <= MAX_DEADLINE_S:
        raise UsageError("a deadline is more than 0 s and at most {:g} s".format(MAX_DEADLINE_S))
    return deadline_s


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the program; return its status."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--server", action="append", metavar="HOST:PORT", help="of the server, also several; else $" + SERVERS_VARIABLE)
    common.add_argument("--secret-file", metavar="FILE", help="the secret is its first line; else $" + SECRET_VARIABLE)
    parser = argparse.ArgumentParser(description="Meet the other machines of a job at numbered barriers.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    arrive = verbs.add_parser("arrive", parents=[common], help="come to a barrier, and wait for the others")
    arrive.add_argument("barrier", type=int, metavar="N", help="its number; the first is 1")
    arrive.add_argument("--as", dest="role", required=True, metavar="ROLE", help="which member this is")
    arrive.add_argument("--deadline", type=float, required=True, metavar="S", help="until all have to be there, s")
    arrive.add_argument("--boot", metavar="ID", help="what tells this boot from others; else what the kernel says")
    abort = verbs.add_parser("abort", parents=[common], help="end it for all members")
    abort.add_argument("reason", metavar="REASON", help="what all are told")
    abort.add_argument("--as", dest="role", default="", metavar="ROLE", help="which member this is")
    status = verbs.add_parser("status", parents=[common], help="tell how far all are")
    status.add_argument("--json", action="store_true", help="for programs")
    for verb in (abort, status):
        verb.add_argument("--deadline", type=float, default=60.0, metavar="S", help="how long to try, s (60)")
    given = parser.parse_args(arguments)
    if given.verb is None:
        parser.error("name a verb: arrive, abort, status")
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
