"""Results as files: the records as JSON, one or several in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ringroad_lab.errors import StoreError, value_problems
from ringroad_lab.record import RunRecord

_RECORDS = TypeAdapter(tuple[RunRecord, ...])
_PROBLEMS_TOLD = 3


def write_records(records: Sequence[RunRecord]) -> str:
    """Return records as JSON: an object for one, an array for several."""
    if len(records) == 1:
        return records[0].model_dump_json(indent=1) + "\n"
    return _RECORDS.dump_json(tuple(records), indent=1).decode() + "\n"


def read_records(text: str | bytes, source: str) -> tuple[RunRecord, ...]:
    """Read what `write_records` wrote; `source` names it in errors.

    Raises:
        StoreError: it is not records of runs, or of a newer schema.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{source}: it is no JSON ({error}): export a run with `ringroad-lab export RUN`") from error
    objects = content if isinstance(content, list) else [content]
    for item in objects:
        version = item.get("schema_version", 1) if isinstance(item, dict) else None
        if version is None or "run_id" not in item:
            raise StoreError(f"{source}: it is JSON, but not the record of a run: export one with `ringroad-lab export RUN`")
        if isinstance(version, int) and version > 1:
            raise StoreError(f"{source}: its schema is {version}, of a newer ringroad-lab; this one reads schema 1")
    try:
        # From the text, not the objects: only so arrays count as tuples.
        return _RECORDS.validate_json(text if isinstance(content, list) else json.dumps(objects), strict=False)
    except ValidationError as error:
        problems = value_problems(error)
        more = f"; and {len(problems) - _PROBLEMS_TOLD} more" if len(problems) > _PROBLEMS_TOLD else ""
        raise StoreError(f"{source}: the record of a run is not right: {'; '.join(problems[:_PROBLEMS_TOLD])}{more}") from error


def read_record_file(path: Path) -> tuple[RunRecord, ...]:
    """Read a file of records.

    Raises:
        StoreError: it cannot be read, or is not one.
    """
    try:
        return read_records(path.read_bytes(), str(path))
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
