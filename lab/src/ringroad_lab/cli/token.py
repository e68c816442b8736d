"""`ringroad-lab token`: tokens with which users log in to the web page, and programs send and read results."""

from __future__ import annotations

import json

import typer

from ringroad_lab.cli.scenario_options import AsJson
from ringroad_lab.cli.store_options import StoreOption, open_store


def add(name: str, store: StoreOption = None) -> None:
    """Create a token for a user or a program, and print it once: the token itself is not stored."""
    from ringroad_lab.web.tokens import add_token

    with open_store(store) as results:
        typer.echo(add_token(results, name))


def show(store: StoreOption = None, as_json: AsJson = False) -> None:
    """List the names of all tokens."""
    from ringroad_lab.web.tokens import token_names

    with open_store(store) as results:
        names = list(token_names(results))
    if as_json:
        typer.echo(json.dumps(names, indent=2))
    else:
        for name in names:
            typer.echo(name)


def remove(name: str, store: StoreOption = None) -> None:
    """Remove a token: it becomes invalid, and its logins end."""
    from ringroad_lab.web.tokens import remove_token

    with open_store(store) as results:
        remove_token(results, name)
    typer.echo(f"token {name} removed")


VERBS = typer.Typer(help="Tokens with which users log in to the web page, and programs send and read results.", no_args_is_help=True)
VERBS.command("add")(add)
VERBS.command("list")(show)
VERBS.command("remove")(remove)
