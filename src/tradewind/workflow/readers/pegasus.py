"""Reads workflows of Pegasus 5, as its Python API writes them to ``workflow.yml``."""

from __future__ import annotations

import math
from typing import Any

from tradewind.utils.yaml_lines import YamlMapping
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder
from tradewind.workflow.readers.yaml_lines import YamlValueReader, plain

_MEBIBYTE = 1 << 20


def read_pegasus(document: YamlMapping, file: str, name: str, *, lenient: bool = False) -> Workflow:
    """Read the workflow of a Pegasus 5 document.

    Run times are those of a job's ``metadata.runtime`` or ``profiles.pegasus.runtime``, else of its transformation's;
    sizes those of ``size`` or ``metadata.size`` at a use, else in the replica catalogue. Edges are those of
    ``jobDependencies``. Further catalogues in files of their own are not read.

    Args:
        document: What `tradewind.workflow.readers.yaml_lines.read_yaml_lines` gives.
        file: Its name, for messages.
        name: The workflow's name where the document has none.
        lenient: Accept sizes and run times below zero, as `WorkflowBuilder` says.

    Raises:
        WorkflowError: Something in it is wrong; with the line.
    """
    values = YamlValueReader(file)
    version = values.text(document, "pegasus", "5.0")
    if not version.startswith("5"):
        raise values.fail(f"its Pegasus version is {version}", document.at("pegasus"), "5.0 and later 5.x are read")
    builder = WorkflowBuilder(file, values.text(document, "name") or name, lenient)
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

    def job(self, given: YamlMapping, line: int | None) -> None:
        """Add one job."""
        values, builder = self._values, self._builder
        task_id = values.text(given, "id")
        if not task_id:
            raise values.fail("a job has no id", line)
        if values.text(given, "type", "job") != "job":
            builder.count("tasks that are workflows of their own, each taken as one task")
        program = values.text(given, "name") or values.text(given, "file")
        if not program:
            raise values.fail(f"job {task_id!r} names no program", line)
        inputs, outputs = self._uses(task_id, given)
        transformation = self._transformations.get(_key(values, given), plain({}))
        runtime = self._profile(given, transformation, "runtime")
        if runtime is None:
            builder.count("tasks without a run time, which count as 0 s")
        memory = self._profile(given, transformation, "memory")
        words = [_program(values, transformation) or program, *values.words(given, "arguments")]
        builder.task(
            Task(
                task_id,
                program,
                runtime or 0.0,
                tuple(inputs),
                tuple(outputs),
                int(self._profile(given, transformation, "cores") or 1),
                int(memory * _MEBIBYTE) if memory else None,
                tuple(words),
            ),
            line,
        )

    def _uses(self, task_id: str, given: YamlMapping) -> tuple[dict[str, None], dict[str, None]]:
        values, builder = self._values, self._builder
        inputs: dict[str, None] = {}
        outputs: dict[str, None] = {}
        for use, line in _rows(values, given, "uses"):
            name, kind = values.text(use, "lfn"), values.text(use, "type", "input")
            if not name:
                raise values.fail(f"a use of job {task_id!r} has no lfn", line)
            if kind not in ("input", "output", "inout", "checkpoint"):
                hint = "it is input, output, inout or checkpoint"
                raise values.fail(f"the use of {name!r} by job {task_id!r} is {kind!r}", use.at("type"), hint)
            if kind == "checkpoint":
                builder.count("files that are checkpoints and are left out")
                continue
            for listed in (inputs,) if kind == "input" else (outputs,) if kind == "output" else (inputs, outputs):
                if name in listed:
                    builder.count("files listed twice by one task, which count once")
                listed[name] = None
            size = self._size(use, line)
            size = self._sizes.get(name) if size is None else size
            builder.size(name, size, task_id, output=kind == "output", line=line)
        return inputs, outputs

    def _size(self, given: YamlMapping, line: int | None) -> int | None:
        """The size of a file where it is used or in the catalogue."""
        name = self._values.text(given, "lfn")
        for holder in (given, self._values.fields(given, "metadata")):
            if holder.get("size") is not None:
                found = self._values.parsed(holder, "size", 0, lambda value: int(float(value)), f"the size of {name!r}",
                                            "a number of bytes")  # fmt: skip
                return int(found)
        return None

    def _profile(self, given: YamlMapping, transformation: YamlMapping, key: str) -> float | None:
        """A figure of a job's metadata or Pegasus profile, else of its transformation's."""
        values = self._values
        for holder in (given, transformation):
            for place in (
                values.fields(holder, "metadata"),
                values.fields(values.fields(holder, "profiles"), "pegasus"),
            ):
                if place.get(key) is not None:
                    what = f"the {key} of {values.text(given, 'id')!r}"
                    return float(values.parsed(place, key, 0.0, _finite, what, "a number"))
        return None


def _finite(value: Any) -> float:
    found = float(value)
    if not math.isfinite(found):
        raise ValueError
    return found


def _key(values: YamlValueReader, given: YamlMapping) -> tuple[str, str, str]:
    return values.text(given, "namespace"), values.text(given, "name"), values.text(given, "version")


def _program(values: YamlValueReader, transformation: YamlMapping) -> str:
    """Path of a transformation's program, on the first site that has one."""
    for site in transformation.get("sites") or ():
        if isinstance(site, YamlMapping) and site.get("pfn"):
            return str(site["pfn"])
    return ""
