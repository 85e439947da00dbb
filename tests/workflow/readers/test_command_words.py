"""Words of commands as other systems write them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.command_words import join_argument, split_arguments, with_streams
from tradewind.workflow.readers.wfformat import from_document, write_wfformat


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["if=/dev/zero of=out.txt", "bs=1 count=2"], ["if=/dev/zero", "of=out.txt", "bs=1", "count=2"]),
        (["--name x", "in.txt"], ["--name", "x", "in.txt"]),
        (["--title 'two words' \"and 'these'\""], ["--title", "two words", "and 'these'"]),
        (['--out "{\\"a.txt\\":167}"'], ["--out", '{"a.txt":167}']),
        (["--output-files {'a_1': 227273, 'b': 3}"], ["--output-files", "{'a_1': 227273, 'b': 3}"]),
        (["--input-files ['a', 'b c'] -v"], ["--input-files", "['a', 'b c']", "-v"]),
        (["a\\ b c"], ["a b", "c"]),
        (["it's here"], ["it's here"]),
        (["'kept'", "", "a\\b"], ["'kept'", "", "a\\b"]),
        (["{'a': 1"], ["{a:", "1"]),
    ],
)
def test_arguments_of_several_words(given: list[str], words: list[str]) -> None:
    assert split_arguments("p", given) == words


@pytest.mark.parametrize("program", ["wfbench", "/opt/bin/wfbench", "bin/wfbench.py"])
def test_lists_and_mappings_are_json_for_wfbench(program: str) -> None:
    """WfCommons 1.6 writes them as Python does, and its program reads JSON only."""
    given = ["--name t", "--output-files {'a_1': 227273, \"it's\": 3}", "--input-files ['a', 'b c'] -v", "['x'"]
    words = split_arguments(program, given)
    assert words == ["--name", "t", "--output-files", '{"a_1": 227273, "it\'s": 3}',
                     "--input-files", '["a", "b c"]', "-v", "['x'"]  # fmt: skip
    assert split_arguments(program, [join_argument(word) for word in words]) == words


def test_the_script_of_a_shell_is_one_word() -> None:
    assert split_arguments("/bin/bash", ["-c", "echo a b", "c d"]) == ["-c", "echo a b", "c", "d"]
    assert split_arguments("python", ["-c", "pass 1"]) == ["-c", "pass", "1"]


@pytest.mark.parametrize("word", ["a b", "it's a", '"a" b', "{'a': 1}", "a\nb", " ", "plain", "'q'", ""])
def test_a_word_comes_back_as_one(word: str) -> None:
    assert split_arguments("p", [join_argument(word)]) == [word]
    flow = Workflow("w", (Task("a", "p", 1.0, command=("p", word, "-x")),), ((),))
    for version in ("1.4", "1.5"):
        document = json.loads(write_wfformat(flow, version=version))
        assert from_document(document, "w.json").tasks[0].command == ("p", word, "-x")


def test_streams_are_files(tmp_path: Path) -> None:
    assert with_streams(["ls", "-l"], "", "", "") == ["ls", "-l"]
    (tmp_path / "in 1").write_text("hello")
    for stdin, stdout, stderr in (("in 1", "out's", "err"), ("in 1", "both", "both")):
        script = 'cat; printf "%s" "$1"; printf e >&2'
        argv = with_streams(["sh", "-c", script, "sh", "a b"], stdin, stdout, stderr)
        subprocess.run(argv, cwd=tmp_path, check=True)
    found = {name: (tmp_path / name).read_text() for name in ("out's", "err", "both")}
    assert found == {"out's": "helloa b", "err": "e", "both": "helloa be"}
