"""Reads workflows of Pegasus 5, as its Python API writes them to ``workflow.yml``."""

from __future__ import annotations

from tradewind.utils.yaml_lines import YamlMapping, YamlSequence
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder
from tradewind.workflow.readers.command_words import unquote_argument, with_streams, without_env
from tradewind.workflow.readers.profiles import METADATA, ProfileLevel, exact_memory, file_size, read_requirements
from tradewind.workflow.readers.yaml_lines import YamlValueReader, plain

_STREAMS = ("stdin", "stdout", "stderr")


def read_pegasus(
    document: YamlMapping, file: str, name: str, *, lenient: bool = False, declared_edges: bool = False
) -> Workflow:
    """Read the workflow of a Pegasus 5 document.

    Run times, cores and memory are those of a job's metadata and profiles, else of its transformation's; sizes those of
    ``size`` or ``metadata.size`` at a use, else in the replica catalogue. Edges are those of ``jobDependencies``, and
    those that files imply. A command whose streams are files is run by ``sh``, which opens them. Further catalogues in
    files of their own are not read.

    Args:
        document: What `tradewind.workflow.readers.yaml_lines.read_yaml_lines` gives.
        file: Its name, for messages.
        name: The workflow's name where the document has none.
        lenient: Accept sizes and run times below zero, as `WorkflowBuilder` says.
        declared_edges: Keep the declared edges only.

    Raises:
        WorkflowError: Something in it is wrong; with the line.
    """
    values = YamlValueReader(file)
    version = values.text(document, "pegasus", "5.0")
    if not version.startswith("5"):
        raise values.fail(f"its Pegasus version is {version}", document.at("pegasus"), "5.0 and later 5.x are read")
    builder = WorkflowBuilder(file, values.text(document, "name") or name, lenient, declared_edges)
    reader = _PegasusReader(values, builder, document)
    for given, line in _rows(values, document, "jobs"):
        reader.job(given, line)
    for given, line in _rows(values, document, "jobDependencies"):
        parent = values.text(given, "id")
        for child in values.words(given, "children"):
            builder.edge(parent, child, given.at("children") or line)
    return builder.workflow()


def _rows(values: YamlValueReader, given: YamlMapping, key: str) -> list[tuple[YamlMapping, int | None]]:
    """The mappings of a list, with their lines."""
    items = values.items(given, key)
    found = []
    for place, each in enumerate(items):
        line = items.lines[place] if items.lines else given.at(key)
        if not isinstance(each, YamlMapping):
            raise values.fail(f"an item of {key!r} is no mapping", line)
        found.append((each, line))
    return found


class _PegasusReader:
    """Reads the jobs of a document, with the catalogues within it."""

    def __init__(self, values: YamlValueReader, builder: WorkflowBuilder, document: YamlMapping) -> None:
        self._values, self._builder = values, builder
        self._sizes: dict[str, int] = {}
        for given, line in _rows(values, values.fields(document, "replicaCatalog"), "replicas"):
            size = self._size(given, line)
            if size is not None:
                self._sizes[values.text(given, "lfn")] = size
        self._transformations = {
            _key(values, given): given
            for given, _ in _rows(values, values.fields(document, "transformationCatalog"), "transformations")
        }
        uses = (use for job, _ in _rows(values, document, "jobs") for use, _ in _rows(values, job, "uses"))
        self._made = {values.text(use, "lfn") for use in uses if values.text(use, "type") in ("output", "inout")}

    def job(self, given: YamlMapping, line: int | None) -> None:
        """Add one job."""
        values, builder = self._values, self._builder
        task_id = values.text(given, "id")
        if not task_id:
            raise values.fail("a job has no id", line)
        inner = values.text(given, "type", "job") != "job"
        if inner:
            builder.note("tasks that are workflows of their own, each taken as one task", task_id)
        metadata = values.fields(given, METADATA)
        if values.text(metadata, "tradewind_task"):
            # Pegasus takes fewer signs in the id of a job than Tradewind in that of a task.
            builder.group(task_id, [values.text(metadata, "tradewind_task")])
            task_id = values.text(metadata, "tradewind_task")
        program = values.text(given, "name") or values.text(given, "file")
        if not program:
            raise values.fail(f"job {task_id!r} names no program", line)
        inputs, outputs, optional = self._uses(task_id, given)
        transformation = self._transformations.get(_key(values, given), plain({}))
        needs = read_requirements(builder, task_id, (self._profiles(given), self._profiles(transformation)))
        if needs.runtime is None:
            builder.note("tasks without a run time, which count as 0 s", task_id)
        words = [_program(values, transformation) or program]
        words = without_env([*words, *map(unquote_argument, values.words(given, "arguments"))])
        stdin, stdout, stderr = (values.text(given, stream) for stream in _STREAMS)
        for listed, name, output in ((inputs, stdin, False), (outputs, stdout, True), (outputs, stderr, True)):
            if name and name not in listed:
                listed[name] = None
                builder.size(name, self._sizes.get(name), task_id, output=output, line=line)
        builder.task(
            Task(
                task_id,
                program,
                needs.runtime or 0.0,
                tuple(inputs),
                tuple(outputs),
                needs.cores or 1,
                exact_memory(needs.memory_bytes, values.text(metadata, "tradewind_memory_bytes")),
                () if inner else tuple(with_streams(words, stdin, stdout, stderr)),
                tuple(name for name in optional if name in inputs),
            ),
            line,
        )

    def _uses(self, task_id: str, given: YamlMapping) -> tuple[dict[str, None], dict[str, None], dict[str, None]]:
        """The inputs of a job, its outputs, and those that may be missing."""
        values, builder = self._values, self._builder
        inputs: dict[str, None] = {}
        outputs: dict[str, None] = {}
        optional: dict[str, None] = {}
        for use, line in _rows(values, given, "uses"):
            name, kind = values.text(use, "lfn"), values.text(use, "type", "input").lower()
            if not name:
                raise values.fail(f"a use of job {task_id!r} has no lfn", line)
            if kind not in ("input", "output", "inout", "checkpoint", "none"):
                hint = "it is input, output, inout, checkpoint or none"
                raise values.fail(f"the use of {name!r} by job {task_id!r} is {kind!r}", use.at("type"), hint)
            size = self._size(use, line)
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
            size = self._sizes.get(name) if size is None else size
            builder.size(name, size, task_id, output=kind == "output", line=line)
        return inputs, outputs, optional

    def _size(self, given: YamlMapping, line: int | None) -> int | None:
        """The size of a file where it is used or in the catalogue."""
        name = self._values.text(given, "lfn")
        for holder in (given, self._values.fields(given, "metadata")):
            if holder.get("size") is not None:
                found = self._values.parsed(holder, "size", 0, lambda value: file_size(str(value)),
                                            f"the size of {name!r}", "a number of bytes")  # fmt: skip
                return int(found)
        return None

    def _profiles(self, given: YamlMapping) -> ProfileLevel:
        """The profiles and the metadata of a job or of a transformation."""
        values = self._values
        found = {}
        profiles = values.fields(given, "profiles")
        for space, holder in (
            (METADATA, values.fields(given, METADATA)),
            *((space.lower(), values.fields(profiles, space)) for space in profiles),
        ):
            for key, value in holder.items():
                if value is not None and not isinstance(value, YamlMapping | YamlSequence):
                    found[space, key] = str(value), holder.at(key)
        return found


def _true(values: YamlValueReader, given: YamlMapping, key: str) -> bool:
    return values.text(given, key).lower() == "true"


def _key(values: YamlValueReader, given: YamlMapping) -> tuple[str, str, str]:
    return values.text(given, "namespace"), values.text(given, "name"), values.text(given, "version")


def _program(values: YamlValueReader, transformation: YamlMapping) -> str:
    """Path of a transformation's program, on the first site that has one."""
    for site in transformation.get("sites") or ():
        if isinstance(site, YamlMapping) and site.get("pfn"):
            return str(site["pfn"])
    return ""
