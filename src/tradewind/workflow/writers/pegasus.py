"""Writes workflows and plans for Pegasus 5, with the catalogues that they need in the same file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.command_words import quote_argument, split_streams
from tradewind.workflow.writers.common import (
    Program,
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

SYSTEM = "Pegasus"
VERSION = "5.0.4"
"""Version of the format; all of Pegasus 5 reads it."""

POOL = "condorpool"
"""The site that Pegasus knows without a catalogue; jobs go there where no plan says more."""

_ODD = re.compile(r"[^\w.+=@~:/^\[\]-]")

_WIDTH = 118
_UNPRINTED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
"""Characters that YAML only has as escapes."""


def write_pegasus(source: WorkflowSource, out: Path) -> WrittenWorkflow:
    """Write a workflow, or the plan for it, as the ``workflow.yml`` of Pegasus 5.

    Jobs have their arguments, streams, files with sizes, and profiles for run time and all that they need. The replica
    catalogue has the files that come from outside, the transformation catalogue a program for each activity. Of a plan,
    each machine is a site of the site catalogue, which its jobs select, and the order of tasks is their priority.

    Args:
        source: The workflow.
        out: The file that it will be in; what Pegasus writes goes to folders beside it.

    Raises:
        WorkflowError: Something in it cannot be written for Pegasus.
    """
    flow = source.flow
    check_file_names(flow, SYSTEM, _wrong_name)
    check_commands(flow, SYSTEM, _wrong_word)
    jobs = safe_names(task.id for task in flow.tasks)
    sites = safe_names(source.machines(), ("local",))
    programs = [_program(task, source, out) for task in flow.tasks]
    transformations = _Transformations()
    written = [
        _Job(source, task, jobs[task.id]).document(transformations.key(task, programs[place]), programs[place])
        for place, task in enumerate(flow.tasks)
    ]
    chosen = [sites[name] for name in source.machines()] or [POOL] * len(flow)
    for place, priority in enumerate(source.priorities()):
        profiles = written[place].setdefault("profiles", {})
        profiles["dagman"] = {"PRIORITY": str(priority)}
        profiles["selector"] = {"execution.site": chosen[place]}
        written[place].setdefault("metadata", {})["tradewind_priority"] = str(flow.tasks[place].priority)
    document: dict[str, Any] = {"x-tradewind": {"workflow": source.described()}, "pegasus": VERSION}
    document["name"] = re.sub(r"[^A-Za-z0-9_-]", "_", flow.name) or "workflow"
    if source.plan is not None:
        document["siteCatalog"] = {"sites": _sites(source, sites, out.absolute().parent)}
    notes = [*renamed_note(jobs, "tasks"), *renamed_note(sites, "machines"), *implied_note(flow)]
    replicas, missing = _replicas(source)
    notes += missing
    if replicas:
        document["replicaCatalog"] = {"replicas": replicas}
    if found := transformations.catalogue(chosen):
        document["transformationCatalog"] = {"transformations": found}
    document["jobs"] = written
    document["jobDependencies"] = [
        {"id": jobs[task.id], "children": [jobs[flow.tasks[child].id] for child in flow.children[place]]}
        for place, task in enumerate(flow.tasks)
        if flow.children[place]
    ]
    if bare := [task.activity for task, program in zip(flow.tasks, programs, strict=True) if program is None]:
        names = sorted(set(bare))
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        notes.append(f"a transformation catalogue has to say which programs these are: {', '.join(names[:3])}{more}")
    return WrittenWorkflow(_dumped(document), {}, tuple(notes))


def _dumped(document: dict[str, Any]) -> str:
    """YAML with what is short on one line; a dumper of YAML takes ten times as long for thousands of jobs."""
    return "\n".join(line for key, value in document.items() for line in _lines(key, value, "")) + "\n"


def _lines(key: str, value: Any, indent: str) -> list[str]:
    """The lines of one key: its value in JSON, which is YAML, or below it where that is long or a list of mappings."""
    start = f"{indent}{key}:"
    if value and isinstance(value, dict | list):
        long = len(text := _json(value)) > _WIDTH - len(start)
        if isinstance(value, dict) and (long or not indent):
            return [start, *(line for name, each in value.items() for line in _lines(name, each, f"{indent}  "))]
        if isinstance(value, list) and isinstance(value[0], dict):
            return [start, *(line for each in value for line in _item(each, indent))]
        return [f"{start} {text}"]
    return [f"{start} {_json(value)}"]


def _item(given: dict[str, Any], indent: str) -> list[str]:
    """The lines of a mapping in a list."""
    text = _json(given)
    if len(text) <= _WIDTH - len(indent):
        return [f"{indent}- {text}"]
    lines = [line for name, each in given.items() for line in _lines(name, each, f"{indent}  ")]
    return [f"{indent}- {lines[0].lstrip()}", *lines[1:]]


def _json(value: Any) -> str:
    return _UNPRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


class _Job:
    """The document of one job."""

    def __init__(self, source: WorkflowSource, task: Task, name: str) -> None:
        self._flow, self._task, self._name = source.flow, task, name

    def document(self, key: tuple[str, str], program: Program | None) -> dict[str, Any]:
        """Write the job.

        Args:
            key: Name and version of its transformation.
            program: What it runs; None where that is not known.
        """
        task = self._task
        _, stdin, stdout, stderr = _streams(task)
        found: dict[str, Any] = {"type": "job", "name": key[0], **({"version": key[1]} if key[1] else {})}
        found["id"] = self._name
        found |= {name: file for name, file in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)) if file}
        found["arguments"] = [_quoted(task, word) for word in program.words] if program is not None else []
        found["uses"] = self._uses()
        profiles: dict[str, Any] = {"runtime": repr(float(task.runtime)).removesuffix(".0"), "cores": task.cores}
        if task.memory_bytes is not None:
            profiles["memory"] = mebibytes(task.memory_bytes)
        if task.gpus:
            profiles["gpus"] = task.gpus
        if task.disk_bytes is not None:
            profiles["diskspace"] = mebibytes(task.disk_bytes)
        found["profiles"] = {"pegasus": profiles}
        if task.priority:
            found["profiles"]["dagman"] = {"PRIORITY": str(task.priority)}
        metadata = {"tradewind_task": task.id} if self._name != task.id else {}
        if task.memory_bytes is not None:
            metadata["tradewind_memory_bytes"] = str(task.memory_bytes)
        if task.disk_bytes is not None:
            metadata["tradewind_disk_bytes"] = str(task.disk_bytes)
        return {**found, **({"metadata": metadata} if metadata else {})}

    def _uses(self) -> list[dict[str, Any]]:
        task, found = self._task, []
        for name in dict.fromkeys((*task.inputs, *task.outputs)):
            kind = "input" if name not in task.outputs else "output" if name not in task.inputs else "inout"
            use: dict[str, Any] = {"lfn": name, "type": kind}
            if name in self._flow.sizes:
                use["metadata"] = {"size": str(self._flow.sizes[name])}
            if kind != "input":
                use |= {"stageOut": True, "registerReplica": True}
            if name in task.optional:
                use["optional"] = True
            found.append(use)
        return found


class _Transformations:
    """The programs of all activities; tasks of one activity that run different ones get versions."""

    def __init__(self) -> None:
        self._versions: dict[str, list[tuple[str, bool]]] = {}
        self._places: dict[tuple[str, str], list[int]] = {}
        self._count = 0

    def key(self, task: Task, program: Program | None) -> tuple[str, str]:
        """Note the program of a task, and give the name and the version of its transformation; ``""`` for the first."""
        self._count += 1
        if program is None:
            return task.activity, ""
        versions = self._versions.setdefault(task.activity, [])
        if (program.path, program.sent) not in versions:
            versions.append((program.path, program.sent))
        number = versions.index((program.path, program.sent)) + 1
        key = task.activity, "" if number == 1 else f"{number}.0"
        self._places.setdefault(key, []).append(self._count - 1)
        return key

    def catalogue(self, sites: list[str]) -> list[dict[str, Any]]:
        """Write the catalogue.

        Args:
            sites: The site of each task.
        """
        found = []
        for (name, version), places in self._places.items():
            path, sent = self._versions[name][int(float(version or 1)) - 1]
            where = ["local"] if sent else list(dict.fromkeys(sites[place] for place in places))
            kind = "stageable" if sent else "installed"
            entry = {"name": name, **({"version": version} if version else {})}
            found.append({**entry, "sites": [{"name": site, "pfn": path, "type": kind} for site in where]})
        return found


def _program(task: Task, source: WorkflowSource, out: Path) -> Program | None:
    """Find the program of a job; None for a task without a command."""
    if not task.command:
        return None
    words = _streams(task)[0]
    # The folder that a program is in may not be where Pegasus is started: its path is absolute.
    found = program_of(task, words, source.folder, out.absolute().parent)
    if found.sent and source.folder is not None:
        return Program(str(source.folder.absolute() / found.path), found.words, sent=True)
    return found


def _streams(task: Task) -> tuple[list[str], str, str, str]:
    """The words of a command and the files of its streams; Pegasus takes no file twice, so a shell opens that."""
    found = split_streams(list(task.command))
    return (list(task.command), "", "", "") if found[2] and found[2] == found[3] else found


def _quoted(task: Task, word: str) -> str:
    try:
        return quote_argument(word)
    except ValueError as error:
        raise WorkflowError(
            f"the command of task {task.id!r} has {error} in {word[:60]!r}, which Pegasus cannot take",
            hint="put the command into a script, and let the task run that",
        ) from None


def _sites(source: WorkflowSource, names: dict[str, str], folder: Path) -> list[dict[str, Any]]:
    """A site for each machine of the plan, and the local one, where files begin and end."""
    assert source.plan is not None
    directories = [
        {"type": kind, "path": str(folder / name), "sharedFileSystem": False,
         "fileServers": [{"url": f"file://{folder / name}", "operation": "all"}]}
        for kind, name in (("sharedScratch", "scratch"), ("localStorage", "outputs"))
    ]  # fmt: skip
    found: list[dict[str, Any]] = [{"name": "local", "arch": "x86_64", "os.type": "linux", "directories": directories}]
    for machine, site in names.items():
        if re.search(r'["\\]', machine):
            raise WorkflowError(f"machine {machine!r} has a quote or a backslash in its name", hint="rename it")
        condor = {"universe": "vanilla", "requirements": f'(TARGET.Machine == "{machine}")'}
        profiles = {"condor": condor, "pegasus": {"style": "condor"}}
        found.append({"name": site, "arch": "x86_64", "os.type": "linux", "directories": [], "profiles": profiles})
    return found


def _replicas(source: WorkflowSource) -> tuple[list[dict[str, Any]], list[str]]:
    """Places of the files that come from outside, and a note about those that are not there."""
    flow: Workflow = source.flow
    if source.folder is None:
        return [], []
    found, missing = [], []
    for name in outside_files(flow):
        path = source.folder.absolute() / name
        entry: dict[str, Any] = {"lfn": name, "pfns": [{"site": "local", "pfn": f"file://{path}"}]}
        if name in flow.sizes:
            entry["metadata"] = {"size": str(flow.sizes[name])}
        found.append(entry)
        if not path.exists():
            missing.append(name)
    more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
    note = f"the replica catalogue has files that are not in {source.folder}: {', '.join(missing[:3])}{more}"
    return found, [note] if missing else []


def _wrong_name(name: str) -> str:
    odd = _ODD.search(name)
    return f"it has {odd[0]!r} in it" if odd else ""


def _wrong_word(word: str) -> str:
    return "$(" if "$(" in word else ""
