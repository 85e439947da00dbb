"""Wrong inputs of ``tradewind workflow run``."""

# ruff: noqa: E501  (the lines are shown as they are printed)
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tests.wrong_inputs.table import Case

from tradewind.workflow.files import Plan, plan_document
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import Schedule, dump


def plan(*tasks: Task) -> str:
    """A plan that is right: its tasks one after the other on one machine."""
    ends = np.cumsum([task.runtime for task in tasks])
    starts = ends - [task.runtime for task in tasks]
    parents = tuple((n - 1,) if n else () for n in range(len(tasks)))
    schedule = Schedule(np.zeros(len(tasks), dtype=np.int32), starts, ends)
    return dump(plan_document(Plan(Workflow("pair", tasks, parents), Platform((Vm("box"),)), schedule, "heft")))


_TRUE = plan(Task("a", "a", 0.1, command=("true",)))
_BARE = plan(Task("a", "a", 1.0), Task("b", "b", 1.0, command=("true",)))
_READS = plan(Task("a", "a", 0.1, ("data.csv",), command=("cat", "data.csv")))
_FAILS = plan(Task("a", "a", 0.1, (), ("x",), command=("false",)), Task("b", "b", 0.1, ("x",), command=("cat", "x")))
_SILENT = plan(Task("a", "a", 0.1, (), ("out.csv",), command=("true",)))
_OUTSIDE = plan(Task("a", "a", 0.1, (), ("/etc/out",), command=("true",)))


def _run(id_: str, did: str, code: int, says: str, text: str, *words: str, **more: str) -> Case:
    files: dict[str, str | bytes] = {
        "plan.json": text,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return Case(f"workflow-run-{id_}", did, code, says, ("workflow", "run", "plan.json", "--quiet", *words), files)


RUNS: Sequence[Case] = [
    _run(
        "no-plan",
        "gave a workflow in the place of a plan",
        3,
        "plan.json:1: it is no plan, not even JSON: … (tradewind workflow plan writes one)",
        "tasks: {}\n",
    ),
    _run(
        "older-plan",
        "a plan of an older version",
        3,
        "plan.json: it is a plan of another version of Tradewind: its 'format' is tradewind-plan-0, and tradewind-plan-1 is read "
        "(plan again with tradewind workflow plan or advise)",
        _TRUE.replace("tradewind-plan-1", "tradewind-plan-0"),
    ),
    _run(
        "store",
        "wanted the journal in a store and in none",
        3,
        "--store and --no-store do not go together (leave one out)",
        _TRUE,
        "--store",
        "sqlite:///other.db",
        "--no-store",
    ),
    _run(
        "no-runner",
        "misspelled where",
        13,
        "there is no runner named 'slrum' (did you mean 'slurm'?)",
        _TRUE,
        "--on",
        "slrum",
    ),
    _run(
        "runner",
        "named a runner that cannot carry out a plan",
        13,
        "'replay' cannot carry out a plan: replay runs nothing for real (use docker, htcondor, kubernetes, local, ray, slurm, ssh; tradewind plugins --matrix shows all)",
        _TRUE,
        "--on",
        "replay",
    ),
    _run(
        "setting",
        "misspelled a setting of the runner",
        3,
        "runner process: unknown setting 'grase' (did you mean 'grace'?)",
        _TRUE,
        "--set",
        "grase=1",
    ),
    _run("set-form", "a setting without a value", 3, "--set 'grace' is not NAME=VALUE …", _TRUE, "--set", "grace"),
    _run(
        "online",
        "a planner that is to decide during the run, and cannot",
        13,
        "the planner heft does not decide during a run (adaptive, fcfs, mct, minmin, maxmin, sufferage and …)",
        _TRUE,
        "--online",
    ),
    _run(
        "bare",
        "a plan of tasks without commands",
        3,
        "no command for 1 of 2 tasks, the first is 'a' (--synthetic lets them take their time and do nothing)",
        _BARE,
    ),
    _run(
        "scale",
        "a scale for real programs",
        3,
        "--scale is for tasks that only sleep "
        "(--synthetic, and a workflow without commands; or --no-commands, which runs none of them)",
        _TRUE,
        "--scale",
        "0.1",
    ),
    _run(
        "scale-zero",
        "a scale of nothing",
        3,
        "--scale 0 is no share of a time (0.01 plays an hour in 36 seconds)",
        _TRUE,
        "--scale",
        "0",
    ),
    _run(
        "inputs",
        "an input file that is not there",
        3,
        "there is no file …/data.csv, which task 'a' reads and no task writes (name the folder of the inputs with --inputs)",
        _READS,
    ),
    _run(
        "outside",
        "an output outside of the folder of the run",
        3,
        "task 'a' writes /etc/out, which is not in the folder of the run (name outputs by relative paths)",
        _OUTSIDE,
    ),
    _run(
        "gantt",
        "a picture of a format that there is not",
        3,
        "--gantt chart.pdf: it is neither .html nor .png",
        _TRUE,
        "--gantt",
        "chart.pdf",
    ),
    _run(
        "python",
        "a Python that the machines do not have",
        9,
        "there is no program /no/python on box (--python names one)",
        _TRUE,
        "--python",
        "/no/python",
    ),
    _run(
        "fails",
        "a program that fails",
        7,
        "task 'a' failed 2 times: it exited with code 1; 1 that need them were not run (see …/plan.run/tasks/a/2/stderr; the same command goes on)",
        _FAILS,
        "--retries",
        "1",
    ),
    _run(
        "silent",
        "a program that does not write its output",
        7,
        "task 'a' failed 1 time: it ended without writing its output out.csv (see …/plan.run/tasks/a/1/stderr; the same command goes on)",
        _SILENT,
        "--retries",
        "0",
    ),
    Case(
        "workflow-measured",
        "measured times that are none",
        3,
        "plan.json: these are no results of a run: the 'format' is not tradewind-results-1 (tradewind workflow run writes them)",
        ("workflow", "plan", "plan.json", "--vms", "paper3:16", "--measured", "plan.json"),
        {"plan.json": _TRUE},
    ),
]
