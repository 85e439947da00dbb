"""Writes workflows and plans as DAGs of HTCondor's DAGMan, with a submit description for each task."""

from __future__ import annotations

import re
from pathlib import Path

from tradewind.errors import WorkflowError
from tradewind.utils.units import count
from tradewind.workflow.graph import Task
from tradewind.workflow.readers.command_words import split_streams
from tradewind.workflow.readers.systems.submit_file import quote_arguments, quote_string, quote_value
from tradewind.workflow.writers.common import (
    WorkflowSource,
    WrittenWorkflow,
    check_commands,
    check_file_names,
    implied_note,
    mebibytes,
    outside_files,
    program_of,
    renamed_note,
    safe_names,
)

SYSTEM = "HTCondor"
_RESERVED = ("parent", "child", "all_nodes")
_ACTIVITY_BREAK = re.compile(r"[\r\n]")


def write_dagman(source: WorkflowSource, out: Path) -> WrittenWorkflow:
    """Write a workflow, or the plan for it, as a DAG.

    Each task is a node. Its submit description lies in a folder named after the DAG, and has the command, the files
    that are sent there and back, and what it needs. Of a plan, the order of tasks is their ``PRIORITY``, and each task
    requires its machine; which machine of the pool that is stands once, in the DAG. `read_workflow` reads all of it.

    Args:
        source: The workflow.
        out: The file that the DAG will be in.

    Raises:
        WorkflowError: A task has no command, or something that a submit description cannot have.
    """
    flow = source.flow
    if bare := [task.id for task in flow.tasks if not task.command]:
        words = f"no command for {len(bare)} of {count(len(flow), 'task')}, the first is {bare[0]!r}"
        raise WorkflowError(words, hint="HTCondor runs commands: give each task one, or write another format")
    if re.search(r"\s", out.name):
        raise WorkflowError(f"--out {out}: DAGMan takes no blanks in the names of files", hint="name it without")
    check_file_names(flow, SYSTEM, _wrong_name)
    check_commands(flow, SYSTEM, _wrong_word)
    for task in flow.tasks:
        if task.optional:
            words = f"task {task.id!r}: HTCondor has no optional inputs, and {task.optional[0]!r} is one"
            raise WorkflowError(words, hint="take it out of inputs, or make sure that it is there")
    nodes = safe_names((task.id for task in flow.tasks), _RESERVED)
    machines, folder = source.machines(), f"{out.name}.jobs"
    macros = safe_names(dict.fromkeys(machines))
    others = {}
    for place, task in enumerate(flow.tasks):
        node = nodes[task.id]
        machine = f"machine_{macros[machines[place]]}".replace("-", "_") if machines else ""
        others[f"{folder}/{node}.sub"] = _submit_description(source, task, node, machine, out)
    notes = [*renamed_note(nodes, "tasks"), *implied_note(flow)]
    away = source.folder is not None and source.folder.absolute() != out.absolute().parent
    if away and (files := outside_files(flow)):
        more = f" and {len(files) - 3:,} more" if len(files) > 3 else ""
        notes.append(
            f"the inputs of the workflow have to be beside it before it is submitted: {', '.join(files[:3])}{more}, "
            f"from {source.folder}"
        )
    return WrittenWorkflow(_dag(source, nodes, macros, folder, out), others, tuple(notes))


def _dag(source: WorkflowSource, nodes: dict[str, str], macros: dict[str, str], folder: str, out: Path) -> str:
    flow, ids = source.flow, [nodes[task.id] for task in source.flow.tasks]
    lines = [f"# {source.described()}. Submit it in this folder: condor_submit_dag {out.name}", ""]
    lines += [f"JOB {node} {folder}/{node}.sub" for node in ids]
    if source.plan is not None:
        lines += ["", "# The order of the plan: of the tasks that could begin, the one that it begins first."]
        priorities = source.priorities()
        lines += [f"PRIORITY {node} {priorities[place]}" for place, node in enumerate(ids)]
    elif flow.priorities:
        lines += ["", *(f"PRIORITY {node} {flow.priorities[place]}" for place, node in enumerate(ids))]
    lines += [
        "",
        *(f"PARENT {_names(ids, above)} CHILD {ids[place]}" for place, above in enumerate(flow.parents) if above),
    ]
    if source.plan is not None:
        lines += ["", "# The machines of the plan. Write the names that yours have in the pool (attribute Machine)."]
        vms = {vm.name: vm for vm in source.plan.platform.vms}
        for name, macro in macros.items():
            if re.search(r'["\\\s]', name):
                raise WorkflowError(f"machine {name!r} has a name that a DAG cannot have", hint="rename it in the plan")
            vm = vms[name]
            kind = f"{vm.kind}, " if vm.kind and not re.search(r"[\r\n]", vm.kind) else ""
            lines.append(f"# {kind}{count(vm.slots, 'slot')}, speed {vm.speed:g}")
            lines.append(f'VARS ALL_NODES machine_{macro.replace("-", "_")}="{name}"')
    return "\n".join(lines) + "\n"


def _names(ids: list[str], places: tuple[int, ...]) -> str:
    return " ".join(ids[place] for place in places)


def _submit_description(source: WorkflowSource, task: Task, node: str, machine: str, out: Path) -> str:
    flow = source.flow
    program = program_of(task, task.command, source.folder, out.absolute().parent)
    inner = split_streams(list(task.command))[0]
    if program_of(task, inner, source.folder, out.absolute().parent).sent > program.sent:
        hint = "list it among the inputs of the task, or give an absolute path"
        raise WorkflowError(f"task {task.id!r}: its program {inner[0]!r} is run by a shell, and is not sent", hint=hint)
    if (why := _wrong_name(program.path)) or program.path != program.path.strip():
        raise WorkflowError(f"task {task.id!r}: HTCondor cannot take program {program.path!r}: {why or 'blanks'}")
    names = (*task.inputs, *task.outputs)
    lines = [
        "universe = vanilla",
        f"executable = {quote_value(program.path)}",
        f"transfer_executable = {'true' if program.sent else 'false'}",
        f"arguments = {quote_arguments(program.words)}",
        "should_transfer_files = YES",
        "when_to_transfer_output = ON_SUCCESS",
    ]
    if task.inputs:
        lines.append(f"transfer_input_files = {quote_value(', '.join(task.inputs))}")
    # An empty list says that nothing comes back; without one, all new files do.
    lines.append("transfer_output_files = " + (quote_value(", ".join(task.outputs)) if task.outputs else '""'))
    if any("/" in name for name in names):
        lines.append("preserve_relative_paths = true")
    lines.append(f"request_cpus = {task.cores}")
    if task.memory_bytes is not None:
        lines.append(f"request_memory = {mebibytes(task.memory_bytes)}")
    if task.gpus:
        lines.append(f"request_gpus = {task.gpus}")
    if task.disk_bytes is not None:
        lines.append(f"request_disk = {-(-task.disk_bytes // 1024)}")
    if machine:
        lines.append(f'requirements = (TARGET.Machine == "$({machine})")')
    lines += [f"output = {out.name}.jobs/{node}.out", f"error = {out.name}.jobs/{node}.err", ""]
    lines.append("# For those who read this file: seconds, kind of task, bytes of the files.")
    lines.append(f"+pegasus_job_runtime = {float(task.runtime)!r}")
    lines.append(f"+pegasus_wf_xformation = {quote_string(_ACTIVITY_BREAK.sub(' ', task.activity))}")
    if node != task.id:
        if _ACTIVITY_BREAK.search(task.id):
            raise WorkflowError(f"task {task.id!r} has a line break in its name", hint="give it another one")
        lines.append(f"+tradewind_task = {quote_string(task.id)}")
    if task.memory_bytes is not None:
        lines.append(f"+tradewind_memory_bytes = {task.memory_bytes}")
    if task.disk_bytes is not None:
        lines.append(f"+tradewind_disk_bytes = {task.disk_bytes}")
    if source.plan is not None:
        lines.append(f"+tradewind_priority = {task.priority}")
    for key, listed in (("input", task.inputs), ("output", task.outputs)):
        if any(name in flow.sizes for name in listed):
            sizes = ",".join(str(flow.sizes.get(name, "")) for name in listed)
            lines.append(f'+tradewind_{key}_bytes = "{sizes}"')
    return "\n".join([*lines, "queue", ""])


def _wrong_name(name: str) -> str:
    if name != name.strip():
        return "it begins or ends with a blank"
    for sign, what in ((",", "a comma"), ('"', "a double quote"), ("\\", "a backslash"), ("*", "a star")):
        if sign in name:
            return f"it has {what}"
    return "it has $$( or $$[" if re.search(r"\$\$[(\[]", name) else ""


def _wrong_word(word: str) -> str:
    return "$$( or $$[, which HTCondor replaces," if re.search(r"\$\$[(\[]", word) else ""
