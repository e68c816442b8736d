"""What `[engine.slurm]` of `fleet.toml` holds."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from ringroad_lab.fleet.request import Word
from ringroad_lab.trial import Frozen

# Those that say what a job is, or where it runs: the engine's own.
_OWN_OPTIONS = frozenset(
    [
        "array",
        "batch",
        "chdir",
        "comment",
        "constraint",
        "dependency",
        "error",
        "exclusive",
        "export",
        "export-file",
        "hold",
        "input",
        "job-name",
        "mem",
        "no-requeue",
        "nodelist",
        "nodes",
        "open-mode",
        "output",
        "parsable",
        "requeue",
        "signal",
        "test-only",
        "wait",
        "wrap",
    ]
)


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("has to be an absolute path, as it is on the nodes")
    if "%" in path or "\\" in path:
        raise ValueError("has a % or a backslash, which Slurm takes for more than that")
    return path


def _option(text: str) -> str:
    if not text.startswith("--") or text == "--":
        raise ValueError("has to be one long option of sbatch, as --NAME or --NAME=VALUE")
    if (name := text[2:].partition("=")[0]) in _OWN_OPTIONS:
        raise ValueError(f"--{name} is the engine's own")
    return text


AbsolutePath = Annotated[Word, AfterValidator(_absolute)]


class SlurmSettings(Frozen):
    """How jobs are submitted, and what they find on the nodes."""

    partition: Word = ""
    """Empty, as all that follows: what Slurm has as default."""
    account: Word = ""
    qos: Word = ""
    time_limit: Annotated[Word, Field(pattern=r"^[0-9:-]*$")] = ""
    """As sbatch takes it: minutes, `8:00:00`, `1-00:00:00`."""
    stop_before_limit_s: Annotated[int, Field(ge=1, le=65535)] = 300
    """So long before the time limit a run is told to stop after its trial; its next attempt goes on."""
    licenses: Word = ""
    """Of what beds share, as sbatch takes them: `ixia:1`. Each job has them."""
    options: Annotated[tuple[Annotated[Word, AfterValidator(_option)], ...], Field(max_length=50)] = ()
    """More options of sbatch."""
    most_waiting: Annotated[int, Field(ge=1, le=1000)] = 8
    """So many jobs wait in Slurm; the other requests wait in the store, whose order counts."""
    program: Annotated[tuple[Word, ...], Field(min_length=1, max_length=20)] = ("ringroad-lab",)
    """How `ringroad-lab` is called on the nodes."""
    environment_file: AbsolutePath | None = None
    """Of the nodes: lines NAME=VALUE as a shell reads them, read before the run. There may be RINGROAD_LAB_STORE, with its password."""
    folder: AbsolutePath | None = None
    """Which the dispatchers and the nodes share: what jobs say, where they began, how they ended. None: the dispatcher's `--jobs`."""
    bed_patience_s: Annotated[float, Field(ge=0, le=1e6)] = 900.0
    """So long a run that has begun waits for its bed to come back; then it is measured anew on another."""
    config: AbsolutePath | None = None
    """The dispatcher's slurm.conf. None: as $SLURM_CONF says, or Slurm's own."""
    answer_within_s: Annotated[float, Field(gt=0, le=600)] = 20.0
    """A call of a program of Slurm that takes longer has failed."""
