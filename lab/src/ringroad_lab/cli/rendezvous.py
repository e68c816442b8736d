"""`ringroad-lab rendezvous`: the machines of a job meet at numbered barriers."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from ringroad_lab.errors import LabError, ScenarioError
from ringroad_lab.rendezvous import member

Servers = Annotated[
    list[str] | None,
    typer.Option(
        "--server", metavar="HOST:PORT", help="Address of the server; can be repeated.", show_default=f"${member.SERVERS_VARIABLE}"
    ),
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file", metavar="FILE", help="File with the secret in its first line.", show_default=f"${member.SECRET_VARIABLE}"
    ),
]
Tries = Annotated[float, typer.Option("--deadline", metavar="S", help="How long to try to reach the server, s.")]


def serve(
    roles: Annotated[list[str], typer.Argument(metavar="ROLE...", help="All members: generator, dut, ...", show_default=False)],
    state: Annotated[Path, typer.Option(metavar="FILE", help="File for the state: one file for each job.", show_default=False)],
    listen: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.", show_default="all")] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free port, which is printed.")] = member.PORT,
    silence: Annotated[
        float,
        typer.Option(
            min=2 * member.HOLD_S, help="A member is silent after this time without a request, s; barriers wait for silent members."
        ),
    ] = 30.0,
    secret_file: SecretFile = None,
) -> None:
    """Serve the rendezvous of one job until SIGTERM or Ctrl-C. A server that is restarted with the same state continues."""
    from pydantic import ValidationError

    from ringroad_lab.errors import value_problems
    from ringroad_lab.rendezvous.meeting import Meeting
    from ringroad_lab.rendezvous.server import Server
    from ringroad_lab.rendezvous.server import serve as serve_until_cancelled
    from ringroad_lab.rendezvous.state_file import StateFile

    with _usage_errors():
        secret = _secret(secret_file)
    try:
        meeting = Meeting.of(roles)
    except ValidationError as error:
        raise ScenarioError(f"invalid members: {value_problems(error)[0]}") from error
    kept = StateFile(state, secret)
    known = kept.load()
    if known is not None and set(known.members) != set(meeting.members):
        raise LabError(f"{state} belongs to the members {', '.join(known.members)}: name another file, or remove it")
    with _listen(listen, port) as listener:
        address, its_port = listener.getsockname()[:2]
        where = f"{f'[{address}]' if ':' in address else address}:{its_port}"

        async def main() -> None:
            server = Server(known or meeting, kept, secret, silence_limit_s=silence, say=lambda text: typer.echo(text, err=True))
            serving = asyncio.ensure_future(
                serve_until_cancelled([listener], server, lambda: typer.echo(f"rendezvous of {', '.join(meeting.members)} at {where}"))
            )
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await serving

        try:
            asyncio.run(main())
        except OSError as error:
            raise LabError(f"{state}: the state cannot be saved: {error.strerror}") from error


def arrive(
    barrier: Annotated[int, typer.Argument(metavar="N", help="Number of the barrier; the first is 1.", show_default=False)],
    role: Annotated[str, typer.Option("--as", metavar="ROLE", help="Role of this member.", show_default=False)],
    deadline: Annotated[float, typer.Option(metavar="S", help="Time within which all members must arrive, s.", show_default=False)],
    boot: Annotated[
        str | None, typer.Option(metavar="ID", help="Id of this boot of the machine.", show_default="the kernel's boot id")
    ] = None,
    server: Servers = None,
    secret_file: SecretFile = None,
) -> None:
    """Arrive at a barrier, and wait for the other members; exit status 0: all arrived, 1: a member aborted, 3: the deadline passed."""
    boot_id = member.boot_id() if boot is None else boot
    _end_with(server, secret_file, deadline, lambda this: this.arrive(barrier, role, deadline, boot_id))


def abort(
    reason: Annotated[str, typer.Argument(metavar="REASON", help="Reason, which is reported to all members.", show_default=False)],
    role: Annotated[str, typer.Option("--as", metavar="ROLE", help="Role of this member.")] = "",
    deadline: Tries = 60.0,
    server: Servers = None,
    secret_file: SecretFile = None,
) -> None:
    """Abort the rendezvous for all members: waiting members see it at once, the others when they reach a barrier."""
    _end_with(server, secret_file, deadline, lambda this: this.abort(reason, role, deadline))


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    deadline: Tries = 60.0,
    server: Servers = None,
    secret_file: SecretFile = None,
) -> None:
    """Print the progress of all members; exit status 1 if the rendezvous was aborted."""
    _end_with(server, secret_file, deadline, lambda this: this.status(deadline, as_json))


def client() -> None:
    """Print the client program, one file that needs only Python 3.6: for machines without the laboratory."""
    typer.echo(inspect.getsource(member), nl=False)


def _end_with(server: list[str] | None, secret_file: Path | None, deadline_s: float, act: Callable[[member.Member], int]) -> None:
    with _usage_errors():
        member.check_deadline(deadline_s)
        status = act(member.Member(member.read_servers(server), _secret(secret_file)))
    raise typer.Exit(status)


def _secret(file: Path | None) -> bytes:
    return member.read_secret(str(file) if file else None)


@contextlib.contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except member.UsageError as error:
        raise ScenarioError(str(error)) from error


def _listen(address: str, port: int) -> socket.socket:
    is_dual = not address and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual or ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=128, dualstack_ipv6=is_dual)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise LabError(f"cannot listen on {address or 'all addresses'} port {port}: {why}; --listen and --port name another") from error


VERBS = typer.Typer(help="The machines of a job meet at numbered barriers.", no_args_is_help=True)
for _verb in (serve, arrive, abort, status, client):
    VERBS.command()(_verb)
