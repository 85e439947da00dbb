from __future__ import annotations

import time
from pathlib import Path

import pytest

from tradewind.errors import SpecError
from tradewind.problem.yaml_source import parse_source, parse_value, read_source


def test_values_are_those_of_yaml_1_2() -> None:
    text = """
bool: [true, False, yes, off]
int: [1, -2, 0x10, 0o10, 010]
float: [1.5, 1e-3, .5, -.inf, 2.]
text: ["1", '2', 1:30, 2024-01-01, 1..9, 4.., =, <<]
nothing: [null, ~]
empty:
"""
    document = parse_source(text, "f").document
    assert document == {
        "bool": [True, False, "yes", "off"],
        "int": [1, -2, 16, 8, 10],
        "float": [1.5, 0.001, 0.5, float("-inf"), 2.0],
        "text": ["1", "2", "1:30", "2024-01-01", "1..9", "4..", "=", "<<"],
        "nothing": [None, None],
        "empty": None,
    }
    assert parse_source("a: .nan", "f").document["a"] != parse_source("a: .nan", "f").document["a"]


def test_every_key_and_item_has_its_line() -> None:
    source = parse_source("a: 1\nb:\n  c:\n    - x\n    - y: 2\nd: &n {e: 3}\nf: *n\n", "job.yaml")
    lines = {place: source.error(place, "m").line for place in [("a",), ("b", "c"), ("b", "c", 0), ("b", "c", 1, "y")]}
    assert list(lines.values()) == [1, 3, 4, 5]
    assert source.error(("b", "c", 7, "z"), "m").line == 3
    assert source.error(("f", "e"), "m").line == 6
    assert str(source.error(("d",), "wrong", "do this")) == "job.yaml:6: wrong (do this)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: is empty"),
        ("# only a comment\n", "f: is empty"),
        ("- a\n- b", "f:1: is not a mapping"),
        ("just words", "f:1: is not a mapping"),
        ("a: 1\nb: 2\na: 3", "f:3: the key 'a' is written twice .first on line 1"),
        ("a: {x: 1, x: 2}", "f:1: the key 'x' is written twice"),
        ("a:\n\tb: 1", "f:2: a tab stands where YAML wants spaces"),
        ("a:\n  b: 1\n \t c: 2", "f:3: a tab"),
        ("a: [1, 2", "f:1: is not YAML"),
        ("a: b: c", "f:1: is not YAML: mapping values are not allowed here"),
        ("a: {{ level }}", "f:1: "),
        ("a: 'x", "f:1: is not YAML"),
        ("a: @b", "f:1: is not YAML"),
        ("a: *nowhere", "f:1: is not YAML: found undefined alias"),
        ("a: &x [*x]", "deeply, or an alias holds itself|undefined alias"),
        ("a: !!python/object:os.system x", "f:1: the tag .*python/object.* is not allowed"),
        ("a: !!binary aGk=", "f:1: the tag"),
        ("a: !!set {x}", "f:1: the tag"),
        ("a: !mine [x]", "f:1: the tag"),
        ("a: 1\n---\nb: 2", "f:2: has more than one document"),
        ("a: 1\n\x00", "f: is not YAML"),
        ('a: 1\nb: {c: "x\\0"}', "f:2: there is a NUL byte in 'x"),
        ('"a\\0": 1', "f:1: there is a NUL byte"),
        ('a: "\\ud800"', "f:1: there is half of a character"),
        ("a: 1\nb: {<<: 3}", r"f:2: a merge key \(<<\) takes a mapping"),
        ("b: {<<: [{c: 1}, 3]}", "f:1: a merge key"),
        ("a: &a {<<: *a}", "deeply, or an alias holds itself|undefined alias"),
        ("? [a, b]\n: 1", "f:1: a key must be a word"),
        ("a: " + "[" * 5000, "nested too deeply|is not YAML"),
        ("a: " + "[" * 60 + "]" * 60, "nested too deeply"),
        ("a: " + "9" * 5000, "too many digits"),
        ("a: " + "x" * 1_000_001, "larger than 1000 kB"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        parse_source(text, "f")
    assert "\n" not in str(caught.value)


def test_merge_keys_bring_what_is_not_written_beside_them() -> None:
    text = """
x-common: &whole {type: integer, low: 1, high: 3}
x-more: &more {low: 7, log: true}
space:
  x: {<<: *whole, high: 5}
  y: {high: 9, <<: [*more, *whole]}
  z: {<<: {<<: *whole}}
"""
    source = parse_source(text, "f")
    assert source.document == {  # what begins with x- is room for anchors
        "space": {
            "x": {"type": "integer", "low": 1, "high": 5},
            "y": {"type": "integer", "low": 7, "high": 9, "log": True},
            "z": {"type": "integer", "low": 1, "high": 3},
        }
    }
    assert list(source.document["space"]["y"]) == ["type", "low", "high", "log"]
    assert source.error(("space", "x", "high"), "m").line == 5
    assert source.error(("space", "x", "low"), "m").line == 2  # where it was written


def test_text_stays_as_it_was_written_where_a_program_gets_it() -> None:
    text = """
job:
  command: [run, 3.10, 010, 1e3, 0x1F, True, 1.5, "3.10"]
  env: {A: 3.10, B: 010, C: 00123, D: 1e3, E: 0x1F, F: TRUE, G: .5, H: 2}
  load: {command: [push, 1.0], env: {RATE: 1_0}}
deploy:
  hooks: {before_booting: [{command: [echo, 007]}]}
  places: {"sftp://there": {user: 0123}}
space: {x: [010, 1e3], env: [1.50, 2], command: {values: [0x10]}}
"""
    document = parse_source(text, "f").document
    assert document["job"]["command"] == ["run", "3.10", "010", "1e3", "0x1F", "True", 1.5, "3.10"]
    assert document["job"]["env"] == {
        "A": "3.10", "B": "010", "C": "00123", "D": "1e3", "E": "0x1F", "F": "TRUE", "G": ".5", "H": 2,
    }  # fmt: skip
    assert document["job"]["load"] == {"command": ["push", 1.0], "env": {"RATE": "1_0"}}
    assert document["deploy"]["hooks"]["before_booting"][0]["command"] == ["echo", "007"]
    assert document["deploy"]["places"]["sftp://there"]["user"] == "0123"
    assert document["space"] == {"x": [10, 1000.0], "env": [1.5, 2], "command": {"values": [16]}}


@pytest.mark.parametrize(
    ("choices", "warned"),
    [
        ("[3.9, 3.10, 3.11]", ["3.10 is the number 3.1"]),
        ("[3.10]", ["3.10 is the number 3.1"]),
        ("{values: [3.9, 3.10]}", ["3.10 is the number 3.1"]),
        ("[007, 8]", ["007 is the number 7"]),
        ("[0.9, 0.10]", ["0.10 is the number 0.1"]),
        ("[0.25, 0.50, 0.75]", []),
        ("[1.0, 2.0]", []),
        ('["3.9", "3.10"]', []),
        ("[1e3, 10, 0]", []),
        ("[a, 3.5]", []),
    ],
)
def test_choices_that_may_be_versions_are_warned_about(choices: str, warned: list[str]) -> None:
    found = parse_source(f"name: n\nspace:\n  python: {choices}\n", "job.yaml").warnings
    assert len(found) == len(warned)
    for words, line in zip(warned, found, strict=True):
        assert line.startswith("job.yaml:3: space.python")
        assert words in line


def test_a_value_of_the_command_line_is_read_as_in_the_file() -> None:
    texts = ["010", "1e3", "yes", "true", "3.10", "[1, a]", "{b: 2}", "'5'", ""]
    assert [parse_value(text) for text in texts] == [10, 1000.0, "yes", True, 3.1, [1, "a"], {"b": 2}, "5", None]


@pytest.mark.slow
def test_an_alias_bomb_does_not_go_off() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    text += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    start = time.process_time()
    with pytest.raises(SpecError, match="unfolds into more than"):
        parse_source(text, "f")
    assert time.process_time() - start < 5


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"there is no file .*missing.yaml .tradewind init"):
        read_source(tmp_path / "missing.yaml")
    with pytest.raises(SpecError, match="is a folder, not a file"):
        read_source(tmp_path)
    with pytest.raises(SpecError, match="cannot read"):
        read_source(Path("a\0b"))
    (tmp_path / "a").write_text("x")
    with pytest.raises(SpecError, match=r"cannot read .*Not a directory"):
        read_source(tmp_path / "a" / "b.yaml")
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("a: 1\nname: é\n".encode("latin-1"))
    with pytest.raises(SpecError, match=r"latin.yaml:2: is not UTF-8 text \(save it as UTF-8\)"):
        read_source(latin)
    large = tmp_path / "large.yaml"
    large.write_bytes(b"a: " + "é".encode() * 600_000)
    with pytest.raises(SpecError, match="larger than"):
        read_source(large)
    marked = tmp_path / "marked.yaml"
    marked.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_source(marked).document == {"a": 1, "b": 2}


def test_overrides_reach_into_mappings() -> None:
    source = parse_source("a: {x: 1, y: 2}\nb: 3\nc:\n", "f")
    changed = source.override({"a.x": 9, "b": {"z": 1}, "c.d.e": 4, "a": {"w": 5}})
    assert changed.document == {"a": {"x": 9, "y": 2, "w": 5}, "b": {"z": 1}, "c": {"d": {"e": 4}}}
    assert source.document == {"a": {"x": 1, "y": 2}, "b": 3, "c": None}
    assert str(changed.error(("a", "x"), "wrong")) == "the command line: wrong"
    assert str(changed.error(("a", "y"), "wrong")) == "f:1: wrong"
    with pytest.raises(SpecError, match=r"cannot set b.z: b is no mapping"):
        source.override({"b.z": 1})
