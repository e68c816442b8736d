"""Settings files: their values, the lines of keys, and rejected files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringroad_lab.errors import ScenarioError
from ringroad_lab.scenario.document import parse_toml, parse_value, read_document
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


def test_a_document_has_the_line_of_each_setting() -> None:
    document = parse_toml(TOML, "file")
    assert document.tree == {
        "queues": 2,
        "frames": [64],
        "dut": {"ovs": {"physical": "veth", "settings": {"veth_mode": "afxdp"}}},
        "host": {"a-b": {"port": 22}},
    }
    paths = [("queues",), ("dut", "ovs", "physical"), ("dut", "ovs", "settings", "veth_mode"), ("host", "a-b", "port")]
    assert tuple(document.lines[path] for path in paths) == (1, 6, 7, 9)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.toml", b"queues = \n", "line 1"),
        ("a.toml", b"a = 1\na = 2\n", "line 2"),
        ("a.toml", b"when = 2026-01-01\n", "when: a date is not a valid setting"),
        ("a.toml", b"link_bps = inf\n", "link_bps: inf is not a finite number"),
        ("a.toml", b"\xff\n", "not UTF-8"),
        ("a.toml", b"#" * (2 << 20), "longer than 1 MiB"),
        ("a.toml", b"flows = " + b"9" * 5000, "Exceeds the limit (4300 digits)"),
        ("a.yaml", b"a: 1\n", "files of settings are in TOML"),
        ("a.toml", b"a = " + b"[" * 20 + b"]" * 20, "more than 16 deep"),
    ],
)
def test_an_invalid_settings_file_is_rejected(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        read_document(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert expected in str(caught.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="No such file"):
        read_document(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("-1.5e6", -1.5e6),
        ("false", False),
        ("testpmd", "testpmd"),
        ("3.1.0", "3.1.0"),
        ("64:7,594:4", "64:7,594:4"),
        ("a = b # c", "a = b # c"),
        ("", None),
        (" spaces within ", "spaces within"),
        ("null", None),
        ("[64, imix]", [64, "imix"]),
        ("[P2P]", ["P2P"]),
        ("[64, imix, '64:7,594:4']", [64, "imix", "64:7,594:4"]),
        ("[]", []),
        ('["a, b", "c"]', ["a, b", "c"]),
        ("[[1, 2], [3]]", [[1, 2], [3]]),
        ('{a = 1, b = "c"}', {"a": 1, "b": "c"}),
        ('"null"', "null"),
    ],
)
def test_a_value_of_the_command_line_needs_no_quotes(text: str, value: object) -> None:
    assert parse_value(text, "--set x") == value


@pytest.mark.parametrize("text", ["{a: 1}", "[a, [b]]", '"open', "[a", "1\nother = 2", "2026-01-01", "nan"])
def test_an_invalid_value_is_rejected(text: str) -> None:
    with pytest.raises(ScenarioError, match="--set x"):
        parse_value(text, "--set x")


_scalars = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20)
)
_values = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
_trees = st.recursive(
    st.dictionaries(st.text(max_size=8), _values, max_size=4),
    lambda inner: st.dictionaries(st.text(max_size=8), st.one_of(_values, inner), max_size=4),
    max_leaves=8,
)


@given(_trees)
def test_written_toml_reads_back(tree: dict[str, object]) -> None:
    assert parse_toml(toml_text(tree), "shown").tree == tree
