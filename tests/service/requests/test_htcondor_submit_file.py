"""HTCondor's submit descriptions as scripts: they are run, and do what HTCondor would."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.errors import InputError
from tradewind.service.requests.virtual_cluster_request import script_of_submit_file

WORDS = st.text(st.characters(codec="ascii", exclude_characters="\0\r\n\x0b\x0c\x1c\x1d\x1e$"), max_size=8)


def carry_out(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = script_of_submit_file(text)
    outputs = folder / "outputs"
    outputs.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "TRADEWIND_OUTPUTS": str(outputs)}
    command = ["sh", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=20, check=False)


def test_a_program_gets_its_arguments(tmp_path: Path) -> None:
    found = carry_out("# comment\nExecutable = /bin/echo\narguments = one two\\\n   three\nlog = x\nqueue\n", tmp_path)
    assert (found.stdout, found.returncode) == ("one two three\n", 0)


def test_a_program_beside_the_description_is_found(tmp_path: Path) -> None:
    (tmp_path / "mine.sh").write_text("#!/bin/sh\necho mine $WHERE; exit 4\n")
    (tmp_path / "mine.sh").chmod(0o755)
    found = carry_out("executable = mine.sh\nenvironment = \"WHERE='the lab'\"\nqueue 1\n", tmp_path)
    assert (found.stdout, found.returncode) == ("mine the lab\n", 4)
    old = carry_out("executable = mine.sh\nenvironment = WHERE=here;B=2\nqueue\n", tmp_path)
    assert old.stdout == "mine here\n"


def test_several_processes_run_side_by_side_with_their_numbers(tmp_path: Path) -> None:
    text = """
    N = 3
    prefix = run
    executable = /bin/sh
    arguments = "-c 'echo $(prefix)-$(Process); exit $(Process)'"
    output = out.$(Process)
    queue $(N)
    """
    found = carry_out(text, tmp_path)
    assert found.returncode == 1  # the first that failed
    assert [(tmp_path / "outputs" / f"out.{n}").read_text() for n in range(3)] == [f"run-{n}\n" for n in range(3)]


def test_input_and_folder(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "in.txt").write_text("read\n")
    found = carry_out("initialdir = below\nexecutable = /bin/cat\ninput = in.txt\noutput = x\nqueue", tmp_path)
    assert found.stdout == "read\n"  # the output of one process is the run's own
    assert carry_out("initialdir = nowhere\nexecutable = /bin/cat\nqueue", tmp_path).returncode == 1


@settings(max_examples=15, deadline=None)
@given(
    words=st.lists(
        st.text(st.characters(codec="ascii", exclude_characters="\0\r\n\x0b\x0c\x1c\x1d\x1e$"), max_size=8), max_size=4
    )
)
def test_quoted_arguments_arrive_as_they_are(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    inner = " ".join("'" + word.replace("'", "''").replace('"', '""') + "'" for word in words)
    text = f"executable = /usr/bin/printf\narguments = \"'%s|' {inner}\"\nqueue\n"
    found = carry_out(text, tmp_path_factory.mktemp("quoted"))
    assert found.stdout == ("".join(f"{word}|" for word in words) or "|")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n", "neither a script nor a submit description"),
        ("executable =\nqueue\n", "neither a script nor a submit description"),
        ("executable = a\nwhat is this\nqueue\n", "line 2: 'what is this' is not understood"),
        ("executable = a\nrequirements = Memory > 1\nqueue\n", "line 2: 'requirements' is not understood here"),
        ("executable = a\nrequest_gpus = 1\nqueue\n", "'request_gpus' is not understood here"),
        ("executable = a\ntransfer_input_files = x\nqueue\n", "transfer_input_files has no effect here"),
        ("executable = a\nqueue 2\nqueue 3\n", "line 3: a second queue"),
        ("executable = a\nqueue 0\n", "queue 0 is not from 1 to 1000"),
        ("executable = a\nqueue 100000\n", "queue 100000 is not from 1 to 1000"),
        ("executable = a\narguments = $(nowhere)\nqueue\n", r"\$\(nowhere\) is not understood"),
        ("x = $(x)\nexecutable = $(x)\nqueue\n", r"\$\(x\) is not understood"),
        ("executable = a\narguments = $ENV(HOME)\nqueue\n", r"\$ENV\(HOME\) is not understood"),
        ('executable = a\narguments = "\'open"\nqueue\n', "a quote is not closed"),
        ("executable = a\nenvironment = 1x=2\nqueue\n", "'1x=2' is no name=value"),
    ],
)
def test_what_is_not_understood_is_said_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        script_of_submit_file(text)


@pytest.mark.slow
@given(st.text(max_size=200))
def test_any_text_is_a_script_or_an_error(text: str) -> None:
    try:
        assert script_of_submit_file(text).startswith("#!/bin/sh\n")
    except InputError as error:
        assert error.message
