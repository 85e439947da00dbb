"""Wrong workflows, machines and plans, and wrong options of the commands that read them."""

# ruff: noqa: E501  (the lines are shown as they are printed)
from __future__ import annotations

import gzip

from tests.wrong_inputs.table import Case

_DAX = """\
<?xml version="1.0"?>
<adag xmlns="http://pegasus.isi.edu/schema/DAX" version="2.1">
  <job id="A" name="first" runtime="2.5"><uses file="x" link="output" size="7"/></job>
  <job id="B" name="second" runtime="1"><uses file="x" link="input" size="7"/></job>
  <child ref="B"><parent ref="A"/></child>
</adag>
"""
_OWN = """\
tasks:
  clean: {command: ./clean.sh, runtime: 2s, outputs: [clean.csv]}
  sum: {command: ./sum.sh, runtime: 3s, inputs: [clean.csv]}
"""
_VMS = "vms:\n  - {kind: small, count: 2, price: $0.1/h}\n"
_INFO = ("workflow", "info", "w.xml")
_INFO_OWN = ("workflow", "info", "w.yaml")
_PLAN = ("workflow", "plan", "w.yaml", "--vms", "vms.yaml")
_SIMULATE = ("workflow", "simulate", "w.yaml", "--planner", "mct", "--vms", "vms.yaml")
_BOTH = {"w.yaml": _OWN, "vms.yaml": _VMS}


def _dax(old: str, new: str) -> dict[str, str | bytes]:
    assert old in _DAX
    return {"w.xml": _DAX.replace(old, new, 1)}


def _own(old: str, new: str) -> dict[str, str | bytes]:
    assert old in _OWN
    return {"w.yaml": _OWN.replace(old, new, 1), "vms.yaml": _VMS}


def _vms(text: str) -> dict[str, str | bytes]:
    return {"w.yaml": _OWN, "vms.yaml": text}


FILES = [
    Case("workflow-no-file", "named a workflow that is not there", 3, "there is no file w.xml", _INFO),
    Case("workflow-folder", "named a folder as a workflow", 3, "w.xml is a folder, not a file", _INFO, {"w.xml/inside": ""}),
    Case(
        "workflow-empty",
        "an empty workflow",
        3,
        "w.xml: it is empty (known are Pegasus DAX (XML), WfFormat (JSON), Pegasus 5 (YAML), Nextflow (trace or graph), HTCondor DAGMan, Snakemake (--dag, --detailed-summary, benchmarks), Makeflow, CWL, STG, Tradewind's own YAML, or a plan)",
        _INFO,
        {"w.xml": ""},
    ),
    Case(
        "workflow-other",
        "a YAML that is something else",
        3,
        "w.xml: it is no workflow: it has neither 'tasks' nor 'jobs' (known are …)",
        _INFO,
        {"w.xml": "name: sort\n"},
    ),
    Case("workflow-xml", "XML that ends too early", 3, "w.xml:7: it is no XML: no element found", _INFO, _dax("</adag>", "")),
    Case(
        "workflow-gzip",
        "a packed workflow that ends too early",
        3,
        "w.xml: its gzip stream ends too early",
        _INFO,
        {"w.xml": gzip.compress(_DAX.encode())[:-20]},
    ),
    Case(
        "workflow-parent",
        "an edge from a task that is not there",
        3,
        "w.xml:5: an edge names task 'Z', which is not there",
        _INFO,
        _dax('parent ref="A"', 'parent ref="Z"'),
    ),
    Case(
        "workflow-circle",
        "tasks that wait for each other",
        3,
        "w.xml:…: workflow w: its tasks wait for each other in a circle: …",
        _INFO,
        _dax("</adag>", '<child ref="A"><parent ref="B"/></child></adag>'),
    ),
    Case(
        "workflow-size",
        "a size below zero",
        3,
        "w.xml:3: file 'x' of task 'A' has a size of -7 (a size is 0 or more; read it with --lenient to take sizes without their sign)",
        _INFO,
        _dax('size="7"', 'size="-7"'),
    ),
    Case(
        "workflow-time",
        "a run time below zero",
        3,
        "w.xml:3: the run time of task 'A' is -2.5, not a number of 0 or more (read it with --lenient to take times below zero as 0)",
        _INFO,
        _dax('"2.5"', '"-2.5"'),
    ),
    Case(
        "workflow-json",
        "a WfFormat file in which a task has no name",
        3,
        "w.json:1: it is not as WfFormat has it at task 'a' or the one after it: KeyError 'name'",
        ("workflow", "info", "w.json"),
        {"w.json": '{"schemaVersion": "1.4", "workflow": {"tasks": [{"name": "a"}, {}]}}'},
    ),
    Case(
        "workflow-key",
        "a misspelt key of a task",
        3,
        "w.yaml:2: task 'clean' has no key 'comand' (did you mean 'command'?)",
        _INFO_OWN,
        _own("command", "comand"),
    ),
    Case(
        "workflow-after",
        "a task that waits for one that is not there",
        3,
        "w.yaml:3: an edge names task 'clear', which is not there",
        _INFO_OWN,
        _own("inputs: [clean.csv]", "after: [clear]"),
    ),
    Case(
        "workflow-seconds",
        "words where a run time belongs",
        3,
        "w.yaml:2: the run time of task 'clean': 'soon' is not a duration (write 90s, 45m, 2h30m or a number of seconds)",
        _INFO_OWN,
        _own("2s", "soon"),
    ),
    Case(
        "machines-for-a-workflow",
        "machines where the workflow belongs",
        3,
        "w.yaml: these are machines, not a workflow (give it with --vms)",
        _INFO_OWN,
        {"w.yaml": _VMS},
    ),
    Case("plan-no-vms", "planned on no machines", 3, "there are no machines to plan on (--vms vms.yaml, or --vms paper3:16)", _PLAN[:3], _BOTH),
    Case("plan-set", "a machine set that does not exist", 3, "paper3 has no set of 9 vCPU (there are 8, 16, 32, 64, 128)", (*_PLAN[:4], "paper3:9"), _BOTH),
    Case("plan-vms-none", "machines without one", 3, "vms.yaml:1: it has no machines under 'vms' (write vms: [{kind: small, count: 2}])", _PLAN, _vms("vms: []\n")),
    Case("plan-vms-speed", "a machine of speed 0", 3, "vms.yaml:2: the speed of 'small' is 0 (it is above 0)", _PLAN, _vms(_VMS.replace("count: 2", "speed: 0"))),
    Case("plan-vms-key", "a misspelt key of a machine", 3, "vms.yaml:2: a machine has no key 'cout' (did you mean 'count'?)", _PLAN, _vms(_VMS.replace("count", "cout"))),
    Case("plan-vms-storage", "a storage that does not exist", 3, "vms.yaml:3: 'storage' is 'nfs' (write none, shared or local)", _PLAN, _vms(_VMS + "storage: nfs\n")),
    Case("plan-vms-offer", "an offer that nobody sells", 3, "vms.yaml:1: no catalogue sells 'aws:us-east-1:zz9.large' (tradewind offers lists what the catalogues sell)", _PLAN, _vms("vms: [{offer: 'aws:us-east-1:zz9.large'}]\n")),
    Case(
        "plan-cores",
        "a task that fits on no machine",
        3,
        "task 'clean' uses 9 cores, and no machine has as many: the largest, 'small-1', has 1 slot (give a larger machine)",
        _PLAN,
        _own("runtime: 2s", "cores: 9"),
    ),
    Case("plan-planner", "a misspelt planner", 13, "there is no planner named 'heftt' (did you mean 'heft'?)", (*_PLAN, "--planner", "heftt"), _BOTH),
    Case("plan-setting", "a setting that the planner does not have", 3, "planner heft: unknown setting 'seconds' (known settings: none)", (*_PLAN, "--set", "seconds=2"), _BOTH),
    Case("plan-setting-form", "a planner's setting without a value", 3, "--set 'seconds' is not NAME=VALUE (write --set seconds=5)", (*_PLAN, "--set", "seconds"), _BOTH),
    Case("plan-gantt", "a picture of another kind", 3, "--gantt plan.pdf: it is neither .html nor .png", (*_PLAN, "--gantt", "plan.pdf"), _BOTH),
    Case("plan-out", "a plan into a folder that is not there", 3, "--out none/plan.json: there is no folder none (make it, or name another file)", (*_PLAN, "--out", "none/plan.json"), _BOTH),
    Case("simulate-nobody", "simulated without plan and planner", 3, "nobody says where tasks run (--plan plan.json, or --planner heft --vms vms.yaml)", ("workflow", "simulate", "w.yaml"), _BOTH),
    Case("simulate-both", "simulated with both", 3, "--plan and --planner both say who decides (leave one out)", (*_SIMULATE, "--plan", "plan.json"), _BOTH),
    Case("simulate-no-plan", "followed a file that is no plan", 3, "w.yaml:1: it is no plan, not even JSON: Expecting value: line 1 column 1 (char 0) (tradewind workflow plan writes one)", ("workflow", "simulate", "w.yaml", "--plan", "w.yaml"), _BOTH),
    Case("simulate-delay", "a delay of nothing", 3, "--delay 'lunch=2' is not understood (write engine=2s, queue=, post= or clustering=)", (*_SIMULATE, "--delay", "lunch=2"), _BOTH),
    Case("simulate-delay-time", "a delay that is no time", 3, "--delay engine: 'long' is not a duration (write 90s, 45m, 2h30m or a number of seconds)", (*_SIMULATE, "--delay", "engine=long"), _BOTH),
    Case("simulate-joining", "a delay of jobs that there are not", 3, "--delay clustering= is for jobs of several tasks (add --clustering horizontal:4)", (*_SIMULATE, "--delay", "clustering=2"), _BOTH),
    Case("simulate-clustering", "a misspelt clustering", 3, "there is no clustering 'horizontl' (did you mean 'horizontal'?)", (*_SIMULATE, "--clustering", "horizontl:2"), _BOTH),
    Case("simulate-compat", "another simulator's rules", 3, "--compat 'cloudsim' is not known (write --compat workflowsim)", (*_SIMULATE, "--compat", "cloudsim"), _BOTH),
    Case("simulate-compat-planner", "a planner that WorkflowSim has not", 3, "--compat workflowsim has no planner 'PEFT' (there are …DHEFT, HEFT)", ("workflow", "simulate", "w.yaml", "--planner", "PEFT", "--vms", "paper3:16", "--compat", "workflowsim"), _BOTH),
    Case("simulate-never", "machines that are moved all the time", 3, "no task would ever end: each machine is moved every 60 s, and stands still for 60 s then (a pause shorter than the period, or a chance of migration below 1)", (*_SIMULATE, "--migration", "1", "--pause", "60s"), _BOTH),
    Case("simulate-compat-noise", "WorkflowSim with noise", 3, "--compat workflowsim has no noise, failures, delays, clustering or plans (leave those options out)", (*_SIMULATE, "--compat", "workflowsim", "--noise", "0.1"), _BOTH),
    Case("convert-format", "a format that is not written", 3, "--to 'dax' is no format that is written (one of own, pegasus, dagman, wfformat, wfformat-1.4, wfformat-1.5, wfformat-1.6)", ("workflow", "convert", "w.yaml", "--to", "dax"), _BOTH),
]  # fmt: skip
