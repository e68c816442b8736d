"""`[engine.slurm]` of `fleet.toml`."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from ringroad_lab.text_types import Word
from ringroad_lab.trial import Frozen

# Options that the engine sets itself: they define a job or its place.
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
        raise ValueError("must be an absolute path that is valid on the nodes")
    if "%" in path or "\\" in path:
        raise ValueError("contains % or a backslash, which Slurm interprets")
    return path


def _option(text: str) -> str:
    if not text.startswith("--") or text == "--":
        raise ValueError("must be one long option of sbatch: --NAME or --NAME=VALUE")
    if (name := text[2:].partition("=")[0]) in _OWN_OPTIONS:
        raise ValueError(f"--{name} is reserved for the engine")
    return text


AbsolutePath = Annotated[Word, AfterValidator(_absolute)]


class SlurmSettings(Frozen):
    """Settings of submitting jobs, and the environment of jobs on the nodes."""

    partition: Word = ""
    """Empty, here and below: Slurm's default."""
    account: Word = ""
    qos: Word = ""
    time_limit: Annotated[Word, Field(pattern=r"^[0-9:-]*$")] = ""
    """Time in the format of sbatch: minutes, `8:00:00`, `1-00:00:00`."""
    stop_before_limit_s: Annotated[int, Field(ge=1, le=65535)] = 300
    """Time before the limit at which a run is signalled to stop after its trial; the next attempt resumes the run."""
    licenses: Word = ""
    """Licenses of devices that beds share, in the format of sbatch: `ixia:1`. Each job requests them."""
    options: Annotated[tuple[Annotated[Word, AfterValidator(_option)], ...], Field(max_length=50)] = ()
    """Additional options of sbatch."""
    most_waiting: Annotated[int, Field(ge=1, le=1000)] = 8
    """Maximum number of jobs that wait in Slurm; other requests wait in the store, whose order counts."""
    program: Annotated[tuple[Word, ...], Field(min_length=1, max_length=20)] = ("ringroad-lab",)
    """Command of `ringroad-lab` on the nodes."""
    environment_file: AbsolutePath | None = None
    """File on the nodes with lines NAME=VALUE in shell syntax, read before the run. It can set RINGROAD_LAB_STORE with its password."""
    folder: AbsolutePath | None = None
    """Folder that dispatchers and nodes share: output, nodes and exit status of jobs. None: the dispatcher's `--jobs`."""
    bed_patience_s: Annotated[float, Field(ge=0, le=1e6)] = 900.0
    """Time that a run that has begun waits for its bed to come back; then another bed repeats the measurement."""
    config: AbsolutePath | None = None
    """The dispatcher's slurm.conf. None: $SLURM_CONF, or Slurm's default."""
    answer_within_s: Annotated[float, Field(gt=0, le=600)] = 20.0
    """Time limit for a call of a Slurm program."""
