"""Reads workflows of Pegasus 5, as its Python API writes them to ``workflow.yml``."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tradewind.utils.yaml_lines import YamlMapping
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder
from tradewind.workflow.readers.command_words import unquote_argument, with_streams, without_env
from tradewind.workflow.readers.pegasus_catalogues import (
    PegasusCatalogues,
    find_file,
    profile_level,
    program_key,
    stated_size,
)
from tradewind.workflow.readers.profiles import METADATA, exact_memory, read_requirements
from tradewind.workflow.readers.subworkflows import WorkflowOpener
from tradewind.workflow.readers.yaml_lines import YamlValueReader

_STREAMS = ("stdin", "stdout", "stderr")
_Uses = tuple[dict[str, None], dict[str, None], dict[str, None]]


def read_pegasus(
    document: YamlMapping,
    file: str,
    name: str,
    *,
    lenient: bool = False,
    declared_edges: bool = False,
    opener: WorkflowOpener | None = None,
    properties: Path | None = None,
) -> Workflow:
    """Read the workflow of a Pegasus 5 document.

    Run times and needs are those of a job's metadata and profiles, else of its transformation's; sizes those of
    ``size`` or ``metadata.size`` at a use, else in the replica catalogue. Edges are those of ``jobDependencies``, and
    those that files imply. A command whose streams are files is run by ``sh``, which opens them. Catalogues are those
    within the document, then those in files beside it; see `PegasusCatalogues`. A job that stands for a workflow is the
    tasks of that workflow, where its file is there.

    Args:
        document: What `tradewind.workflow.readers.yaml_lines.read_yaml_lines` gives.
        file: Its name, for messages.
        name: The workflow's name where the document has none.
        lenient: Accept sizes and run times below zero, as `WorkflowBuilder` says.
        declared_edges: Keep the declared edges only.
        opener: Opens workflows that jobs stand for; without it each is one task, and no file beside is read.
        properties: The properties of Pegasus that hold for it; those beside it without them.

    Raises:
        WorkflowError: Something in it is wrong; with the line.
    """
    values = YamlValueReader(file)
    version = values.text(document, "pegasus", "5.0")
    if not version.startswith("5"):
        raise values.fail(f"its Pegasus version is {version}", document.at("pegasus"), "5.0 and later 5.x are read")
    builder = WorkflowBuilder(file, values.text(document, "name") or name, lenient, declared_edges)
    catalogues = PegasusCatalogues(builder)
    catalogues.read_inline(values, document, follow=opener is not None)
    if opener is not None:
        catalogues.read_beside(Path(file).parent, properties)
    reader = _PegasusReader(values, builder, document, catalogues, opener)
    for given, line in values.rows(document, "jobs"):
        reader.job(given, line)
    for given, line in values.rows(document, "jobDependencies"):
        parent = values.text(given, "id")
        for child in values.words(given, "children"):
            builder.edge(parent, child, given.at("children") or line)
    return builder.workflow()


class _PegasusReader:
    """Reads the jobs of a document."""

    def __init__(
        self,
        values: YamlValueReader,
        builder: WorkflowBuilder,
        document: YamlMapping,
        catalogues: PegasusCatalogues,
        opener: WorkflowOpener | None,
    ) -> None:
        self._values, self._builder, self._catalogues, self._opener = values, builder, catalogues, opener
        uses = (use for job, _ in values.rows(document, "jobs") for use, _ in values.rows(job, "uses"))
        self._made = {values.text(use, "lfn") for use in uses if values.text(use, "type") in ("output", "inout")}

    def job(self, given: YamlMapping, line: int | None) -> None:
        """Add one job, or the tasks of the workflow that it stands for."""
        values, builder, catalogues = self._values, self._builder, self._catalogues
        task_id = values.text(given, "id")
        if not task_id:
            raise values.fail("a job has no id", line)
        metadata = values.fields(given, METADATA)
        if values.text(metadata, "tradewind_task"):
            # Pegasus takes fewer signs in the id of a job than Tradewind in that of a task.
            builder.group(task_id, [values.text(metadata, "tradewind_task")])
            task_id = values.text(metadata, "tradewind_task")
        program = values.text(given, "name") or values.text(given, "file")
        if not program:
            raise values.fail(f"job {task_id!r} names no program", line)
        uses = self._uses(task_id, given)
        inner = values.text(given, "type", "job") != "job"
        if inner and self._opened(task_id, given, line, uses):
            return
        key = program_key(values, given)
        needs = read_requirements(builder, task_id, (profile_level(values, given), *catalogues.levels(key)))
        if needs.runtime is None:
            builder.note("tasks without a run time, which count as 0 s", task_id)
        inputs, outputs, optional = uses
        command = () if inner else self._command(task_id, program, given, line, uses)
        for name in inputs:
            if location := catalogues.location(name):
                builder.locations[name] = location
        builder.task(
            Task(
                task_id,
                program,
                needs.runtime or 0.0,
                tuple(inputs),
                tuple(outputs),
                needs.cores or 1,
                exact_memory(needs.memory_bytes, values.text(metadata, "tradewind_memory_bytes")),
                command,
                tuple(name for name in optional if name in inputs),
                program if inner else "",
                needs.gpus or 0,
                exact_memory(needs.disk_bytes, values.text(metadata, "tradewind_disk_bytes")),
                needs.priority or 0,
            ),
            line,
        )

    def _command(
        self, task_id: str, program: str, given: YamlMapping, line: int | None, uses: _Uses
    ) -> tuple[str, ...]:
        """The words of a job's command line; its streams are among its files then."""
        values, builder, key = self._values, self._builder, program_key(self._values, given)
        if container := self._catalogues.container(key):
            builder.note("programs in containers, which are run without them", f"{program} ({container})")
        arguments = map(unquote_argument, values.words(given, "arguments"))
        words = without_env([self._catalogues.program(key) or program, *arguments])
        stdin, stdout, stderr = (values.text(given, stream) for stream in _STREAMS)
        for listed, name, output in ((uses[0], stdin, False), (uses[1], stdout, True), (uses[1], stderr, True)):
            if name and name not in listed:
                listed[name] = None
                builder.size(name, self._catalogues.sizes.get(name), task_id, output=output, line=line)
        return tuple(with_streams(words, stdin, stdout, stderr))

    def _opened(self, task_id: str, given: YamlMapping, line: int | None, uses: _Uses) -> bool:
        """Add the tasks of a workflow within this one, where its file is there."""
        values, builder, folder = self._values, self._builder, Path(self._builder.file).parent
        name = values.text(given, "file")
        path = find_file(name, self._catalogues, folder) if self._opener is not None else None
        if self._opener is None or path is None:
            builder.note("tasks that are workflows of their own, each taken as one task", task_id)
            return False
        words = values.words(given, "arguments")
        told = [after for word, after in pairwise(words) if word == "--conf"]
        told += [word.removeprefix("--conf=") for word in words if word.startswith("--conf=")]
        inner = self._opener(path, find_file(told[0], self._catalogues, folder) if told else None)
        rows = [use for use, _ in values.rows(given, "uses")]
        planning = {values.text(use, "lfn") for use in rows if _true(values, use, "forPlanning")} | {name}
        builder.include(task_id, inner, line, inputs=[each for each in uses[0] if each not in planning],
                        outputs=tuple(uses[1]))  # fmt: skip
        return True

    def _uses(self, task_id: str, given: YamlMapping) -> _Uses:
        """The inputs of a job, its outputs, and those that may be missing."""
        values, builder = self._values, self._builder
        inputs: dict[str, None] = {}
        outputs: dict[str, None] = {}
        optional: dict[str, None] = {}
        for use, line in values.rows(given, "uses"):
            name, kind = values.text(use, "lfn"), values.text(use, "type", "input").lower()
            if not name:
                raise values.fail(f"a use of job {task_id!r} has no lfn", line)
            if kind not in ("input", "output", "inout", "checkpoint", "none"):
                hint = "it is input, output, inout, checkpoint or none"
                raise values.fail(f"the use of {name!r} by job {task_id!r} is {kind!r}", use.at("type"), hint)
            size = stated_size(values, use)
            if kind == "checkpoint":
                builder.note("files that are checkpoints and are left out", name)
            program = _true(values, use, "executable") and kind != "output" and name not in self._made
            if kind in ("checkpoint", "none") or program:
                continue
            for listed in (inputs,) if kind == "input" else (outputs,) if kind == "output" else (inputs, outputs):
                if name in listed:
                    builder.note("files listed twice by one task, which count once", name)
                listed[name] = None
            if _true(values, use, "optional"):
                optional[name] = None
            size = self._catalogues.sizes.get(name) if size is None else size
            builder.size(name, size, task_id, output=kind == "output", line=line)
        return inputs, outputs, optional


def _true(values: YamlValueReader, given: YamlMapping, key: str) -> bool:
    return values.text(given, key).lower() == "true"
