"""`ringroad-lab notify`, and the options of all verbs that send notifications."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringroad_lab.cli.store_options import STORED_RUN_HELP, StoreOption, open_store
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
        help="Settings of the recipients of notifications: webhook, mail, ...; `list notifiers` shows all kinds.",
        show_default="notifications.toml in the settings folder, if it exists",
    ),
]
WebhookUrl = Annotated[
    str | None,
    typer.Option(
        _WEBHOOK,
        metavar="URL",
        help="Also notify this server of a regression or a failure, signed with $RINGROAD_LAB_WEBHOOK_SECRET. The URL is not recorded.",
    ),
]


def notify(
    run: Annotated[str, typer.Argument(help=STORED_RUN_HELP)] = "latest",
    file: NotifyFile = None,
    webhook: WebhookUrl = None,
    store: StoreOption = None,
) -> None:
    """Notify all recipients in the settings of the end of a stored run, whatever its result: to test the settings, or to notify again."""
    from ringroad_lab.notification.delivery import notify
    from ringroad_lab.notification.message import Notice

    recipients = load_targets(file, webhook)
    if not recipients:
        raise ScenarioError(f"there are no recipients: write {_default_file()}, or name another file with --notify")
    with open_store(store) as results:
        run_id = results.resolve(run)
        notice = Notice(results.get_run(run_id), next(iter(results.comparisons(run_id)), None))
    if problems := notify(recipients, notice):
        raise LabError("not notified: " + "; ".join(problems))
    typer.echo(f"notified: {', '.join(target.name for target in recipients)}")


def load_targets(file: Path | None, webhook: str | None) -> list[Target]:
    """Return all recipients of notifications.

    Raises:
        ScenarioError: the settings are invalid, or a secret is missing.
    """
    from ringroad_lab.notification.delivery import targets
    from ringroad_lab.notification.settings import read_notifications
    from ringroad_lab.notification.webhook import SECRET_VARIABLE, Webhook

    default = _default_file()
    notifiers = read_notifications(file or default) if file or default.exists() else ()
    if webhook is not None:
        is_signed = bool(os.environ.get(SECRET_VARIABLE))
        more = Webhook.model_validate({"url": webhook, "secret_env": SECRET_VARIABLE if is_signed else None})
        notifiers = (*notifiers, more)
    return targets(notifiers)


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """Return the command line arguments for the record, without --webhook: the URL of a webhook is often a secret."""
    kept: list[str] = []
    is_url = False
    for argument in arguments:
        if not is_url and argument != _WEBHOOK and not argument.startswith(f"{_WEBHOOK}="):
            kept.append(argument)
        is_url = argument == _WEBHOOK and not is_url
    return kept


def warn_of(problems: Sequence[str]) -> None:
    """Warn the user of notifications that were not sent; they do not change the result of the run."""
    for problem in problems:
        print(f"ringroad-lab: warning: not notified: {printable(problem)}", file=sys.stderr)


def _default_file() -> Path:
    from ringroad_lab.notification.settings import FILE_NAME

    return settings_folder(os.environ) / FILE_NAME
