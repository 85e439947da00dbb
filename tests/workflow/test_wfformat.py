"""WfFormat files, read and written."""

from __future__ import annotations

import gzip
import json

import pytest
from tests.workflow.datasets import DATASETS, dax, needs_datasets, table

from tradewind.errors import WorkflowError
from tradewind.workflow.readers.wfformat import read_wfformat, write_wfformat

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


def test_since_1_5() -> None:
    flow = read_wfformat(json.dumps(NEW).encode(), "folder/w.json.gz")
    first, second = flow.tasks
    assert flow.name == "w"
    assert (first.activity, first.runtime, first.cores, first.command) == ("stretch", 2.0, 4, ("sh", "-c", "1"))
    assert (second.activity, second.runtime, second.memory_bytes) == ("t", 0.0, 77)
    assert flow.warnings == (
        "1 tasks list a file twice, which counts once",
        "1 tasks have no run time and count as 0 s",
    )


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "no 'workflow'"),
        ({"workflow": {"tasks": []}}, "no task in it"),
        ({"workflow": {"tasks": [{"name": "a", "parents": ["z"]}]}}, "task 'z', which is not there"),
        ({"workflow": {"tasks": [{"name": "a", "runtime": "soon"}]}}, "its first task: ValueError"),
        ({"workflow": {"tasks": [{"name": "a"}, {}]}}, "task 'a' or the one after it: KeyError"),
        ({"workflow": {"specification": {"tasks": [{"name": "a"}]}}}, "its first task: KeyError"),
        ({"workflow": {"tasks": [{"name": "a", "files": [{"name": "f", "size": -3}]}]}}, "has a size of -3"),
    ],
)
def test_what_is_wrong_has_a_place(document: object, words: str) -> None:
    with pytest.raises(WorkflowError, match=words) as caught:
        read(document)
    assert caught.value.file == "w.json"


def test_no_json() -> None:
    with pytest.raises(WorkflowError, match="no JSON") as caught:
        read_wfformat(b'{\n "workflow": \n', "w.json")
    assert caught.value.line == 3


@needs_datasets
@pytest.mark.parametrize("graph", ["Montage_25", "Sipht_30", "CyberShake_100"])
def test_what_is_written_is_read_again(graph: str) -> None:
    flow = dax(graph)
    again = read_wfformat(write_wfformat(flow).encode(), graph)
    assert (again.tasks, again.parents, dict(again.sizes)) == (flow.tasks, flow.parents, dict(flow.sizes))


@needs_datasets
@pytest.mark.parametrize("row", table("wfinstances", "index.csv"), ids=lambda row: row["file"])
def test_every_instance_of_the_datasets(row: dict[str, str]) -> None:
    file = DATASETS / "wfinstances" / row["file"]
    flow = read_wfformat(gzip.decompress(file.read_bytes()), str(file))
    assert (len(flow), flow.edges) == (int(row["tasks"]), int(row["edges"]))
    assert flow.runtimes.sum() == pytest.approx(float(row["total_runtime_s"]), abs=0.02)
    assert flow.critical_path()[0] == pytest.approx(float(row["critical_path_s"]), abs=0.02)
    assert (int(flow.depth.max()) + 1, max(flow.widths)) == (int(row["depth"]), int(row["max_width"]))
