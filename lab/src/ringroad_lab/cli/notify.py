"""`ringroad-lab notify`, and the options of all verbs that tell others how a run ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringroad_lab.cli.store_options import STORED_RUN_HELP, StoreOption
from ringroad_lab.errors import LabError, ScenarioError
from ringroad_lab.report.plain_text import printable
from ringroad_lab.scenario.library import settings_folder

if TYPE_CHECKING:
    from ringroad_lab.notification.delivery import Target

_WEBHOOK = "--webhook"
NotifyFile = Annotated[
    Path | None,
    typer.Option(
        "--notify",
        metavar="FILE",
        help="Settings of who is told, by webhook, mail, ...; `list notifiers` shows all ways.",
        show_default="notifications.toml in the folder of settings, where there is one",
    ),
]
WebhookUrl = Annotated[
    str | None,
    typer.Option(
        _WEBHOOK,
        metavar="URL",
        help="Tell this server too of a regression or a failure, signed with $RINGROAD_LAB_WEBHOOK_SECRET. The record leaves it out.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(notify)


def notify(
    run: Annotated[str, typer.Argument(help=STORED_RUN_HELP)] = "latest",
    file: NotifyFile = None,
    webhook: WebhookUrl = None,
    store: StoreOption = None,
) -> None:
    """Tell recipients in the settings how a stored run ended, whatever came of it: to try the settings, or to tell again."""
    from ringroad_lab.notification.delivery import notify
    from ringroad_lab.notification.message import Notice
    from ringroad_lab.store.result_store import ResultStore

    recipients = load_targets(file, webhook)
    if not recipients:
        raise ScenarioError(f"there is nobody to tell: write {_default_file()}, or name another file by --notify")
    with ResultStore(store) as results:
        run_id = results.resolve(run)
        notice = Notice(results.get_run(run_id), next(iter(results.comparisons(run_id)), None))
    if problems := notify(recipients, notice):
        raise LabError("not told: " + "; ".join(problems))
    typer.echo(f"told: {', '.join(target.name for target in recipients)}")


def load_targets(file: Path | None, webhook: str | None) -> list[Target]:
    """Return all who are to be told.

    Raises:
        ScenarioError: the settings are not right, or a secret is missing.
    """
    from ringroad_lab.notification.delivery import targets
    from ringroad_lab.notification.settings import read_notifications
    from ringroad_lab.notification.webhook import SECRET_VARIABLE, Webhook

    usual = _default_file()
    notifiers = read_notifications(file or usual) if file or usual.exists() else ()
    if webhook is not None:
        is_signed = bool(os.environ.get(SECRET_VARIABLE))
        more = Webhook.model_validate({"url": webhook, "secret_env": SECRET_VARIABLE if is_signed else None})
        notifiers = (*notifiers, more)
    return targets(notifiers)


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """Return arguments of the command line as a record may have them: the URL of a webhook is often a secret."""
    kept: list[str] = []
    is_url = False
    for argument in arguments:
        if not is_url and argument != _WEBHOOK and not argument.startswith(f"{_WEBHOOK}="):
            kept.append(argument)
        is_url = argument == _WEBHOOK and not is_url
    return kept


def warn_of(problems: Sequence[str]) -> None:
    """Tell the user what was not sent: the run's own result stays what it is."""
    for problem in problems:
        print(f"ringroad-lab: warning: not told: {printable(problem)}", file=sys.stderr)


def _default_file() -> Path:
    from ringroad_lab.notification.settings import FILE_NAME

    return settings_folder(os.environ) / FILE_NAME
