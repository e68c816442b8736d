"""The program `ringroad-lab`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from ringroad_lab import __version__
from ringroad_lab.cli import (
    beds,
    compare,
    dispatch,
    documents,
    job,
    judge,
    list_scenarios,
    man,
    notify,
    plan,
    rendezvous,
    report,
    request,
    rules,
    run_verbs,
    serve,
    show,
    store,
    token,
)
from ringroad_lab.errors import LabError
from ringroad_lab.report.plain_text import printable, printable_lines

PROGRAM = "ringroad-lab"
VERBS: Mapping[str, typer.Typer | Callable[..., None]] = {
    "list": list_scenarios.list_,
    "show": show.show,
    "plan": plan.plan,
    "run": run_verbs.run,
    "resume": run_verbs.resume,
    "report": report.report,
    "compare": compare.compare,
    "documents": documents.documents,
    "runs": store.runs,
    "export": store.export_runs,
    "import": store.import_runs,
    "baseline": store.BASELINE,
    "judge": judge.judge,
    "notify": notify.notify,
    "request": request.request,
    "requests": request.requests,
    "cancel": request.cancel,
    "retry": request.retry,
    "replay": request.replay,
    "renotify": request.renotify,
    "forget": request.forget,
    "rules": rules.VERBS,
    "beds": beds.VERBS,
    "dispatch": dispatch.dispatch,
    "job": job.job,
    "rendezvous": rendezvous.VERBS,
    "serve": serve.serve,
    "token": token.VERBS,
    "man": man.man,
}
"""In the order of the help."""


def make_app() -> typer.Typer:
    """Make the program's command, with all verbs."""
    app = typer.Typer(
        name=PROGRAM,
        no_args_is_help=True,
        epilog="Start with `ringroad-lab list`; then `plan` a scenario, and `run` it.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def lab(
        version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")] = False,
    ) -> None:
        """Measure virtual switches by RFC 2544 and related methods, compare them, and report the results."""

    for name, verb in VERBS.items():
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=name)
        else:
            app.command(name)(verb)
    return app


def main() -> None:
    """Run the program. An error is printed as a message, without a traceback, and sets the exit status."""
    try:
        # The same name however the program was started, also for completions.
        make_app()(prog_name=PROGRAM)
    except LabError as error:
        # Errors quote foreign text, which must not send control sequences to a terminal.
        text = printable_lines(str(error))
        print(f"{PROGRAM}: {text}", file=sys.stderr)
        sys.exit(error.exit_status)
    except OSError as error:
        # An example is a full disk of the output.
        print(f"{PROGRAM}: {printable(str(error))}", file=sys.stderr)
        sys.exit(1)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(f"{PROGRAM} {__version__}")
        raise typer.Exit


if __name__ == "__main__":
    main()
