"""`ringroad-lab rendezvous`: the machines of a job meet at numbered barriers."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from ringroad_lab.errors import LabError, ScenarioError
from ringroad_lab.rendezvous import member

T = TypeVar("T")
Servers = Annotated[
    list[str] | None,
    typer.Option("--server", metavar="HOST:PORT", help="Where the server is; may be repeated.", show_default=f"${member.SERVERS_VARIABLE}"),
]
SecretFile = Annotated[
    Path | None,
    typer.Option("--secret-file", metavar="FILE", help="Its first line is the secret.", show_default=f"${member.SECRET_VARIABLE}"),
]
Tries = Annotated[float, typer.Option("--deadline", metavar="S", help="How long to try to reach the server, s.")]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    commands = typer.Typer(help="The machines of a job meet at numbered barriers.", no_args_is_help=True)
    for verb in (serve, arrive, abort, status, client):
        commands.command()(verb)
    app.add_typer(commands, name="rendezvous")


def serve(
    roles: Annotated[list[str], typer.Argument(metavar="ROLE...", help="All members: generator, dut, ...", show_default=False)],
    state: Annotated[Path, typer.Option(metavar="FILE", help="Where the state is kept: one file for each job.", show_default=False)],
    listen: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.", show_default="all")] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is any that is free, and is printed.")] = member.PORT,
    silence: Annotated[
        float, typer.Option(min=2 * member.HOLD_S, help="A barrier waits for members that were not heard of for so long, s.")
    ] = 30.0,
    secret_file: SecretFile = None,
) -> None:
    """Serve the rendezvous of one job until SIGTERM or Ctrl-C. Started again with the same state, it goes on."""
    from pydantic import ValidationError

    from ringroad_lab.errors import value_problems
    from ringroad_lab.rendezvous.meeting import Meeting
    from ringroad_lab.rendezvous.server import Server
    from ringroad_lab.rendezvous.server import serve as serve_until_cancelled
    from ringroad_lab.rendezvous.state_file import StateFile

    secret = _exiting_on_error(lambda: member.read_secret(str(secret_file) if secret_file else None))
    try:
        meeting = Meeting.of(roles)
    except ValidationError as error:
        raise ScenarioError(f"these cannot be the members: {value_problems(error)[0]}") from error
    kept = StateFile(state, secret)
    known = kept.load()
    if known is not None and set(known.members) != set(meeting.members):
        raise LabError(f"{state} is of the members {', '.join(known.members)}: name another file, or remove it")
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
            raise LabError(f"{state}: the state cannot be kept: {error.strerror}") from error


def arrive(
    barrier: Annotated[int, typer.Argument(metavar="N", help="Number of the barrier; the first is 1.", show_default=False)],
    role: Annotated[str, typer.Option("--as", metavar="ROLE", help="Which member this is.", show_default=False)],
    deadline: Annotated[float, typer.Option(metavar="S", help="Until all have to be there, s.", show_default=False)],
    boot: Annotated[
        str | None, typer.Option(metavar="ID", help="What tells this boot from others.", show_default="what the kernel says")
    ] = None,
    server: Servers = None,
    secret_file: SecretFile = None,
) -> None:
    """Come to a barrier, and wait there for the others: 0 they met, 1 somebody aborted, 3 the deadline is over."""
    deadline_s = _exiting_on_error(lambda: member.check_deadline(deadline))
    boot_id = member.boot_id() if boot is None else boot
    _end_with(server, secret_file, lambda asking: asking.arrive(barrier, role, deadline_s, boot_id))


def abort(
    reason: Annotated[str, typer.Argument(metavar="REASON", help="What all members are told.", show_default=False)],
    role: Annotated[str, typer.Option("--as", metavar="ROLE", help="Which member this is.")] = "",
    deadline: Tries = 60.0,
    server: Servers = None,
    secret_file: SecretFile = None,
) -> None:
    """End it for all members: those who wait see it at once, the others when they come to a barrier."""
    deadline_s = _exiting_on_error(lambda: member.check_deadline(deadline))
    _end_with(server, secret_file, lambda asking: asking.abort(reason, role, deadline_s))


def status(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    deadline: Tries = 60.0,
    server: Servers = None,
    secret_file: SecretFile = None,
) -> None:
    """Tell how far all members are; status 1 where it was aborted."""
    deadline_s = _exiting_on_error(lambda: member.check_deadline(deadline))
    _end_with(server, secret_file, lambda asking: asking.status(deadline_s, as_json))


def client() -> None:
    """Print the program of members, one file that needs Python 3.6 and nothing else: for machines without the laboratory."""
    typer.echo(inspect.getsource(member), nl=False)


def _end_with(server: list[str] | None, secret_file: Path | None, act: Callable[[member.Member], int]) -> None:
    asking = _exiting_on_error(
        lambda: member.Member(member.read_servers(server), member.read_secret(str(secret_file) if secret_file else None))
    )
    raise typer.Exit(_exiting_on_error(lambda: act(asking)))


def _exiting_on_error(act: Callable[[], T]) -> T:
    try:
        return act()
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
