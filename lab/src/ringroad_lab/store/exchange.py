"""Results as files: JSON files with one or several run records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ringroad_lab.errors import StoreError, value_problems
from ringroad_lab.record import RunRecord

_RECORDS = TypeAdapter(tuple[RunRecord, ...])
_PROBLEMS_SHOWN = 3


def write_records(records: Sequence[RunRecord]) -> str:
    """Return records as JSON: an object for one record, an array for several."""
    if len(records) == 1:
        return records[0].model_dump_json(indent=1) + "\n"
    return _RECORDS.dump_json(tuple(records), indent=1).decode() + "\n"


def read_records(text: str | bytes, source: str) -> tuple[RunRecord, ...]:
    """Read records that `write_records` wrote; errors name them by `source`.

    Raises:
        StoreError: the text is not run records, or has a newer schema.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{source}: invalid JSON ({error}): export a run with `ringroad-lab export RUN`") from error
    objects = content if isinstance(content, list) else [content]
    for item in objects:
        version = item.get("schema_version", 1) if isinstance(item, dict) else None
        if version is None or "run_id" not in item:
            raise StoreError(f"{source}: valid JSON, but not the record of a run: export a run with `ringroad-lab export RUN`")
        if isinstance(version, int) and version > 1:
            raise StoreError(f"{source}: schema {version} of a newer ringroad-lab; this ringroad-lab reads schema 1")
    try:
        # Validated from the text, not from the objects: only then are arrays accepted as tuples.
        return _RECORDS.validate_json(text if isinstance(content, list) else json.dumps(objects), strict=False)
    except ValidationError as error:
        problems = value_problems(error)
        more = f"; and {len(problems) - _PROBLEMS_SHOWN} more" if len(problems) > _PROBLEMS_SHOWN else ""
        raise StoreError(f"{source}: invalid record of a run: {'; '.join(problems[:_PROBLEMS_SHOWN])}{more}") from error


def read_record_file(path: Path) -> tuple[RunRecord, ...]:
    """Read a file of records.

    Raises:
        StoreError: the file cannot be read, or is not a file of records.
    """
    try:
        return read_records(path.read_bytes(), str(path))
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
