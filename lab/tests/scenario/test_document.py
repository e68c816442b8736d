"""Files of settings: what is read, on which line it is, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringroad_lab.errors import ScenarioError
from ringroad_lab.scenario.document import parse_toml, parse_yaml, read_document
from ringroad_lab.scenario.toml_text import toml_text

TOML = """\
queues = 2
frames = [
    64,
]
[dut.ovs]
physical = "veth"
settings.veth_mode = "afxdp"
["host"."a-b"]
port = 22
"""
YAML = """\
queues: 2
frames:
  - 64
dut:
  ovs:
    physical: veth
    settings: {veth_mode: afxdp}
host:
  a-b:
    port: 22
"""


@pytest.mark.parametrize(("parse", "text", "lines"), [(parse_toml, TOML, (1, 6, 7, 9)), (parse_yaml, YAML, (1, 6, 7, 10))])
def test_both_languages_say_the_same_and_on_which_line(parse, text: str, lines: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    document = parse(text, "file")
    assert document.tree == {
        "queues": 2,
        "frames": [64],
        "dut": {"ovs": {"physical": "veth", "settings": {"veth_mode": "afxdp"}}},
        "host": {"a-b": {"port": 22}},
    }
    paths = [("queues",), ("dut", "ovs", "physical"), ("dut", "ovs", "settings", "veth_mode"), ("host", "a-b", "port")]
    assert tuple(document.lines[path] for path in paths) == lines


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.toml", b"queues = \n", "line 1"),
        ("a.toml", b"a = 1\na = 2\n", "line 2"),
        ("a.toml", b"when = 2026-01-01\n", "when: a date is no setting"),
        ("a.toml", b"link_bps = inf\n", "link_bps: inf is not a number to measure with"),
        ("a.toml", b"\xff\n", "not UTF-8"),
        ("a.toml", b"#" * (2 << 20), "longer than 1 MiB"),
        ("a.toml", b"flows = " + b"9" * 5000, "Exceeds the limit (4300 digits)"),
        ("a.yaml", b"flows: " + b"9" * 5000, "Exceeds the limit (4300 digits)"),
        ("a.yaml", b"a: 1\nb: [\n", "a.yaml:3:1"),
        ("a.yaml", b'title: "\\ud800"\n', "title: '\\ud800' is half of a character"),
        ("a.yaml", b'"\\ud800": 1\n', "'\\ud800' is half of a character"),
        ("a.yaml", b'a: "\x01"\n', "special characters are not allowed"),
        ("a.yaml", b"a: 1\na: 2\n", "duplicate key"),
        ("a.yaml", b"- 1\n", "a table of settings is needed, not a list"),
        ("a.yaml", b"1: 2\n", "the key 1 is not a text"),
        ("a.yaml", b"a: !!python/object/apply:os.system [id]\n", "not YAML"),
        ("a.yaml", b"a: &a [*a]\n", "deep"),
        ("a.ini", b"", ".toml, .yaml, .yml"),
    ],
)
def test_an_invalid_file_of_settings_is_refused(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        read_document(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert told in str(caught.value)


def test_aliases_that_expand_too_far_are_refused() -> None:
    text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{below}'] * 10)}]\n" for below, name in pairwise("abcdefgh")
    )
    with pytest.raises(ScenarioError, match="more than 100000 values"):
        parse_yaml(text, "file")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="No such file"):
        read_document(tmp_path / "none.toml")


def test_an_empty_yaml_file_sets_nothing() -> None:
    assert parse_yaml("# nothing\n", "file").tree == {}


_scalars = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20)
)
_values = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
_trees = st.recursive(
    st.dictionaries(st.text(max_size=8), _values, max_size=4),
    lambda inner: st.dictionaries(st.text(max_size=8), st.one_of(_values, inner), max_size=4),
    max_leaves=8,
)


@settings(deadline=None)
@given(_trees)
def test_written_toml_reads_back(tree: dict[str, object]) -> None:
    assert parse_toml(toml_text(tree), "shown").tree == tree
