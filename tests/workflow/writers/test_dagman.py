"""Workflows and plans as DAGs of DAGMan."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.condor import condorlib
from tests.workflow.writers.samples import same, sample_flow, sample_plan

from tradewind.errors import WorkflowError
from tradewind.workflow.files import read_workflow
from tradewind.workflow.graph import Workflow
from tradewind.workflow.readers.command_words import with_streams
from tradewind.workflow.readers.systems.submit_file import parse_submit, quote_arguments, quote_string
from tradewind.workflow.writers.common import WorkflowSource, WrittenWorkflow
from tradewind.workflow.writers.dagman import write_dagman


def written(folder: Path, source: WorkflowSource) -> WrittenWorkflow:
    found = write_dagman(source, folder / "flow.dag")
    (folder / "flow.dag.jobs").mkdir(exist_ok=True)
    for name, text in found.others.items():
        (folder / name).write_text(text)
    (folder / "flow.dag").write_text(found.text)
    return found


def test_a_workflow_comes_back_as_it_was(tmp_path: Path) -> None:
    flow = sample_flow()
    found = written(tmp_path, WorkflowSource(flow, tmp_path))
    same(read_workflow(tmp_path / "flow.dag"), flow)
    assert found.notes == ()
    assert "PRIORITY left 7" in found.text
    assert not any("requirements" in text for text in found.others.values())


def test_a_plan_keeps_machines_order_and_needs(tmp_path: Path) -> None:
    flow = sample_flow()
    plan = sample_plan(flow)
    found = written(tmp_path, WorkflowSource(flow, tmp_path, plan))
    same(read_workflow(tmp_path / "flow.dag"), flow)
    priority = dict(re.findall(r"^PRIORITY (\S+) (\d+)$", found.text, re.M))
    begun = [flow.tasks[task].id for task in plan.schedule.sequence(flow)]
    assert sorted(priority, key=lambda name: -int(priority[name])) == begun == ["split", "right", "left", "report"]
    for place, task in enumerate(flow.tasks):
        text = found.others[f"flow.dag.jobs/{task.id}.sub"]
        assert f"request_cpus = {task.cores}\n" in text
        macro = re.search(r'^requirements = \(TARGET.Machine == "\$\((\w+)\)"\)$', text, re.M)
        assert macro is not None
        assert f'VARS ALL_NODES {macro[1]}="{plan.platform.vms[plan.schedule.vm[place]].name}"' in found.text
    assert "request_memory = 477\n" in found.others["flow.dag.jobs/right.sub"], "500 MB are rounded up to MiB"
    assert "# large, 4 slots, speed 2.5" in found.text


def test_how_programs_are_started(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/own").write_text("")
    flow = sample_flow(command=("bin/own", "x"))
    found = written(tmp_path, WorkflowSource(flow, tmp_path))
    split, left, right = (found.others[f"flow.dag.jobs/{name}.sub"] for name in ("split", "left", "right"))
    assert "executable = bin/own\ntransfer_executable = true\n" in split
    assert "executable = /opt/bin/sum\ntransfer_executable = false\n" in left
    assert 'executable = /usr/bin/env\ntransfer_executable = false\narguments = "sh -c \'exec ""$0""' in right
    same(read_workflow(tmp_path / "flow.dag"), flow)
    away = write_dagman(WorkflowSource(flow, tmp_path), tmp_path / "bin/flow.dag")
    assert f"executable = {tmp_path}/bin/own\n" in away.others["flow.dag.jobs/split.sub"]
    assert "have to be beside it before it is submitted: raw.txt, from" in away.notes[0]
    inner = replace(flow, tasks=(replace(flow.tasks[0], inputs=("bin/own", "raw.txt")), *flow.tasks[1:]))
    text = write_dagman(WorkflowSource(inner), tmp_path / "x.dag").others["x.dag.jobs/split.sub"]
    assert "executable = /usr/bin/env\n" in text
    assert "preserve_relative_paths = true\n" in text


def test_tasks_whose_names_are_no_nodes_come_back(tmp_path: Path) -> None:
    flow = sample_flow()
    names = ("a b", "a.b", "PARENT", 'é "q" \\ $(x)')
    flow = replace(flow, tasks=tuple(replace(task, id=name) for task, name in zip(flow.tasks, names, strict=True)))
    found = written(tmp_path, WorkflowSource(flow, tmp_path))
    assert re.findall(r"^JOB (\S+)", found.text, re.M) == ["a_b", "a_b_2", "PARENT_2", "___q______x_"]
    assert found.notes[0].startswith("tasks are named by letters, digits, _ and - there: 'a b' is a_b, 'a.b' is a_b_2")
    same(read_workflow(tmp_path / "flow.dag"), flow)


def test_files_with_blanks_and_signs_come_back(tmp_path: Path) -> None:
    flow = sample_flow(inputs=("my raw $(x).txt", "it's;=#é"), command=("cp", "my raw $(x).txt", "$(y) $ENV(HOME) $1"))
    flow = replace(flow, sizes={**flow.sizes, "my raw $(x).txt": 5})
    del flow.sizes["raw.txt"]  # type: ignore[attr-defined]
    found = written(tmp_path, WorkflowSource(flow, tmp_path))
    same(read_workflow(tmp_path / "flow.dag"), flow)
    assert "transfer_input_files = my raw $(DOLLAR)(x).txt, it's;=#é\n" in found.others["flow.dag.jobs/split.sub"]


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ({"command": ()}, "no command for 1 of 4 tasks, the first is 'split' (HTCondor runs commands"),
        ({"inputs": ("a,b",)}, "task 'split': HTCondor cannot take file 'a,b': it has a comma"),
        ({"inputs": ('a"b',)}, "it has a double quote"),
        ({"inputs": ("a\\",)}, "it has a backslash"),
        ({"inputs": ("a*",)}, "it has a star"),
        ({"inputs": (" a",)}, "it begins or ends with a blank"),
        ({"inputs": ("a\nb",)}, "it has a control character"),
        ({"inputs": ("/data/raw",)}, "it is no path in the folder of the run"),
        ({"inputs": ("../raw",)}, "it is no path in the folder of the run"),
        ({"inputs": ("./raw",)}, "its shortest form is 'raw'"),
        ({"inputs": ("https://x.org/raw",)}, "it is a URL"),
        ({"optional": ("raw.txt",)}, "HTCondor has no optional inputs, and 'raw.txt' is one"),
        ({"command": ("sh", "-c", "a\nb")}, "a line break or another control character in 'a\\nb'"),
        ({"command": ("echo", "$$(x)")}, "has $$( or $$[, which HTCondor replaces, in '$$(x)'"),
        ({"command": ("./x.sh",)}, "its program './x.sh' is no input of it, and no file in"),
        ({"command": ("a=b",)}, "'a=b' is no program that env can start"),
        ({"command": ("sh", "-c", 'exec "$0" "$@" >right.txt', "bin/x")}, "program 'bin/x' is run by a shell"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_in_one_line(tmp_path: Path, first: dict[str, Any], words: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/x").write_text("")
    with pytest.raises(WorkflowError) as caught:
        write_dagman(WorkflowSource(sample_flow(**first), tmp_path), tmp_path / "flow.dag")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_machines_and_files_whose_names_a_dag_cannot_have(tmp_path: Path) -> None:
    flow = sample_flow()
    plan = sample_plan(flow, None, 'a"', "b c", 'd"')
    with pytest.raises(WorkflowError, match="has a name that a DAG cannot have"):
        write_dagman(WorkflowSource(flow, tmp_path, plan), tmp_path / "flow.dag")
    with pytest.raises(WorkflowError, match="DAGMan takes no blanks in the names of files"):
        write_dagman(WorkflowSource(flow, tmp_path), tmp_path / "my flow.dag")


def test_memory_that_was_changed_by_hand_counts(tmp_path: Path) -> None:
    written(tmp_path, WorkflowSource(sample_flow(), tmp_path))
    path = tmp_path / "flow.dag.jobs/right.sub"
    path.write_text(path.read_text().replace("request_memory = 477", "request_memory = 600"))
    assert read_workflow(tmp_path / "flow.dag").tasks[2].memory_bytes == 600 << 20


def carry_out(folder: Path, dag: str) -> None:
    """Run the nodes of a DAG, each in a folder of its own, as HTCondor does, by the parser of the tests' pool."""
    machines = dict(re.findall(r'^VARS ALL_NODES (\w+)="(.*)"$', dag, re.M))
    done: set[str] = set()
    nodes = dict(re.findall(r"^JOB (\S+) (\S+)$", dag, re.M))
    parents = {child: set(above.split()) for above, child in re.findall(r"^PARENT (.*) CHILD (\S+)$", dag, re.M)}
    while waiting := [node for node in nodes if node not in done and parents.get(node, set()) <= done]:
        for node in waiting:
            text = (folder / nodes[node]).read_text()
            assert re.findall(r'Machine == "\$\((\w+)\)"', text)[0] in machines
            (given,) = condorlib.parse(text)
            assert given["executable"] == "/usr/bin/env"
            scratch = folder / f"execute-{node}"
            scratch.mkdir()
            for name in filter(None, given.get("transfer_input_files", "").split(", ")):
                (scratch / name).parent.mkdir(exist_ok=True)
                shutil.copy2(folder / name, scratch / name)
            argv = [given["executable"], *condorlib.arguments_of(given["arguments"])]
            subprocess.run(argv, cwd=scratch, check=True, env={"HOME": "/nowhere"})
            for name in given["transfer_output_files"].strip('"').split(", "):
                assert "/" not in name or given["preserve_relative_paths"] == "true"
                (folder / name).parent.mkdir(exist_ok=True)
                shutil.copy2(scratch / name, folder / name)
            done.add(node)
    assert done == set(nodes)


def test_nodes_do_what_the_tasks_do(tmp_path: Path) -> None:
    script = """mkdir part; head -n1 "$1" > part/left.txt; echo "it's $HOME, 5 \\$(x) "'"'"q" > right.txt"""
    flow = sample_flow(inputs=("raw txt",), command=("sh", "-c", script.replace("\\$(x)", "`echo x`"), "sh", "raw txt"))
    first, left, right, last = flow.tasks
    words = ("sh", "-c", 'cat part/left.txt > l.sum; printf "%s|" "$@" >> l.sum', "sh", "a b", "it's", "", '"q" $(y)')
    left = replace(left, command=words)
    right = replace(right, command=tuple(with_streams(["cat"], "right.txt", "r.sum", "")))
    last = replace(last, command=tuple(with_streams(["cat", "l.sum", "r.sum"], "", "report.txt", "")))
    flow = replace(flow, tasks=(first, left, right, last))
    (tmp_path / "raw txt").write_text("raw\n")
    carry_out(tmp_path, written(tmp_path, WorkflowSource(flow, tmp_path, sample_plan(flow))).text)
    said = (tmp_path / "report.txt").read_text()
    assert said == 'raw\na b|it\'s||"q" $(y)|it\'s /nowhere, 5 x "q\n'


WORDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp"), exclude_characters="\ue000")),
    max_size=4,
).filter(lambda words: not any(re.search(r"\$\$[(\[]", word) for word in words))


@pytest.mark.slow
@given(WORDS)
def test_any_words_come_back(words: list[str]) -> None:
    text = f"arguments = {quote_arguments(words)}\n+tradewind_task = {quote_string(' '.join(words))}\nqueue\n"
    found = parse_submit(text, {})
    assert list(found.arguments) == words
    assert found.task == " ".join(words)


@pytest.mark.slow
@given(WORDS)
def test_htcondor_expands_what_is_written_to_the_words(words: list[str]) -> None:
    """The macros are those of HTCondor itself; the quotes are then taken away as its manual says."""
    htcondor = pytest.importorskip("htcondor2", reason="HTCondor's own parser is not here: pip install htcondor")
    submit = htcondor.Submit(f"executable = /x\narguments = {quote_arguments(words)}\nqueue\n")
    expanded = submit.expand("arguments") if words else '""'
    plain = [word if re.fullmatch(r"[^\s']+", word) else "'" + word.replace("'", "''") + "'" for word in words]
    assert expanded == '"' + " ".join(plain).replace('"', '""') + '"'


def test_htcondor_takes_the_submit_descriptions(tmp_path: Path) -> None:
    htcondor = pytest.importorskip("htcondor2", reason="HTCondor's own parser is not here: pip install htcondor")
    flow: Workflow = sample_flow()
    found = written(tmp_path, WorkflowSource(flow, tmp_path, sample_plan(flow)))
    macros = dict(re.findall(r'^VARS ALL_NODES (\w+)="(.*)"$', found.text, re.M))
    for place, task in enumerate(flow.tasks):
        submit = htcondor.Submit(found.others[f"flow.dag.jobs/{task.id}.sub"])
        for name, value in macros.items():
            submit[name] = value
        assert submit.expand("request_cpus") == str(task.cores)
        assert submit.expand("transfer_output_files") == ", ".join(task.outputs)
        machine = sample_plan(flow).platform.vms[sample_plan(flow).schedule.vm[place]].name
        assert submit.expand("requirements") == f'(TARGET.Machine == "{machine}")'
        assert float(submit.expand("MY.pegasus_job_runtime")) == task.runtime
