"""WfFormat files, read and written."""

from __future__ import annotations

import gzip
import json
import time

import pytest
from tests.workflow.datasets import DATASETS, dax, needs_datasets, table

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.wfformat import VERSIONS, from_document, write_wfformat

OLD = {
    "name": "w",
    "schemaVersion": "1.4",
    "workflow": {
        "tasks": [
            {"name": "a_1", "runtimeInSeconds": 2, "parents": [], "files": [
                {"link": "input", "name": "in", "sizeInBytes": 5}, {"link": "output", "name": "x", "sizeInBytes": 7}]},
            {"name": "b_ID02", "runtime": 3.5, "cores": 2, "parents": ["a_1"], "files": [
                {"link": "input", "name": "x", "size": 8}]},
        ]
    },
}  # fmt: skip
NEW = {
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "stretch", "id": "t1", "inputFiles": ["in", "in"], "outputFiles": ["x"], "parents": []},
                {"name": "t2", "id": "t2", "inputFiles": ["x"], "parents": ["t1"]},
            ],
            "files": [{"id": "in", "sizeInBytes": 5}, {"id": "x", "sizeInBytes": 7}],
        },
        "execution": {
            "tasks": [
                {
                    "id": "t1",
                    "runtimeInSeconds": 2.0,
                    "command": {"program": "sh", "arguments": ["-c", 1]},
                    "coreCount": 4,
                },
                {"id": "t2", "command": {"program": "a whole script"}, "memoryInBytes": 77},
            ]
        },
    },
}


def read_wfformat(text: bytes, file: str) -> Workflow:
    return from_document(json.loads(text), file, text=text)


def read(document: object) -> object:
    return read_wfformat(json.dumps(document).encode(), "w.json")


def test_until_1_4() -> None:
    flow = read_wfformat(json.dumps(OLD).encode(), "w.json")
    assert [(t.id, t.activity, t.runtime, t.cores, t.inputs, t.outputs) for t in flow.tasks] == [
        ("a_1", "a", 2.0, 1, ("in",), ("x",)),
        ("b_ID02", "b", 3.5, 2, ("x",), ()),
    ]
    assert flow.parents == ((), (0,))
    assert flow.sizes == {"in": 5, "x": 8}


# As WfCommons wrote it for Pegasus: tasks are named otherwise than their ids, and others name them so.
MONTAGE: list[dict[str, object]] = [
    {"name": "mProject_ID0000001", "id": "ID0000001", "parents": [], "children": ["mDiffFit_ID0000005"],
     "memory": 14800, "memoryInBytes": 14800000},
    {"name": "mDiffFit_ID0000005", "id": "ID0000005", "parents": ["mProject_ID0000001"], "memory": 2888},
]  # fmt: skip


@pytest.mark.parametrize("inner", [{"tasks": MONTAGE}, {"jobs": MONTAGE}, {"specification": {"tasks": MONTAGE}}])
def test_tasks_that_others_name_by_their_names(inner: object) -> None:
    flow = read_wfformat(json.dumps({"workflow": inner}).encode(), "w.json")
    assert [(task.id, task.activity) for task in flow.tasks] == [("ID0000001", "mProject"), ("ID0000005", "mDiffFit")]
    assert flow.parents == ((), (0,))
    assert not any("edges" in each for each in flow.warnings)


def test_memory_was_in_kilobytes_once() -> None:
    flow = read_wfformat(json.dumps({"workflow": {"tasks": MONTAGE}}).encode(), "w.json")
    assert [task.memory_bytes for task in flow.tasks] == [14_800_000, 2_888_000]
    assert "tasks whose memory is in kB, as in WfFormat until 1.3: ID0000005" in flow.warnings


@pytest.mark.parametrize(("key", "told"), [("size", True), ("sizeInBytes", False)])
def test_sizes_of_no_unit_are_bytes_and_a_warning_says_so(key: str, told: bool) -> None:
    files = [{"link": "output", "name": "x", key: 8}, {"link": "input", "name": "y", key: 0}]
    flow = read_wfformat(json.dumps({"workflow": {"tasks": [{"name": "a", "files": files}]}}).encode(), "w.json")
    assert flow.sizes == {"x": 8, "y": 0}
    assert [each for each in flow.warnings if "in bytes" in each] == (
        ["files whose size is in bytes, as WfCommons wrote it, although the schema of WfFormat 1.3 says KB: x"]
        if told
        else []
    )


def edges(*rows: tuple[str, str, str, str]) -> tuple[tuple[tuple[int, ...], ...], list[str]]:
    """The parents of tasks with a name, an id, parents and children; and what the reader says of edges."""
    tasks = [{"name": a, "id": b, "parents": up.split(), "children": down.split()} for a, b, up, down in rows]
    flow = read_wfformat(json.dumps({"workflow": {"tasks": tasks}}).encode(), "w.json")
    return flow.parents, [each for each in flow.warnings if "edges" in each]


def test_edges_that_only_children_tell() -> None:
    assert edges(("a", "a", "", "b c"), ("b", "b", "", ""), ("c", "c", "", "")) == (((), (0,), (0,)), [])


def test_lists_of_parents_and_children_that_differ() -> None:
    parents, said = edges(("a", "a", "", "c"), ("b", "b", "a", ""), ("c", "c", "b", ""))
    assert parents == ((), (0,), (0, 1))  # a -> b is not among the children of a, a -> c not among the parents of c
    assert said == ["edges that are either among the parents or among the children, not both, and hold: a -> b, a -> c"]


def test_an_id_goes_before_a_name_and_names_of_several_tasks_are_none() -> None:
    assert edges(("b", "a", "", ""), ("a", "b", "a", ""))[0] == ((), (0,))
    with pytest.raises(WorkflowError, match="an edge names task 'same', which is not there"):
        edges(("same", "a", "", ""), ("same", "b", "", ""), ("c", "c", "same", ""))


def test_a_task_without_a_name_has_its_id() -> None:
    flow = read_wfformat(b'{"workflow": {"tasks": [{"id": "a_1"}, {"id": "b", "parents": ["a_1"]}]}}', "w.json")
    assert ([task.activity for task in flow.tasks], flow.parents) == (["a", "b"], ((), (0,)))


def test_since_1_5() -> None:
    flow = read_wfformat(json.dumps(NEW).encode(), "folder/w.json.gz")
    first, second = flow.tasks
    assert flow.name == "w"
    assert (first.activity, first.runtime, first.cores, first.command) == ("stretch", 2.0, 4, ("sh", "-c", "1"))
    assert (second.activity, second.runtime, second.memory_bytes) == ("t", 0.0, 77)
    assert flow.warnings == (
        "tasks that list a file twice, which counts once: t1",
        "tasks without a run time, which count as 0 s: t2",
    )


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "no 'workflow'"),
        ({"workflow": {"tasks": []}}, "no task in it"),
        ({"workflow": {"tasks": [{"name": "a", "parents": ["z"]}]}}, "task 'z', which is not there"),
        ({"workflow": {"tasks": [{"name": "a", "runtime": "soon"}]}}, "run time of task 'a' is 'soon', not a number"),
        ({"workflow": {"tasks": [{"name": "a"}, True]}}, "its tasks is no list of mappings: True is in it"),
        ({"workflow": {"tasks": {"a": {}}}}, "its tasks is no list of mappings"),
        ({"workflow": {}}, "has no 'tasks'"),
        ({"workflow": {"tasks": [{"name": "a", "parents": "abc"}]}}, "parents of task 'a' is no list of names"),
        ({"workflow": {"tasks": [{"name": "a", "command": "ls -l"}]}}, "command of task 'a' is 'ls -l'"),
        ({"workflow": {"tasks": [{"name": "a", "memoryInBytes": -1}]}}, "memoryInBytes of task 'a' is -1, not a"),
        ({"workflow": {"tasks": [{"name": "a", "cores": -2}]}}, "cores of task 'a' is -2, not a number of 0 or more"),
        ({"workflow": {"specification": {"tasks": [{"id": "a", "inputFiles": "abc"}]}}}, "inputFiles of task 'a' is"),
        ({"workflow": {"tasks": [{"name": "a"}, {}]}}, "task 'a' or the one after it: KeyError"),
        ({"workflow": {"specification": {"tasks": [{"name": "a"}]}}}, "its first task: KeyError"),
        ({"workflow": {"tasks": [{"name": "a", "files": [{"name": "f", "size": -3}]}]}}, "has a size of -3"),
    ],
)
def test_what_is_wrong_has_a_place(document: object, words: str) -> None:
    with pytest.raises(WorkflowError, match=words) as caught:
        read(document)
    assert caught.value.file == "w.json"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"a": ("b",), "b": ("a",)}, "in a circle: "),
        ({"a": ("c",), "b": ()}, "task 'c', which is not there"),
    ],
)
def test_errors_of_the_graph_have_the_line(wrong: dict[str, tuple[str, ...]], words: str) -> None:
    tasks = [{"name": name, "parents": list(parents)} for name, parents in wrong.items()]
    text = json.dumps({"schemaVersion": "1.4", "workflow": {"tasks": tasks}}, indent=1)
    with pytest.raises(WorkflowError, match=words) as caught:
        read_wfformat(text.encode(), "w.json")
    named = text.splitlines()[(caught.value.line or 0) - 1]
    assert words.split("'")[1] in named if "'" in words else '"name"' in named


def test_a_size_below_zero_has_the_line_of_the_file() -> None:
    wrong = json.loads(json.dumps(NEW))
    wrong["workflow"]["specification"]["files"][1]["sizeInBytes"] = -7
    text = json.dumps(wrong, indent=1)
    with pytest.raises(WorkflowError, match="has a size of -7") as caught:
        read_wfformat(text.encode(), "w.json")
    assert '"id": "x"' in text.splitlines()[(caught.value.line or 0) - 1]


def test_version_1_6_is_read_as_1_5() -> None:
    newer = {**NEW, "schemaVersion": "1.6"}
    assert read_wfformat(json.dumps(newer).encode(), "w.json").tasks == read(NEW).tasks  # type: ignore[attr-defined]


@pytest.mark.slow
@needs_datasets
@pytest.mark.parametrize("graph", ["Montage_25", "Sipht_30", "CyberShake_100"])
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_written_is_read_again(graph: str, version: str) -> None:
    flow = dax(graph)
    text = write_wfformat(flow, version=version)
    assert json.loads(text)["schemaVersion"] == version
    again = read_wfformat(text.encode(), graph)
    assert (again.tasks, again.parents, dict(again.sizes)) == (flow.tasks, flow.parents, dict(flow.sizes))


@pytest.mark.slow
@needs_datasets
@pytest.mark.parametrize("row", table("wfinstances", "index.csv"), ids=lambda row: row["file"])
def test_every_instance_of_the_datasets(row: dict[str, str]) -> None:
    file = DATASETS / "wfinstances" / row["file"]
    flow = read_wfformat(gzip.decompress(file.read_bytes()), str(file))
    assert (len(flow), flow.edges) == (int(row["tasks"]), int(row["edges"]))
    assert flow.runtimes.sum() == pytest.approx(float(row["total_runtime_s"]), abs=0.02)
    assert flow.critical_path()[0] == pytest.approx(float(row["critical_path_s"]), abs=0.02)
    assert (int(flow.depth.max()) + 1, max(flow.widths)) == (int(row["depth"]), int(row["max_width"]))


def chain_like(count: int) -> Workflow:
    """A workflow in which each task has up to three parents."""
    parents = tuple(tuple(sorted({task // 2, task // 3, task - 1} - {task})) if task else () for task in range(count))
    tasks = tuple(
        Task(f"task_{i:05d}", f"a{i % 9}", 0.25 * i, tuple(f"file_{p}.dat" for p in parents[i]), (f"file_{i}.dat",))
        for i in range(count)
    )
    return Workflow("large", tasks, parents, {f"file_{i}.dat": 1000 * i for i in range(count)})


@pytest.mark.thorough
@pytest.mark.slow
def test_the_time_to_read_grows_with_the_number_of_tasks_and_no_faster() -> None:
    took = []
    for count in (1_000, 10_000):
        flow = chain_like(count)
        text = write_wfformat(flow).encode()
        times = []
        for _ in range(3):
            begin = time.process_time()
            again = read_wfformat(text, "large.json")
            times.append(time.process_time() - begin)
        assert again.tasks == flow.tasks
        took.append(min(times))
    assert took[1] < 30.0 * took[0]  # 10 where it is linear, 100 where it is quadratic


def test_another_version_is_not_written() -> None:
    with pytest.raises(WorkflowError, match=r"WfFormat 2\.0 is not written"):
        write_wfformat(Workflow("w", (Task("a", "a", 1.0),), ((),)), version="2.0")


@pytest.mark.parametrize(
    ("size", "words"),
    [("NaN", "nan"), ("1e400", "inf"), ('"12"', "'12'"), ("1" + "0" * 400, "1000"), ("[5]", r"\[5\]")],
)
def test_sizes_that_are_none(size: str, words: str) -> None:
    text = json.dumps(NEW, indent=1).replace('"sizeInBytes": 5', f'"sizeInBytes": {size}')
    with pytest.raises(WorkflowError, match=f"file 'in' of task 't1' has a size of {words}") as caught:
        read_wfformat(text.encode(), "w.json")
    assert caught.value.line is not None
    text = json.dumps(NEW).replace('"sizeInBytes": 5', '"sizeInBytes": 5.0')
    assert read_wfformat(text.encode(), "w.json").sizes == {"in": 5, "x": 7}


@pytest.mark.parametrize(
    ("old", "new"), [('"coreCount": 4', '"coreCount": 1e400'), ('InBytes": 77', 'InBytes": 1e400')]
)
def test_numbers_beyond_all_bounds(old: str, new: str) -> None:
    text = json.dumps(NEW)
    assert old in text
    with pytest.raises(WorkflowError, match=r"of task 't[12]' is inf, more than any task can have"):
        read_wfformat(text.replace(old, new).encode(), "w.json")


def test_parts_of_cores_and_several_executions_are_counted() -> None:
    text = json.dumps(NEW).replace('"coreCount": 4', '"coreCount": 2.5')
    document = json.loads(text)
    runs = document["workflow"]["execution"]["tasks"]
    runs.insert(0, {**runs[0], "runtimeInSeconds": 99})
    flow = read_wfformat(json.dumps(document).encode(), "w.json")
    assert (flow.tasks[0].cores, flow.tasks[0].runtime) == (3, 2.0)
    assert "tasks with a part of a core, which count as the next whole number of cores: t1" in flow.warnings
    assert "tasks with several executions, of which the last counts: t1" in flow.warnings


def test_ids_may_be_numbers() -> None:
    document = {
        "workflow": {
            "specification": {
                "tasks": [{"id": 1, "outputFiles": [7]}, {"id": 2, "inputFiles": [7], "parents": [1]}],
                "files": [{"id": 7, "sizeInBytes": 5}],
            },
            "execution": {"tasks": [{"id": 1, "runtimeInSeconds": "2.5"}, {"id": 2, "runtimeInSeconds": 3}]},
        }
    }
    flow = read_wfformat(json.dumps(document).encode(), "w.json")
    assert [(task.id, task.runtime) for task in flow.tasks] == [("1", 2.5), ("2", 3.0)]
    assert (flow.sizes, flow.parents, flow.warnings) == ({"7": 5}, ((), (0,)), ())


def test_priorities() -> None:
    tasks = [{"name": name, "type": "compute", "runtime": 1, "priority": place} for place, name in enumerate("ab")]
    document: dict[str, object] = {"name": "w", "schemaVersion": "1.3", "workflow": {"tasks": tasks}}
    flow = read_wfformat(json.dumps(document).encode(), "w.json")
    assert [task.priority for task in flow.tasks] == [0, 1]
    tasks[0]["priority"] = "high"
    with pytest.raises(WorkflowError, match="the priority of task 'a' is 'high', not a number"):
        read(document)


def test_a_file_whose_tasks_all_take_no_time_says_so() -> None:
    tasks = [{"name": name, "id": name, "parents": [], "children": []} for name in "ab"]
    runs = [{"id": name, "runtimeInSeconds": 0} for name in "ab"]

    def warnings(*executed: dict[str, object]) -> tuple[str, ...]:
        flow = {"specification": {"tasks": tasks, "files": []}, "execution": {"tasks": [*executed]}}
        return from_document({"name": "w", "schemaVersion": "1.5", "workflow": flow}, "w.json").warnings

    assert warnings(*runs) == ("tasks whose run time is 0 s in the file, as that of all tasks: a, b",)
    assert warnings(runs[0], {"id": "b", "runtimeInSeconds": 2}) == ()
    assert warnings(runs[0]) == ("tasks without a run time, which count as 0 s: b",)
