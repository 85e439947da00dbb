"""Workflows and plans for Pegasus 5."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workflow.writers.samples import same, sample_flow, sample_plan

from tradewind.errors import WorkflowError
from tradewind.workflow.files import read_workflow
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.command_words import (
    quote_argument,
    split_streams,
    unquote_argument,
    with_streams,
    without_env,
)
from tradewind.workflow.readers.systems.submit_file import parse_submit
from tradewind.workflow.writers.common import WorkflowSource, WrittenWorkflow
from tradewind.workflow.writers.pegasus import write_pegasus


def written(folder: Path, source: WorkflowSource) -> tuple[WrittenWorkflow, dict[str, Any]]:
    found = write_pegasus(source, folder / "workflow.yml")
    (folder / "workflow.yml").write_text(found.text)
    return found, yaml.safe_load(found.text)


def test_a_workflow_comes_back_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "raw.txt").write_text("1")
    flow = sample_flow()
    found, document = written(tmp_path, WorkflowSource(flow, tmp_path))
    same(read_workflow(tmp_path / "workflow.yml"), flow)
    assert found.notes == ()
    assert "siteCatalog" not in document
    assert document["replicaCatalog"]["replicas"] == [
        {
            "lfn": "raw.txt",
            "pfns": [{"site": "local", "pfn": f"file://{tmp_path}/raw.txt"}],
            "metadata": {"size": "30000000"},
        }
    ]
    right = document["jobs"][2]
    assert (right["stdin"], right["stdout"], right["arguments"]) == ("right.txt", "r.sum", ["sum", "--all"])


def test_a_plan_keeps_machines_order_and_needs(tmp_path: Path) -> None:
    flow = sample_flow()
    plan = sample_plan(flow, None, "node 1.example", "node-2", "node-3")
    found, document = written(tmp_path, WorkflowSource(flow, tmp_path, plan))
    same(read_workflow(tmp_path / "workflow.yml"), flow)
    sites = {site["name"]: site for site in document["siteCatalog"]["sites"]}
    jobs = {job["id"]: job["profiles"] for job in document["jobs"]}
    for place, task in enumerate(flow.tasks):
        site = sites[jobs[task.id]["selector"]["execution.site"]]
        machine = plan.platform.vms[plan.schedule.vm[place]].name
        assert site["profiles"]["condor"]["requirements"] == f'(TARGET.Machine == "{machine}")'
        assert jobs[task.id]["pegasus"]["cores"] == task.cores
        assert float(jobs[task.id]["pegasus"]["runtime"]) == task.runtime
        name = document["jobs"][place]["name"]
        known = next(each for each in document["transformationCatalog"]["transformations"] if each["name"] == name)
        assert known["sites"]
    assert jobs["right"]["pegasus"]["memory"] == 477
    begun = [flow.tasks[task].id for task in plan.schedule.sequence(flow)]
    assert sorted(jobs, key=lambda name: -int(jobs[name]["dagman"]["PRIORITY"])) == begun
    assert "machines are named by letters, digits, _ and - there: 'node 1.example' is node_1_example" in found.notes


def test_programs_of_one_activity(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/x").write_text("")
    flow = sample_flow(command=("own/x", "1"), activity="sum")
    _, document = written(tmp_path, WorkflowSource(flow, tmp_path))
    found = {
        (each["name"], each.get("version")): (
            each["sites"][0]["pfn"],
            each["sites"][0]["type"],
            each["sites"][0]["name"],
        )
        for each in document["transformationCatalog"]["transformations"]
    }
    assert found == {
        ("sum", None): (f"{tmp_path}/own/x", "stageable", "local"),
        ("sum", "2.0"): ("/opt/bin/sum", "installed", "condorpool"),
        ("sum", "3.0"): ("/usr/bin/env", "installed", "condorpool"),
        ("report", None): ("/usr/bin/env", "installed", "condorpool"),
    }
    back = read_workflow(tmp_path / "workflow.yml")
    assert back.tasks[0].command == (f"{tmp_path}/own/x", "1")
    assert [task.command for task in back.tasks[1:]] == [task.command for task in flow.tasks[1:]]


def test_tasks_without_commands_need_a_catalogue(tmp_path: Path) -> None:
    flow = sample_flow(command=())
    found, document = written(tmp_path, WorkflowSource(flow))
    assert document["jobs"][0]["arguments"] == []
    assert found.notes == ("a transformation catalogue has to say which programs these are: split",)
    assert read_workflow(tmp_path / "workflow.yml").tasks[1:] == flow.tasks[1:]
    found, _ = written(tmp_path, WorkflowSource(sample_flow(), tmp_path))
    assert found.notes == (f"the replica catalogue has files that are not in {tmp_path}: raw.txt",)


def test_odd_names_of_tasks_come_back(tmp_path: Path) -> None:
    flow = sample_flow()
    names = ("a b", "a.b", "ok", 'é "q"')
    flow = replace(
        flow, name="my flow: 1", tasks=tuple(replace(t, id=n) for t, n in zip(flow.tasks, names, strict=True))
    )
    found, document = written(tmp_path, WorkflowSource(flow))
    assert [job["id"] for job in document["jobs"]] == ["a_b", "a_b_2", "ok", "___q_"]
    assert document["name"] == "my_flow__1"
    assert found.notes[0].startswith("tasks are named by letters, digits, _ and - there: 'a b' is a_b")
    same(read_workflow(tmp_path / "workflow.yml"), flow)


def test_files_that_are_updated_or_may_be_missing_and_both_streams_in_one(tmp_path: Path) -> None:
    command = tuple(with_streams(["tool"], "", "right.txt", "right.txt"))
    flow = sample_flow(inputs=("raw.txt", "state"), runtime=0.1 + 0.2, outputs=("state", "part/left.txt", "right.txt"),
                       optional=("raw.txt",), command=command)  # fmt: skip
    _, document = written(tmp_path, WorkflowSource(flow))
    uses = {use["lfn"]: use for use in document["jobs"][0]["uses"]}
    assert uses["state"]["type"] == "inout"
    assert uses["raw.txt"]["optional"] is True
    assert "stdout" not in document["jobs"][0], "Pegasus takes no file as two streams"
    back = read_workflow(tmp_path / "workflow.yml").tasks[0]
    assert (set(back.inputs), set(back.outputs), back.optional) == (
        set(flow.tasks[0].inputs),
        set(flow.tasks[0].outputs),
        ("raw.txt",),
    )
    assert back.command == command


def test_names_of_the_pegasus_gallery(tmp_path: Path) -> None:
    """Sipht has such files."""
    flow = sample_flow(inputs=("NC_01.txt.all.CUTOFF0.ID[100:0].GC[100:0].gff",))
    flow = replace(flow, sizes={name: size for name, size in flow.sizes.items() if name != "raw.txt"})
    written(tmp_path, WorkflowSource(flow))
    same(read_workflow(tmp_path / "workflow.yml"), flow)
    assert flow.tasks[0].inputs[0] in (tmp_path / "workflow.yml").read_text()


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ({"inputs": ("a b",)}, "task 'split': Pegasus cannot take file 'a b': it has ' ' in it"),
        ({"inputs": ("a,b",)}, "it has ',' in it"),
        ({"inputs": ("/data/raw",)}, "it is no path in the folder of the run"),
        ({"command": ("sh", "-c", "a\nb")}, "a line break or another control character"),
        ({"command": ("sh", "-c", "echo $(date)")}, "has $( in 'echo $(date)', which Pegasus cannot take"),
        ({"command": ("echo", "it's $HOME")}, "a single quote beside $, ` or a backslash in"),
        ({"command": ("./x.sh",)}, "its program './x.sh' is no input of it, and no file in"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_line(tmp_path: Path, first: dict[str, Any], words: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        write_pegasus(WorkflowSource(sample_flow(**first), tmp_path), tmp_path / "workflow.yml")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


WORD = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12) | st.text(
    "ab '\"$`\\*", max_size=8
)


def quoted(words: list[str]) -> list[str]:
    try:
        return [quote_argument(word) for word in words]
    except ValueError:
        return []


@pytest.mark.slow
@given(WORD)
def test_a_quoted_word_comes_back(word: str) -> None:
    for each in quoted([word]):
        assert unquote_argument(each) == word


@pytest.mark.slow
@given(st.lists(WORD, max_size=4))
def test_the_planner_of_pegasus_takes_each_word_as_one(words: list[str]) -> None:
    """The planner turns quotes into those of HTCondor by the rules of its CondorQuoteParser."""
    found, state = "", ""
    written = quoted(words)
    for sign in " ".join(written):
        if state == "\\":
            found, state = found + {"'": "''", '"': '""'}.get(sign, sign), ""
        elif not state and sign == "\\":
            state = "\\"
        elif sign in "'\"" and state in ("", sign):
            found, state = found + "'", "" if state else sign
        else:
            found += {"'": "''", '"': '""'}.get(sign, sign) if state else sign
    if written and not any("$" in word or "\ue000" in word for word in words):
        assert list(parse_submit(f'executable = x\narguments = "{found}"\nqueue\n', {}).arguments) == words


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(WORD.filter(lambda word: "\0" not in word), min_size=1, max_size=4))
def test_the_shell_of_a_job_takes_each_word_as_one(words: list[str]) -> None:
    if written := quoted(words):
        script = "printf '%s\\0' " + " ".join(written)
        out = subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout
        assert out.decode().split("\0")[:-1] == words


@pytest.mark.slow
@given(st.text(max_size=20), st.text(max_size=20))
def test_any_words_are_written_as_yaml(name: str, activity: str) -> None:
    flow = Workflow(name or "w", (Task(name or "t", activity or "a", 1.0),), ((),))
    document = yaml.safe_load(write_pegasus(WorkflowSource(flow), Path("workflow.yml")).text)
    assert document["jobs"][0]["name"] == (activity or "a")
    assert re.fullmatch(r"[A-Za-z0-9_-]+", document["jobs"][0]["id"])


@pytest.mark.parametrize("text", ["'a b", "a 'b'", '"a b"', "'ab'", "\\", "''x''"])
def test_what_others_have_quoted_otherwise_stays(text: str) -> None:
    assert unquote_argument(text) == text


@pytest.mark.parametrize(
    "streams", [("in", "", ""), ("", "out", ""), ("i n", "o'ut", "err"), ("", "out", "out"), ("", "", "e")]
)
def test_streams_are_found_again(streams: tuple[str, str, str]) -> None:
    words = ["tool", "-x", "a b"]
    assert split_streams(with_streams(words, *streams)) == (words, *streams)


def test_other_scripts_have_no_streams() -> None:
    for words in (["sh", "-c", "ls > x"], ["sh", "-c", 'exec "$0" "$@" >x; ls', "a"], ["ls"], []):
        assert split_streams(words) == (words, "", "", "")
    assert without_env(["/usr/bin/env", "a=1", "x"]) == ["/usr/bin/env", "a=1", "x"]
    assert without_env(["/usr/bin/env", "python3", "x"]) == ["python3", "x"]


def test_the_api_of_pegasus_writes_the_same(tmp_path: Path) -> None:
    """The same workflow by Pegasus' own Python package; it has sizes twice and numbers as they are."""
    api = pytest.importorskip("Pegasus.api", reason="Pegasus' own writer is not here: pip install pegasus-wms-api")
    flow = sample_flow()
    plan = sample_plan(flow)
    _, document = written(tmp_path, WorkflowSource(flow, tmp_path, plan))
    theirs = api.Workflow("totals")
    jobs = []
    for place, task in enumerate(flow.tasks):
        ours = document["jobs"][place]
        job = api.Job(task.activity, _id=task.id, **({"version": ours["version"]} if "version" in ours else {}))
        job.add_args(*ours["arguments"])
        files = {name: api.File(name, size=flow.sizes.get(name)) for name in (*task.inputs, *task.outputs)}
        _, stdin, stdout, _ = split_streams(list(task.command))
        job.add_inputs(*(files[name] for name in task.inputs if name != stdin))
        job.add_outputs(*(files[name] for name in task.outputs if name != stdout))
        if stdin:
            job.set_stdin(files[stdin])
        if stdout:
            job.set_stdout(files[stdout])
        job.add_pegasus_profile(runtime=ours["profiles"]["pegasus"]["runtime"], cores=task.cores)
        if task.memory_bytes:
            job.add_pegasus_profile(memory=f"{ours['profiles']['pegasus']['memory']} MB")
        job.add_profiles(api.Namespace.DAGMAN, key="PRIORITY", value=ours["profiles"]["dagman"]["PRIORITY"])
        job.add_selector_profile(execution_site=plan.platform.vms[plan.schedule.vm[place]].name)
        theirs.add_jobs(job)
        jobs.append(job)
    for place, children in enumerate(flow.children):
        if children:
            theirs.add_dependency(jobs[place], children=[jobs[child] for child in children])
    theirs.write(str(tmp_path / "theirs.yml"))
    other = yaml.safe_load((tmp_path / "theirs.yml").read_text())
    assert document["pegasus"] == other["pegasus"]
    for edges in (document["jobDependencies"], other["jobDependencies"]):
        edges[:] = [(each["id"], sorted(each["children"])) for each in edges]
    assert sorted(document["jobDependencies"]) == sorted(other["jobDependencies"])
    for ours, job in zip(document["jobs"], other["jobs"], strict=True):
        ours.pop("metadata", None)
        for use in job["uses"]:
            if (size := use.pop("size", None)) is not None:
                use["metadata"] = {"size": str(size)}
        assert sorted(ours.pop("uses"), key=str) == sorted(job.pop("uses"), key=str)
        assert ours == job
