"""The levels of the laboratory's packages: each imports only packages of lower levels, and no modules import each other in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import ringroad_lab

LEVELS = (
    # Values, texts and small tools.
    ("deadline", "frame_size", "grouping", "http_answer", "package_names", "safe_xml", "text_types", "tied", "tunnel", "whole_file"),
    ("crowd", "errors", "trial"),
    # A machine, the record of a run, the registry of a kind.
    ("flow_set", "host", "kinds", "koji_hub", "loss", "record", "sandbox", "secret"),
    ("amqp_broker", "build", "cable", "cost", "disturbances", "ringroad_program", "statistics"),
    ("comparison", "facts", "noise"),
    # What offers a load, what forwards it, what measures it; what keeps and shows results.
    ("generator", "store"),
    ("dut", "method", "request"),
    ("guest", "topology"),
    ("message_size", "report"),
    ("migration",),
    ("documents", "rendezvous", "scenario"),
    ("notification", "setup"),
    # What carries all of that out.
    ("fleet",),
    ("run", "web"),
    ("cli",),
)
"""Packages and modules below `ringroad_lab`, the lowest level first."""


def modules(root: Path) -> dict[str, Path]:
    """Return the files of all modules below a package's folder, by their names below it; the package itself is empty."""
    found = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(text: str, package: str, known: Mapping[str, Path]) -> Iterator[str]:
    """Return the modules of the package that a module's text imports anywhere: in functions and for type checkers, too."""
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports have absolute names"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.partition(".")[0] == package:
                below = name.partition(".")[2]
                yield below if below in known else below.rpartition(".")[0]


def faults(root: Path, levels: tuple[tuple[str, ...], ...]) -> list[str]:
    """Return the imports against the levels, and the first circle of modules, with the names of both ends."""
    known = modules(root)
    level = {name: number for number, names in enumerate(levels) for name in names}
    imports = {name: set(imported(path.read_text(), root.name, known)) - {name, ""} for name, path in known.items()}
    packages = {name: name.partition(".")[0] for name in known}
    found = [f"{package} has no level" for package in sorted(set(packages.values()) - level.keys() - {""})]
    found += [f"{package} has a level, but does not exist" for package in sorted(level.keys() - set(packages.values()))]
    for name, targets in sorted(imports.items()):
        for target in sorted(targets):
            here, there = packages[name], packages[target]
            if here != there and level.get(there, 0) >= level.get(here, 0):
                found.append(f"{name} imports {target}: {there} is not on a lower level than {here}")
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        found.append("a circle: " + " imports ".join(reversed(error.args[1])))
    return found


def test_packages_import_lower_levels_only() -> None:
    assert faults(Path(ringroad_lab.__file__).parent, LEVELS) == []


def test_an_import_of_a_higher_level_and_a_circle_are_found_in_functions_and_for_type_checkers_too(tmp_path: Path) -> None:
    root = tmp_path / "some"
    for file, text in {
        "__init__.py": "",
        "low/__init__.py": "",
        "low/one.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from some.high import Value",
        "low/two.py": "def act():\n    import some.low.three",
        "low/three.py": "from some.low import two",
        "high.py": "from some.low.one import Other",
        "new.py": "",
    }.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    found = faults(root, (("low",), ("high", "gone")))
    assert "low.one imports high: high is not on a lower level than low" in found
    assert "new has no level" in found
    assert "gone has a level, but does not exist" in found
    assert any(fault.startswith("a circle: ") for fault in found)
    (root / "low/one.py").write_text("")
    assert any(
        "low.two imports low.three" in fault or "low.three imports low.two" in fault for fault in faults(root, (("low",), ("high", "new")))
    )
