"""Workflows within workflows: opened where their files are there, refused by name in a run where not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.datasets import DATASETS, needs_datasets

from tradewind.errors import WorkflowError
from tradewind.workflow.execution.run_folder import check_subworkflows
from tradewind.workflow.files import read_workflow
from tradewind.workflow.graph import Workflow
from tradewind.workflow.readers import builder
from tradewind.workflow.readers.systems import dagman
from tradewind.workflow.readers.tradewind_yaml import read_tradewind_yaml, to_document
from tradewind.workflow.readers.yaml_lines import plain

INNER_DAX = """<adag version="3.4" name="inner"><job id="I1" name="long" runtime="50"/>
<job id="I2" name="two" runtime="2"/><job id="I3" name="three" runtime="3"/>
<child ref="I2"><parent ref="I1"/></child><child ref="I3"><parent ref="I1"/></child></adag>"""
OUTER_DAX = """<adag version="3.4" name="outer"><job id="A" name="a" runtime="5"/>
<dax id="S" file="inner.dax"/><job id="Z" name="z" runtime="1"/>
<child ref="S"><parent ref="A"/></child><child ref="Z"><parent ref="S"/></child></adag>"""


def edges(flow: Workflow) -> set[tuple[str, str]]:
    ids = [task.id for task in flow.tasks]
    return {(ids[parent], ids[child]) for child, parents in enumerate(flow.parents) for parent in parents}


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder / next(iter(files)).replace("_", ".")


def pegasus(*jobs: str, more: str = "") -> str:
    return "pegasus: 5.0.4\nname: w\njobs:\n" + "".join(f"- {{{job}}}\n" for job in jobs) + more


def test_tasks_of_a_dax_within_another_are_tasks_of_the_outer(tmp_path: Path) -> None:
    flow = read_workflow(written(tmp_path, outer_dax=OUTER_DAX, inner_dax=INNER_DAX))
    assert [task.id for task in flow.tasks] == ["A", "S/I1", "S/I2", "S/I3", "Z"]
    assert edges(flow) == {("A", "S/I1"), ("S/I1", "S/I2"), ("S/I1", "S/I3"), ("S/I2", "Z"), ("S/I3", "Z")}
    assert flow.critical_path()[0] == 5 + 50 + 3 + 1
    assert flow.warnings == ()
    check_subworkflows(flow)


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        ("inner.mf", "mid: raw\n\tone raw\nend: mid\n\ttwo mid\n"),
        (
            "inner.json",
            '{"rules": [{"command": "one", "inputs": ["raw"], "outputs": ["mid"]},'
            ' {"command": "two", "inputs": ["mid"], "outputs": ["end"]}]}',
        ),
    ],
)
@pytest.mark.parametrize("outer", ["flow.mf", "flow.json"])
def test_a_makeflow_within_another(tmp_path: Path, outer: str, name: str, inner: str) -> None:
    (tmp_path / name).write_text(inner)
    text = f"raw:\n\tmake raw\nend: raw {name}\n\tMAKEFLOW {name}\nlast: end\n\tsum end\n"
    if outer.endswith("json"):
        text = (
            '{"rules": [{"command": "make", "inputs": [], "outputs": ["raw"]},'
            f'{{"workflow": "{name}", "inputs": ["raw", "{name}"], "outputs": ["end"]}},'
            '{"command": "sum", "inputs": ["end"], "outputs": ["last"]}]}'
        )
    (tmp_path / outer).write_text(text)
    flow = read_workflow(tmp_path / outer)
    assert edges(flow) == {("raw", "end/mid"), ("end/mid", "end/end"), ("end/end", "last")}
    # What has to be evaluated first, or is not there, is one task that no run takes.
    for absent in (False, True):
        (tmp_path / name).write_text('{"rules": [format("x")]}')
        if absent:
            (tmp_path / name).unlink()
        closed = read_workflow(tmp_path / outer)
        assert edges(closed) == {("raw", "end"), ("end", "last")}
        assert "tasks that are workflows of their own, each taken as one task: end" in closed.warnings
        with pytest.raises(WorkflowError, match=f"'end' .{name}. is a workflow of its own"):
            check_subworkflows(closed)


@pytest.mark.parametrize("kind", ["dax", "dag", "pegasusWorkflow", "dagWorkflow"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("inner.dax", INNER_DAX),
        ("inner.yml", pegasus(*(f"id: {each}, name: x, type: job" for each in ("I1", "I2", "I3")),
                              more="jobDependencies: [{id: I1, children: [I2, I3]}]\n")),
        ("inner.dag", "JOB I1 x.sub\nJOB I2 x.sub\nJOB I3 x.sub\nPARENT I1 CHILD I2 I3\n"),
    ],
)  # fmt: skip
def test_the_inner_workflow_may_be_of_any_format(tmp_path: Path, kind: str, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    if kind.endswith("Workflow"):
        outer = written(tmp_path, outer_yml=pegasus(
            "type: job, id: A, name: a", f"type: {kind}, id: S, file: {name}", "type: job, id: Z, name: z",
            more="jobDependencies: [{id: A, children: [S]}, {id: S, children: [Z]}]\n",
        ))  # fmt: skip
    else:
        text = OUTER_DAX.replace("<dax", f"<{kind}").replace("inner.dax", name)
        outer = written(tmp_path, outer_dax=text)
    found = {("A", "S/I1"), ("S/I1", "S/I2"), ("S/I1", "S/I3"), ("S/I2", "Z"), ("S/I3", "Z")}
    assert edges(read_workflow(outer)) == found


def test_files_that_a_workflow_within_another_lists_order_it_as_a_whole(tmp_path: Path) -> None:
    inner = pegasus("type: job, id: one, name: x, uses: [{lfn: mid, type: input}]", "type: job, id: two, name: x")
    outer = pegasus(
        "type: job, id: A, name: a, uses: [{lfn: mid, type: output, size: 5}, {lfn: other, type: output}]",
        "type: pegasusWorkflow, id: S, file: inner.yml, uses: [{lfn: inner.yml, type: input}, "
        "{lfn: other, type: input}, {lfn: end, type: output}, {lfn: sites.yml, type: input, forPlanning: true}]",
        "type: job, id: Z, name: z, uses: [{lfn: end, type: input}]",
    )
    path = written(tmp_path, outer_yml=outer, inner_yml=inner)
    flow = read_workflow(path)
    assert edges(flow) == {("A", "S/one"), ("A", "S/two"), ("S/one", "Z"), ("S/two", "Z")}
    assert flow.sizes == {"mid": 5}
    assert "files without a size, which count as empty: end, other" in flow.warnings
    assert edges(read_workflow(path, declared_edges=True)) == set()


def test_the_same_workflow_may_stand_in_twice_and_has_its_own_files(tmp_path: Path) -> None:
    inner = pegasus(
        "type: job, id: one, name: x, uses: [{lfn: f, type: output}]",
        "type: job, id: two, name: x, uses: [{lfn: f, type: input}]",
    )
    outer = pegasus(*(f"type: pegasusWorkflow, id: {each}, file: inner.yml" for each in ("S", "T")))
    flow = read_workflow(written(tmp_path, outer_yml=outer, inner_yml=inner))
    assert edges(flow) == {("S/one", "S/two"), ("T/one", "T/two")}


def test_the_file_is_where_the_catalogue_has_it(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "real.dax").write_text(INNER_DAX)
    within = f'<file name="inner.dax"><pfn url="file://{tmp_path}/far/real.dax" site="local"/></file><dax '
    path = written(tmp_path, outer_dax=OUTER_DAX.replace("<dax ", within))
    assert len(read_workflow(path)) == 5
    written(tmp_path, outer_dax=OUTER_DAX, replicas_yml="pegasus: '5.0'\nreplicas:\n- lfn: inner.dax\n"
            "  pfns: [{pfn: far/real.dax, site: local}]\n")  # fmt: skip
    assert len(read_workflow(path)) == 5


def test_raw_files_of_a_workflow_in_another_folder_are_beside_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "raw").write_text("1")
    inner = pegasus("type: job, id: one, name: x, uses: [{lfn: raw, type: input}, {lfn: no, type: input}]")
    (tmp_path / "sub" / "inner.yml").write_text(inner)
    outer = pegasus("type: pegasusWorkflow, id: S, file: sub/inner.yml")
    assert read_workflow(written(tmp_path, outer_yml=outer)).locations == {"raw": str(tmp_path / "sub/raw")}


def test_workflows_within_workflows_within_workflows(tmp_path: Path) -> None:
    files = {f"w{n}_dax": OUTER_DAX.replace("inner.dax", f"w{n + 1}.dax") for n in range(3)}
    flow = read_workflow(written(tmp_path, **files, w3_dax=INNER_DAX))
    assert len(flow) == 3 * 2 + 3
    assert "S/S/S/I2" in flow.index
    assert ("S/S/S/I3", "S/S/Z") in edges(flow)


def test_warnings_of_workflows_within_others_have_their_names(tmp_path: Path) -> None:
    inner = '<adag><job id="I"><uses file="x" link="output"/></job></adag>'
    flow = read_workflow(written(tmp_path, outer_dax=OUTER_DAX, inner_dax=inner))
    assert flow.warnings == (
        "files without a size, which count as empty: x", "S: tasks without a run time, which count as 0 s: I"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("files", "circle"),
    [
        ({"a_dax": OUTER_DAX.replace("inner.dax", "a.dax")}, "a.dax -> a.dax"),
        (
            {
                "a_dax": OUTER_DAX.replace("inner.dax", "b.yml"),
                "b_yml": pegasus("type: pegasusWorkflow, id: S, file: c.dax"),
                "c_dax": OUTER_DAX.replace("inner.dax", "a.dax"),
            },
            "a.dax -> b.yml -> c.dax -> a.dax",
        ),
        ({"a_dag": "SPLICE s b.dag\n", "b_dag": "SUBDAG EXTERNAL t a.dag\n"}, "a.dag -> b.dag -> a.dag"),
        ({"a_mf": "x: y\n\tMAKEFLOW b.mf\n", "b_mf": "x: y\n\tMAKEFLOW a.mf\n"}, "a.mf -> b.mf -> a.mf"),
        ({"a_dag": "JOB x x.sub\nINCLUDE b.dag\n", "b_dag": "INCLUDE a.dag\n"}, "a.dag -> b.dag -> a.dag"),
    ],
)
def test_workflows_that_hold_each_other_are_refused(tmp_path: Path, files: dict[str, str], circle: str) -> None:
    with pytest.raises(WorkflowError, match=f"workflows are in a circle, one in another one: {circle}") as caught:
        read_workflow(written(tmp_path, **files))
    assert "\n" not in str(caught.value)


def test_too_many_levels_are_refused(tmp_path: Path) -> None:
    files = {f"w{n}_dax": OUTER_DAX.replace("inner.dax", f"w{n + 1}.dax") for n in range(25)}
    with pytest.raises(WorkflowError, match="the 21th workflow within another one"):
        read_workflow(written(tmp_path, **files, w25_dax=INNER_DAX))


def test_workflows_that_come_to_any_number_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "_MOST_TASKS", 1000)
    monkeypatch.setattr(dagman, "MOST_FILES", 100)
    two = '<adag><dax id="S" file="w{}.dax"/><dax id="T" file="w{}.dax"/></adag>'
    files = {f"w{n}_dax": two.format(n + 1, n + 1) for n in range(15)}
    with pytest.raises(WorkflowError, match="with its sub-workflows it has more than 1,000 tasks"):
        read_workflow(written(tmp_path, **files, w15_dax=INNER_DAX))
    dags = {f"w{n}_dag": f"SPLICE a w{n + 1}.dag\nSPLICE b w{n + 1}.dag\n" for n in range(15)}
    with pytest.raises(WorkflowError, match="it names more than 100 files of DAGs"):
        read_workflow(written(tmp_path, **dags, w15_dag="JOB a a.sub\n"))


@pytest.mark.parametrize(
    ("files", "task"),
    [
        ({"outer_dax": OUTER_DAX}, r"'S' \(inner.dax\)"),
        ({"outer_dax": OUTER_DAX.replace("<dax", "<dag").replace("inner.dax", "no.dag")}, r"'S' \(no.dag\)"),
        ({"outer_yml": pegasus("type: pegasusWorkflow, id: S, file: inner.yml")}, r"'S' \(inner.yml\)"),
        ({"outer_dag": "JOB a a.sub\nSUBDAG EXTERNAL S no.dag\nPARENT a CHILD S\n"}, r"'S' \(no.dag\)"),
    ],
)
def test_one_that_is_not_there_is_a_task_that_no_run_takes(tmp_path: Path, files: dict[str, str], task: str) -> None:
    flow = read_workflow(written(tmp_path, **files))
    assert "S" in flow.index
    assert any("S" in warning and "each taken as one task" in warning for warning in flow.warnings)
    again = read_tradewind_yaml(plain(to_document(flow)), "plan.json", "w")
    for each in (flow, again):
        with pytest.raises(WorkflowError, match=f"{task} is a workflow of its own, whose file was not there"):
            check_subworkflows(each)


def test_ids_of_workflows_within_others_are_taken_once(tmp_path: Path) -> None:
    for text in (OUTER_DAX.replace('id="Z"', 'id="S"'), OUTER_DAX.replace('id="A"', 'id="S/I2"')):
        with pytest.raises(WorkflowError, match=r"there are two tasks 'S"):
            read_workflow(written(tmp_path, outer_dax=text, inner_dax=INNER_DAX))


@needs_datasets
def test_a_real_workflow_within_another() -> None:
    flow = read_workflow(DATASETS / "formats/pegasus5/hierarchical/workflow.yml")
    assert len(flow) == 2 + 4
    ids = {f"ID000000{n}": f"diamond_subworkflow/ID000000{n}" for n in (1, 2, 3, 4)}
    one, two, three, four = ids.values()
    assert edges(flow) == {
        ("ID0000001", one), (one, two), (one, three), (two, four), (three, four), (four, "ID0000002")
    }  # fmt: skip
    assert flow.tasks[flow.index["ID0000001"]].command[0] == "/usr/bin/curl"
