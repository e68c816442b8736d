"""`ringroad-lab user`: users who may log in to the web page."""

from __future__ import annotations

import sys

import typer

from ringroad_lab.cli.store_options import StoreOption
from ringroad_lab.errors import LabError


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands = typer.Typer(help="Who may log in to the web page.", no_args_is_help=True)
    commands.command("add")(add)
    commands.command("list")(show)
    commands.command("remove")(remove)
    app.add_typer(commands, name="user")


def add(name: str, store: StoreOption = None) -> None:
    """Add a user, or give one a new password, which ends the user's sessions.

    The password is asked for, or is the first line of standard input.
    """
    from ringroad_lab.store.result_store import ResultStore
    from ringroad_lab.web.accounts import check_name, set_password

    # Before the password is asked for.
    check_name(name)
    with ResultStore(store) as results:
        is_new = set_password(results, name, _read_password())
    typer.echo(f"{name} {'can log in now' if is_new else 'has a new password'}.")


def show(store: StoreOption = None) -> None:
    """List all users."""
    from ringroad_lab.store.result_store import ResultStore
    from ringroad_lab.web.accounts import user_names

    with ResultStore(store) as results:
        for name in user_names(results):
            typer.echo(name)


def remove(name: str, store: StoreOption = None) -> None:
    """Remove a user; what the user did stays."""
    from ringroad_lab.store.result_store import ResultStore
    from ringroad_lab.web.accounts import remove_user

    with ResultStore(store) as results:
        remove_user(results, name)
    typer.echo(f"{name} cannot log in any more.")


def _read_password() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    try:
        return sys.stdin.buffer.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise LabError("the password is no text in UTF-8") from error
