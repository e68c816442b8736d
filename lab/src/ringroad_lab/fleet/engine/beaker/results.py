"""Reads Beaker's results XML: a superset of job XML, with a state and a result at each part."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree.ElementTree import Element

from ringroad_lab.fleet.engine.beaker.job_xml import TASK
from ringroad_lab.fleet.inventory import GENERATOR
from ringroad_lab.safe_xml import parse_xml

STATUS_RESULT = "exit-status"
"""Last part of the path of the result whose score is the exit status of `ringroad-lab`."""
_REPORTED_RESULTS = 20


@dataclass(frozen=True)
class JobEnding:
    """End of a job."""

    exit_status: int | None
    """Exit status of `ringroad-lab`; None: the program did not reach its end."""
    words: str
    """A line for the job, and one for each result that is not a success."""


def read_results(text: bytes) -> JobEnding:
    """Read the results of a job.

    Raises:
        ValueError: invalid XML.
    """
    root = parse_xml(text)
    lines = [f"Beaker: {root.get('status', 'no status')}, {root.get('result', 'no result')}"]
    status = None
    for recipe in (each for each in root.iter() if each.tag in ("recipe", "guestrecipe")):
        role = recipe.get("role", "") if recipe.tag == "recipe" else "guest"
        machine = recipe.get("system", "")
        for task in recipe.findall("task"):
            for result in task.iter("result"):
                if role == GENERATOR.upper() and task.get("name") == TASK and _is_status(result):
                    status = int(result.get("score", ""))
                if result.get("result") not in ("Pass", "Skip", "None"):
                    message = " ".join((result.text or "").split())
                    lines.append(f"{role} {machine}: {task.get('name')}: {result.get('result')}: {result.get('path')} {message}".strip())
    return JobEnding(status, "\n".join([*lines[: _REPORTED_RESULTS + 1], *(["..."] if len(lines) > _REPORTED_RESULTS + 1 else [])]))


def _is_status(result: Element) -> bool:
    is_named = result.get("path", "").rstrip("/").rpartition("/")[2] == STATUS_RESULT
    return is_named and result.get("score", "").isdecimal() and len(result.get("score", "")) < 4
