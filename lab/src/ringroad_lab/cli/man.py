"""`ringroad-lab man`: the manual page, made from the program's own help."""

from __future__ import annotations

from collections.abc import Iterator

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from ringroad_lab import __version__
from ringroad_lab.cli import status

_FILES = {
    "~/.config/ringroad-lab/scenarios/NAME.toml": "Your own scenarios.",
    "~/.config/ringroad-lab/site.toml, hosts/HOSTNAME.toml": "Layers of the site and of a host.",
    "~/.config/ringroad-lab/fleet.toml": "Sources of requests, rules, engines and beds.",
    "$RINGROAD_LAB_CONFIG": "Folder that replaces ~/.config/ringroad-lab.",
    "$RINGROAD_LAB_WEBHOOK_SECRET": "Key that signs what --webhook sends.",
}


def man(context: typer.Context) -> None:
    """Print the manual page, for `man -l -`."""
    group = context.find_root().command
    assert isinstance(group, TyperGroup)
    print(roff(group), end="")


def roff(group: TyperGroup) -> str:
    """Return the manual page of a program, with all its verbs."""
    name = group.name or "ringroad-lab"
    lines = [
        f'.TH {name.upper()} 1 "" "{name} {__version__}"',
        ".SH NAME",
        f"{_escape(name)} \\- {_escape((group.help or '').rstrip('.'))}",
        ".SH SYNOPSIS",
    ]
    verbs = dict(_verbs(group))
    for number, (verb, command) in enumerate(verbs.items()):
        lines += [".br"] if number else []
        lines += [f".B {_escape(name)} {_escape(verb)}", _escape(" ".join(_usage(command)))]
    lines.append(".SH COMMANDS")
    for verb, command in verbs.items():
        lines += [f".SS {_escape(verb)}", _escape(command.help or "")]
        for parameter in command.params:
            if isinstance(parameter, TyperArgument):
                lines += [".TP", f".I {_escape(_argument_name(parameter))}", _escape(parameter.help or "")]
            elif isinstance(parameter, TyperOption) and not parameter.hidden:
                lines += [".TP", f".B {_escape(_option_names(parameter))}", _escape(parameter.help or "")]
    for title, entries in (("EXIT STATUS", {str(number): text for number, text in status.MEANINGS.items()}), ("FILES", _FILES)):
        lines.append(f".SH {title}")
        for term, text in entries.items():
            lines += [".TP", f".B {_escape(term)}", _escape(text)]
    return "\n".join(line for line in lines if line) + "\n"


def _verbs(group: TyperGroup) -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    """Yield all verbs, including nested ones such as `baseline set`."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            if command.invoke_without_command:
                yield name, command
            yield from ((f"{name} {inner}", verb) for inner, verb in _verbs(command))
        elif isinstance(command, TyperCommand):
            yield name, command


def _usage(command: TyperCommand | TyperGroup) -> list[str]:
    arguments = [parameter for parameter in command.params if isinstance(parameter, TyperArgument)]
    return ["[OPTION]...", *(_argument_name(each) if each.required else f"[{_argument_name(each)}]" for each in arguments)]


def _argument_name(argument: TyperArgument) -> str:
    return argument.metavar or (argument.name or "").upper()


def _option_names(option: TyperOption) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.metavar or 'VALUE'}"


def _escape(text: str) -> str:
    r"""Escape text for one line of roff, where backslashes, dashes, and leading dots or quotes have a special meaning."""
    plain = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
