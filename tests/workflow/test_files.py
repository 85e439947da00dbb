"""Graphs, machines and plans in files: found by their content, written and read again."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.workflow.datasets import dax, needs_datasets
from tests.workflow.simulator.test_reference import platforms, workflows

from tradewind.errors import WorkflowError
from tradewind.plugins import Settings
from tradewind.problem import Billing
from tradewind.workflow.files import (
    Plan,
    folder_of,
    is_plan,
    open_platform,
    plan_document,
    read_plan,
    read_platform,
    read_workflow,
    write_plan,
)
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.readers.tradewind_yaml import write_tradewind_yaml
from tradewind.workflow.readers.wfformat import write_wfformat

OWN = """\
name: totals
files: {raw.csv: 30MB, note: 12}
tasks:
  clean: {command: python clean.py 'raw file.csv', runtime: 2.5s, inputs: [raw.csv], outputs: [clean.csv]}
  sum:
    command: [python, sum.py, 007, 1.50]
    activity: summing
    runtime: 1m
    inputs: [clean.csv, note]
    cores: 2
    memory: 4GiB
  mail: {command: ./mail.sh, runtime: 1, after: [sum]}
"""


def write(tmp_path: Path, text: str | bytes, name: str = "w.yaml") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_own_yaml(tmp_path: Path) -> None:
    flow = read_workflow(write(tmp_path, OWN))
    clean, total, mail = flow.tasks
    assert flow.name == "totals"
    assert clean.command == ("python", "clean.py", "raw file.csv")
    assert total.command == ("python", "sum.py", "007", "1.50")
    assert (clean.runtime, total.runtime, mail.runtime) == (2.5, 60.0, 1.0)
    assert (clean.activity, total.activity) == ("clean", "summing")
    assert (total.cores, total.memory_bytes) == (2, 4 << 30)
    assert flow.parents == ((), (0,), (1,))
    assert flow.sizes == {"raw.csv": 30_000_000, "note": 12}
    assert flow.warnings == ("files without a size, which count as empty: clean.csv",)


def test_edges_may_be_written_only(tmp_path: Path) -> None:
    flow = read_workflow(write(tmp_path, OWN + "edges: after\n"))
    assert flow.parents == ((), (), (1,))
    assert "files read by tasks that do not wait for the one that writes them: clean.csv by sum" in flow.warnings


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("runtime: 1m", "runtime: -3", 5, "the run time of task 'sum' is -3.0"),
        ("runtime: 1m", "runtime: soon", 8, "'soon' is not a duration"),
        ("runtime: 1m", "runtime: nan", 8, "the run time of task 'sum' is 'nan', not a time"),
        ("memory: 4GiB", "memory: much", 11, "'much' is not an amount of memory"),
        ("cores: 2", "cores: 1.5", 10, "the cores of task 'sum' is '1.5', not a whole number"),
        ("cores: 2", "cores: 0", 5, "task 'sum' uses 0 cores"),
        ("cores: 2", "kores: 2", 10, r"has no key 'kores' \(did you mean 'cores'"),
        ("after: [sum]", "after: [som]", 12, "names task 'som', which is not there"),
        ("after: [sum]", "after: [mail]", 12, "waits for itself"),
        ("after: [sum]", "after: sum", 12, "'after' is no list"),
        ("outputs: [clean.csv]", "outputs: [clean.csv], after: [mail]", 5, "in a circle: "),
        ("note: 12", "note: -12", 2, "file 'note' of task 'files' has a size of -12"),
        ("note: 12", "note: 1.5", 2, "'1.5' is no size"),
        ("'raw file.csv'", "'raw file.csv", 4, "no YAML|no closing quotation"),
        ("  mail:", "  sum:", 12, "the key 'sum' is written twice"),
        ("name: totals", "name: !!python/object:os.system totals", 1, "tag"),
        ("name: totals", "edges: both", 1, "'edges' is 'both'"),
        ("  mail: {command: ./mail.sh, runtime: 1, after: [sum]}", "  mail: ./mail.sh", 12, "no mapping"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_its_line(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    assert OWN.count(old) == 1
    path = write(tmp_path, OWN.replace(old, new))
    with pytest.raises(WorkflowError, match=words) as caught:
        read_workflow(path)
    assert (caught.value.file, caught.value.line) == (str(path), line)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_xml_may_be_in_other_encodings(tmp_path: Path, encoding: str) -> None:
    declared = encoding.removesuffix("-sig").removesuffix("-le").removesuffix("-be")
    text = f'<?xml version="1.0" encoding="{declared}"?>\n<adag><job id="a" name="zürich" runtime="2"/></adag>'
    path = tmp_path / "flow.dax"
    path.write_bytes(text.encode(encoding))
    flow = read_workflow(path)
    assert (flow.tasks[0].activity, flow.tasks[0].runtime) == ("zürich", 2.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "it is empty"),
        (b"hello", "no mapping"),
        (b"- a\n- b\n", "no mapping"),
        (b"a: 1\n", "neither 'tasks' nor 'jobs'"),
        (b"vms: []\n", "machines, not a workflow"),
        (b"tasks: {}\n", "no task in it"),
        (b"{'a': 1}\n", "neither 'tasks' nor 'jobs'"),
        (b'{"a": 1,\n', "no JSON"),
        (b'{"a": ' * 50_000, "it is no JSON: it is nested too deeply"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "it is no JSON: a number has too many digits"),
        (b'{"a": "\xe9"}', "it is no JSON: it is not UTF-8"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"tasks:\n\tx: 1\n", "no YAML"),
        (b"a: &a [*a]\n", "holds itself"),
        (b"a: 1\n---\nb: 2\n", "more than one document"),
        (b"tasks: " + b"[" * 200_000, "nested too deeply"),
        (b"{" * 200_000, "a key must be a word|nested too deeply"),
        (gzip.compress(b"tasks: {a: {runtime: 1}}\n", mtime=0)[:-12], "ends too early"),
        (b"\x1f\x8b\x08hello, this is not", "no gzip"),
        (b"<adag>", "no XML"),
    ],
)
def test_other_files(tmp_path: Path, text: bytes, words: str) -> None:
    with pytest.raises(WorkflowError, match=words) as caught:
        read_workflow(write(tmp_path, text))
    assert caught.value.file == str(tmp_path / "w.yaml")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(WorkflowError, match="there is no file"):
        read_workflow(tmp_path / "none.yaml")
    with pytest.raises(WorkflowError, match="is a folder"):
        read_workflow(tmp_path)


def test_an_alias_bomb_stays_small(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    with pytest.raises(WorkflowError, match="neither 'tasks' nor 'jobs'"):
        read_workflow(write(tmp_path, "\n".join(lines)))


@pytest.mark.slow
@settings(max_examples=share(60), deadline=None)
@given(workflows(), st.booleans())
def test_what_is_written_is_read_again(flow: Workflow, packed: bool) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for text in (write_tradewind_yaml(flow), write_wfformat(flow)):
            path = Path(folder) / "w"
            path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
            again = read_workflow(path)
            assert (again.tasks, again.parents, dict(again.sizes)) == (flow.tasks, flow.parents, dict(flow.sizes))
            assert again.name == flow.name


def test_words_that_look_like_something_else_stay_words(tmp_path: Path) -> None:
    tasks = (
        Task("007", "null", 1e-05, ("1e3",), ("~", "yes: no"), 3, 77, ("prog", "", "null", "-0", "a b", "#", "ü")),
        Task("1", "2.50", 2.5, ("~",), ()),
    )
    flow = Workflow("true", tasks, ((), (0,)), {"1e3": 10**15, "~": 0})
    again = read_workflow(write(tmp_path, write_tradewind_yaml(flow)))
    assert (again.name, again.tasks, again.parents, again.sizes) == (flow.name, flow.tasks, flow.parents, flow.sizes)


VMS = """\
vms:
  - {kind: m3.medium, count: 2, price: $0.067/h}
  - kind: m3.2xlarge
    speed: 4.156
    slots: 8
    price: 0.532
    boot: 30s
  - {name: big, kind: m3.2xlarge, count: 2}
storage: shared
bandwidth: 20 MB/s
latency: 500ms
billing: {minimum: 60s, granularity: 1h}
"""


def test_machines(tmp_path: Path) -> None:
    platform = read_platform(write(tmp_path, VMS))
    assert [vm.name for vm in platform.vms] == ["m3.medium-1", "m3.medium-2", "m3.2xlarge-1", "big-1", "big-2"]
    assert platform.vms[2] == Vm("m3.2xlarge-1", 4.156, 8, 0.532, "m3.2xlarge", 30.0)
    assert platform.vms[0].price_per_hour == 0.067
    assert (platform.storage, platform.bandwidth, platform.latency) == ("shared", 20.0, 0.5)
    assert platform.billing == Billing(0.0, 60.0, 3600.0)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("storage: shared", "storage: nfs", 9, "'storage' is 'nfs'"),
        ("bandwidth: 20 MB/s", "bandwidth: 0", 10, "no bandwidth"),
        ("latency: 500ms", "latency: -1", 11, "not a duration"),
        ("granularity: 1h", "granularity: 0", 12, "granularity is 0"),
        ("granularity: 1h", "grain: 0", 12, "no key 'grain'"),
        ("speed: 4.156", "speed: 0", 4, "speed of 'm3.2xlarge' is 0"),
        ("speed: 4.156", "speed: fast", 4, "is 'fast', not a number"),
        ("slots: 8", "slots: 0", 5, "0 slots"),
        ("boot: 30s", "memory: much", 7, "the memory of 'm3.2xlarge'"),
        ("boot: 30s", "memory: 0", 7, "the memory of 'm3.2xlarge' is 0"),
        ("price: 0.532", "price: cheap", 6, "not an amount of money"),
        ("count: 2, price", "count: -2, price", 2, "the count of 'm3.medium' is -2"),
        ("kind: m3.medium, ", "", 2, "a machine has no kind"),
        ("{name: big, kind: m3.2xlarge, count: 2}", "big", 8, "no mapping"),
        ("{kind: m3.medium, count: 2, price: $0.067/h}", "{offer: 'aws:us-east-1:no.such'}", 2, "no catalogue sells"),
        ("{kind: m3.medium, count: 2, price: $0.067/h}", "{offer: 'a:b:c:d'}", 2, "is no offer"),
    ],
)  # fmt: skip
def test_machines_that_are_wrong(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    assert VMS.count(old) == 1
    path = write(tmp_path, VMS.replace(old, new))
    with pytest.raises(WorkflowError, match=words) as caught:
        read_platform(path)
    assert (caught.value.file, caught.value.line) == (str(path), line)


def test_no_machines(tmp_path: Path) -> None:
    with pytest.raises(WorkflowError, match="no machines under 'vms'"):
        read_platform(write(tmp_path, "vms: [{kind: a, count: 0}]\n"))


def test_an_offer_of_a_catalogue(tmp_path: Path) -> None:
    text = "vms: [{offer: 'aws:us-east-1:c7i.2xlarge', count: 2, speed: 1.5}]\n"
    platform = read_platform(write(tmp_path, text))
    assert [vm.name for vm in platform.vms] == ["c7i.2xlarge-1", "c7i.2xlarge-2"]
    assert platform.vms[0].slots == 8
    assert platform.vms[0].speed == 1.5
    assert 0.2 < platform.vms[0].price_per_hour < 0.6
    assert platform.vms[0].memory_bytes == 16 * 2**30


def test_memory_of_machines(tmp_path: Path) -> None:
    text = "vms: [{kind: a, memory: 30GiB}, {kind: b}, {offer: 'aws:us-east-1:c7i.2xlarge', memory: 15GiB}]\n"
    platform = read_platform(write(tmp_path, text))
    assert [vm.memory_bytes for vm in platform.vms] == [30 * 2**30, None, 15 * 2**30]
    flow = Workflow("w", (Task("a", "a", 1.0, memory_bytes=4 * 2**30),), ((),))
    plan = plan_of(flow, platform.holding(flow))
    path = tmp_path / "plan.json"
    write_plan(path, plan)
    assert read_platform(path) == plan.platform
    assert [vm.slots for vm in plan.platform.vms] == [1, 1, 3]


@pytest.mark.parametrize(("vcpu", "slow", "fast"), [(8, 0, 1), (16, 8, 1), (32, 8, 3), (64, 8, 7), (128, 8, 15)])
def test_the_machines_of_paper_3(vcpu: int, slow: int, fast: int) -> None:
    platform = open_platform(f"paper3:{vcpu}")
    assert [vm.speed for vm in platform.vms] == [1.0] * slow + [4.156] * fast
    assert {vm.slots for vm in platform.vms} == {1}
    assert (platform.storage, platform.bandwidth) == ("shared", 15.0)


@pytest.mark.parametrize("text", ["paper3:9", "paper3:many", "paper4:16"])
def test_sets_that_do_not_exist(text: str) -> None:
    with pytest.raises(WorkflowError, match=r"paper3 has no set|there is no file paper4:16"):
        open_platform(text)


def plan_of(flow: Workflow, platform: Platform) -> Plan:
    return Plan(flow, platform, HeftPlanner(settings=Settings()).plan(flow, platform), "heft")


@pytest.mark.slow
@settings(max_examples=share(60), deadline=None)
@given(workflows(), platforms())
def test_a_plan_holds_all_that_it_is_about(flow: Workflow, platform: Platform) -> None:
    import tempfile

    plan = plan_of(flow, platform)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        write_plan(path, plan)
        again = read_plan(path)
        assert read_platform(path) == platform
        assert read_workflow(path).tasks == flow.tasks
    assert (again.flow.tasks, again.flow.parents, again.planner) == (flow.tasks, flow.parents, "heft")
    assert dict(again.flow.sizes) == dict(flow.sizes)
    assert again.platform == platform
    for name in ("vm", "start", "finish"):
        assert getattr(again.schedule, name).tolist() == getattr(plan.schedule, name).tolist()


def test_a_plan_remembers_where_the_inputs_of_its_workflow_are(tmp_path: Path) -> None:
    file = write(tmp_path, OWN)
    plan = plan_of(read_workflow(file), Platform((Vm("a", slots=2),)))
    assert "folder" not in plan_document(plan)
    assert folder_of(file) == tmp_path
    other = tmp_path / "other"
    other.mkdir()
    write_plan(other / "without.json", plan)
    assert (read_plan(other / "without.json").folder, folder_of(other / "without.json")) == (None, other)
    write_plan(other / "with.json", replace(plan, folder=tmp_path))
    assert read_plan(other / "with.json").folder == folder_of(other / "with.json") == tmp_path


@needs_datasets
def test_a_graph_whose_files_say_more_than_its_edges_comes_back() -> None:
    flow = dax("Sipht_30")
    again = plan_document(plan_of(flow, open_platform("paper3:16")))
    assert json.loads(json.dumps(again)) == again
    assert again["graph"]["tasks"][flow.tasks[0].id]["runtime"] == flow.tasks[0].runtime


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "no plan: its 'format'"),
        ({"graph": None}, "no 'graph'"),
        ({"vms": [{"name": "a"}]}, "its machines are not as they should be"),
        ({"storage": "nfs"}, "its storage is 'nfs'"),
        ({"tasks": []}, "the plan has no machine for 3 tasks, the first is"),
        ({"tasks": [{"task": "clean", "vm": "zz", "start": 0, "finish": 1}]}, "no machine 'zz'"),
        ({"tasks": [{"task": "zz", "vm": "a", "start": 0, "finish": 1}]}, "no task 'zz'"),
        ({"tasks": 7}, "not as it should be"),
        ({"folder": 7}, "its 'folder' is not the name of one"),
    ],
)
def test_plans_that_are_wrong(tmp_path: Path, change: dict[str, object], words: str) -> None:
    flow = read_workflow(write(tmp_path, OWN))
    document = plan_document(plan_of(flow, Platform((Vm("a", slots=2), Vm("b", 2.0, 2)))))
    path = write(tmp_path, json.dumps({**document, **change}), "plan.json")
    with pytest.raises(WorkflowError, match=words) as caught:
        read_plan(path)
    assert caught.value.file == str(path)


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (("tasks", 0, "start"), float("nan"), "the start of 'clean' is nan, not a number of 0 or more"),
        (("tasks", 0, "start"), -1.0, "the start of 'clean' is -1.0"),
        (("tasks", 0, "start"), True, "the start of 'clean' is True"),
        (("tasks", 0, "start"), 1e9, "'clean' ends at 1.25 s, before it begins"),
        (("tasks", 2, "finish"), float("inf"), "the finish of 'mail' is inf"),
        (("tasks", 2, "finish"), 10**400, r"the finish of 'mail' is 1000000\d+\.\.\., not a number"),
        (("vms", 0, "price_per_hour"), float("inf"), "the price of 'a' is inf"),
        (("vms", 0, "price_per_hour"), -1, "the price of 'a' is -1"),
        (("vms", 0, "speed"), 10**400, "the speed of 'a' is 1000"),
        (("vms", 0, "boot_seconds"), float("nan"), "the boot time of 'a' is nan"),
        (("vms", 0, "slots"), 10**30, "the number of slots of 'a' is 1000"),
        (("vms", 0, "slots"), 1.5, "the number of slots of 'a' is 1.5, not a whole number"),
        (("bandwidth",), float("inf"), "the bandwidth is inf"),
        (("latency",), float("nan"), "the latency is nan"),
        (("billing", "setup"), -1, "billing.setup is -1"),
        (("billing", "minimum"), float("nan"), "billing.minimum is nan"),
        (("billing", "granularity"), 0, "billing.granularity is 0, not above it"),
    ],
)
def test_numbers_of_a_plan_that_are_none(
    tmp_path: Path, where: tuple[str | int, ...], value: object, words: str
) -> None:
    flow = read_workflow(write(tmp_path, OWN))
    document = plan_document(plan_of(flow, Platform((Vm("a", 2.0, slots=2),))))
    inner: Any = document
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    path = write(tmp_path, json.dumps(document), "plan.json")
    with pytest.raises(WorkflowError, match=words) as caught:
        read_plan(path)
    assert caught.value.file == str(path)


def test_a_plan_that_another_program_wrote_anew_is_one(tmp_path: Path) -> None:
    plan = plan_document(plan_of(read_workflow(write(tmp_path, OWN)), Platform((Vm("a", slots=2),))))
    assert is_plan(write(tmp_path, json.dumps(plan, separators=(",", ":")), "compact.json"))
    assert is_plan(write(tmp_path, "\n" + json.dumps(dict(reversed(plan.items())), indent=2), "reversed.json"))
    assert not is_plan(write(tmp_path, OWN.replace("name: totals", "name: tradewind-plan-1")))
    assert not is_plan(write(tmp_path, 'tasks: {a: {command: \'jq {"format": "tradewind-plan-1"}\'}}\n'))


def test_a_workflow_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(WorkflowError, match="no plan, not even JSON"):
        read_plan(write(tmp_path, OWN))


def test_a_plan_that_cannot_be_written(tmp_path: Path) -> None:
    flow = Workflow("w", (Task("a", "a", 1.0),), ((),))
    with pytest.raises(WorkflowError, match="cannot write"):
        write_plan(tmp_path / "none" / "plan.json", plan_of(flow, Platform((Vm("a"),))))
