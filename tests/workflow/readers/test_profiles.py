"""What tasks need, as the profiles of Pegasus, HTCondor, Globus and Slurm have it, in DAX and in YAML."""

from __future__ import annotations

import json

import pytest

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Workflow
from tradewind.workflow.readers.dax import read_dax
from tradewind.workflow.readers.pegasus import read_pegasus
from tradewind.workflow.readers.profiles import file_size
from tradewind.workflow.readers.yaml_lines import read_yaml_lines

Profiles = dict[str, dict[str, object]]


def elements(profiles: Profiles) -> str:
    return "".join(
        f'<profile namespace="{space}" key="{key}">{value}</profile>'
        for space, given in profiles.items()
        for key, value in given.items()
    )


def both(profiles: Profiles, program: Profiles | None = None) -> tuple[Workflow, Workflow]:
    """One job with these profiles, and those of its program, from a DAX and from YAML."""
    catalogue = f'<executable name="p">{elements(program or {})}</executable>'
    text = f'<adag version="3.6">{catalogue}<job id="A" name="p">{elements(profiles)}</job></adag>'
    document = {
        "pegasus": "5.0",
        "transformationCatalog": {"transformations": [{"name": "p", "profiles": program or {}}]},
        "jobs": [{"type": "job", "id": "A", "name": "p", "profiles": profiles}],
    }
    return (
        read_dax(text.encode(), "w.dax"),
        read_pegasus(read_yaml_lines(json.dumps(document), "w.yml"), "w.yml", "w"),
    )


@pytest.mark.parametrize(
    ("profiles", "needs"),
    [
        ({"pegasus": {"runtime": 100, "cores": 4, "memory": 8192}}, (100.0, 4, 8 << 30)),
        ({"pegasus": {"runtime": 1, "memory": "2 GB"}}, (1.0, 1, 2 << 30)),
        ({"condor": {"request_cpus": 4, "request_memory": "8 GB"}, "pegasus": {"runtime": 7}}, (7.0, 4, 8 << 30)),
        ({"condor": {"request_cpus": "4", "request_memory": 8192}}, (0.0, 4, 8 << 30)),
        ({"condor": {"Request_Memory": "1.5G"}}, (0.0, 1, 3 << 29)),
        ({"pegasus": {"cores": 2}, "condor": {"request_cpus": 9}}, (0.0, 2, None)),
        ({"globus": {"count": 3, "maxmemory": 100, "maxwalltime": 2}}, (120.0, 3, 100 << 20)),
        ({"globus": {"maxwalltime": 2}, "pegasus": {"runtime": 5}}, (5.0, 1, None)),
        ({"slurm": {"cpus-per-task": 2, "ntasks": 3, "mem-per-cpu": "1G", "time": "1:30:00"}}, (5400.0, 6, 6 << 30)),
        ({"slurm": {"mem": 512, "time": "90"}}, (5400.0, 1, 512 << 20)),
        ({"slurm": {"time": "2:30"}}, (150.0, 1, None)),
        ({"slurm": {"time": "1-12"}}, (129600.0, 1, None)),
        ({"selector": {"runtime": 3}}, (3.0, 1, None)),
        ({"pegasus": {"nodes": 2, "ppn": 8, "runtime": 5}}, (5.0, 16, None)),
        ({"pegasus": {"ppn": 8}}, (0.0, 8, None)),
        ({"pegasus": {"nodes": 3}}, (0.0, 3, None)),
        ({"slurm": {"nodes": 2, "mem": 512}}, (0.0, 2, 1 << 30)),
        ({"pegasus": {"nodes": 2, "ppn": 8, "cores": 12}}, (0.0, 12, None)),
        ({"globus": {"hostcount": 3, "xcount": 4}}, (0.0, 12, None)),
        ({"slurm": {"nodes": 2, "ntasks-per-node": 4, "cpus-per-task": 3, "mem-per-cpu": "1G"}}, (0.0, 24, 24 << 30)),
        ({"slurm": {"nodes": 2, "ntasks": 4, "cpus-per-task": 3}}, (0.0, 12, None)),
        ({"condor": {"allowed_execute_duration": 90, "allowed_job_duration": 900}}, (90.0, 1, None)),
        ({"condor": {"allowed_job_duration": 900}}, (900.0, 1, None)),
    ],
)
def test_what_a_task_needs(profiles: Profiles, needs: tuple[float, int, int | None]) -> None:
    for flow in both(profiles):
        (task,) = flow.tasks
        assert (task.runtime, task.cores, task.memory_bytes) == needs


def test_a_job_goes_before_its_program() -> None:
    program: Profiles = {"pegasus": {"runtime": 9, "cores": 8, "memory": 1}}
    for flow in both({"condor": {"request_cpus": 2}}, program):
        assert (flow.tasks[0].runtime, flow.tasks[0].cores, flow.tasks[0].memory_bytes) == (9.0, 2, 1 << 20)


def test_what_is_not_used_is_said_once_by_name() -> None:
    profiles: Profiles = {
        "pegasus": {"runtime": 1, "style": "condor", "gpus": 2},
        "condor": {"universe": "vanilla", "request_memory": "ifThenElse(x, 1, 2)"},
        "env": {"PATH": "/bin"},
    }
    for flow in both(profiles, {"env": {"PATH": "/usr/bin"}}):
        assert set(flow.warnings) == {
            "profiles that are not used: pegasus.style, condor.universe, env.PATH",
            "profiles that are no number, and are not used: condor.request_memory of A",
        }
        assert flow.tasks[0].gpus == 2


@pytest.mark.parametrize(
    ("profiles", "needs"),
    [
        ({"pegasus": {"gpus": 2, "diskspace": 100, "priority": 5}}, (2, 100 << 20, 5)),
        ({"condor": {"request_gpus": 1, "request_disk": "2 GB", "priority": -3}}, (1, 2 << 30, -3)),
        ({"condor": {"request_disk": 1024}}, (0, 1 << 20, 0)),
        ({"slurm": {"gres": "gpu:a100:4", "tmp": "1G", "nice": 10}}, (4, 1 << 30, -10)),
        ({"slurm": {"gpus-per-task": 2, "ntasks": 3}}, (6, None, 0)),
        ({"slurm": {"gpus-per-node": 2, "nodes": 3}}, (6, None, 0)),
        ({"pegasus": {"gpus": 2}, "condor": {"request_gpus": 8}}, (2, None, 0)),
        ({"dagman": {"priority": 7}}, (0, None, 7)),
    ],
)
def test_gpus_disk_and_priority(profiles: Profiles, needs: tuple[int, int | None, int]) -> None:
    for flow in both(profiles):
        (task,) = flow.tasks
        assert (task.gpus, task.disk_bytes, task.priority) == needs


def test_limits_of_time_are_said_to_be_limits() -> None:
    for flow in both({"globus": {"maxwalltime": 2}}):
        assert flow.warnings == ("tasks without a run time, for which their time limit is taken: A",)


def test_several_nodes_are_said_to_be_planned_as_one_machine() -> None:
    for flow in both({"pegasus": {"nodes": 2, "ppn": 8}}):
        assert flow.warnings[:1] == (
            "tasks that ask for several nodes, each planned on one machine with the cores of all: A",
        )
    for flow in both({"pegasus": {"nodes": 1, "ppn": 8, "runtime": 1}}):
        assert flow.warnings == ()


def test_profiles_of_pegasus_are_numbers() -> None:
    for key, value in (("cores", "many"), ("memory", "1e400"), ("runtime", "soon")):
        with pytest.raises(WorkflowError, match=f"the {key} of 'A' is '{value}', not a number") as caught:
            both({"pegasus": {key: value}})
        assert caught.value.line == 1


def test_sizes_with_units() -> None:
    assert [file_size(text) for text in ("1500", "1e6", "12 MB", "1KiB", "2.5GB", "7 B")] == [
        1500,
        1_000_000,
        12_000_000,
        1024,
        2_500_000_000,
        7,
    ]
    for text in ("large", "nan", "1e400", "12 QB", ""):
        with pytest.raises(ValueError, match=r"^|could not"):
            file_size(text)
