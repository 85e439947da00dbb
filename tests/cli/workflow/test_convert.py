"""``tradewind workflow convert`` for the systems that carry out a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tradewind.cli.app import run
from tradewind.workflow.files import read_workflow

FLOW = """\
name: totals
files: {raw.txt: 30MB, left.txt: 15MB}
tasks:
  split: {command: "sh -c 'head raw.txt > left.txt'", runtime: 2s, inputs: [raw.txt], outputs: [left.txt], memory: 1GB}
  sum: {command: [sum, left.txt, "a b"], runtime: 30s, inputs: [left.txt], cores: 2}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("flow.yaml").write_text(FLOW)
    Path("raw.txt").write_text("1\n")
    Path("vms.yaml").write_text("vms: [{kind: small, count: 2, slots: 2}]\n")
    assert run(["workflow", "plan", "flow.yaml", "--vms", "vms.yaml", "--out", "plan.json"]) == 0
    capsys.readouterr()
    return tmp_path


@pytest.mark.parametrize("file", ["flow.yaml", "plan.json"])
@pytest.mark.parametrize(("to", "out"), [("dagman", "x.dag"), ("pegasus", "x.yml"), (None, "x.dag")])
def test_what_is_written_is_read_back(
    file: str, to: str | None, out: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["workflow", "convert", file, *(("--to", to) if to else ()), "--out", out]
    assert run(words) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"written: {out} (2 tasks{', and 2 submit descriptions' if out == 'x.dag' else ''})")
    flow, again = read_workflow(folder / "flow.yaml"), read_workflow(folder / out)
    assert (again.tasks, again.parents, dict(again.sizes)) == (flow.tasks, flow.parents, dict(flow.sizes))
    text = (folder / out).read_text()
    assert ("PRIORITY" in text) == ("small-" in text) == (file == "plan.json")
    assert run(words) == 0, "it may be written again"


@pytest.mark.usefixtures("folder")
def test_the_result_as_json_and_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Path("raw.txt").unlink()
    assert run(["workflow", "convert", "plan.json", "--to", "dagman", "--out", "x.dag", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["to"], said["planned"], said["notes"]) == ("dagman", True, [])
    assert said["files"] == ["x.dag.jobs/split.sub", "x.dag.jobs/sum.sub"]
    assert run(["workflow", "convert", "flow.yaml", "--to", "pegasus"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("x-tradewind:")
    assert said.err.startswith("note: the replica catalogue has files that are not in ")


@pytest.mark.usefixtures("folder")
def test_edges_that_were_left_out_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for to, out in (("dagman", "x.dag"), ("pegasus", "x.yml")):
        assert run(["workflow", "convert", "flow.yaml", "--declared-edges", "--to", to, "--out", out]) == 0
        assert (
            "note: files imply edges that are not written, the first is that 'sum' reads 'left.txt' of 'split': "
            "read it with --declared-edges"
        ) in capsys.readouterr().out
        assert read_workflow(Path(out), declared_edges=True).edges == 0


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["flow.yaml", "--to", "dagman"], "--to dagman writes a DAG and a folder of submit descriptions (--out"),
        (["flow.yaml", "--to", "pegasus-4"], "--to 'pegasus-4' is no format that is written (one of own, pegasus"),
        (["flow.yaml", "--to", "pegasus", "--out", "no/x.yml"], "--out no/x.yml: there is no folder no"),
        (["flow.yaml", "--out", "taken.dag"], "cannot make folder taken.dag.jobs: File exists"),
        (["flow.yaml", "--out", "a b.dag"], "--out a b.dag: DAGMan takes no blanks in the names of files"),
    ],
)  # fmt: skip
def test_refusals(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken.dag.jobs").write_text("")
    assert run(["workflow", "convert", *words]) != 0
    said = capsys.readouterr()
    assert told in said.err
    assert not Path("taken.dag").exists()
