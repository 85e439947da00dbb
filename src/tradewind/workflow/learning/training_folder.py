"""Keeps everything that was learned in a folder: one file for each episode, and the table for people."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.errors import WorkflowError
from tradewind.utils.atomic_files import write_atomically
from tradewind.workflow.graph import Workflow
from tradewind.workflow.learning.learners import LEARNERS, Episode, Learner
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule

FORMAT = "tradewind-learning-1"


class TrainingFolder:
    """Keeps each episode as soon as it has ended: a process that is killed loses the one that was running.

    ``training.json`` says what is learned; ``episodes/000001.json`` has an episode's table, plan, makespan, serial time
    and time to simulate (paper 3, section 3.2: what its file of an episode has); ``table.csv`` is the last table.

    Args:
        path: The folder; it is made.
        learner: Learner whose episodes are kept.
        settings: Settings of the learner, but for the number of episodes.
        resume: True to go on with what is there; otherwise the folder must be empty.

    Raises:
        WorkflowError: Something else was learned there, or something is there without ``resume``.
    """

    def __init__(self, path: Path, learner: Learner, settings: Mapping[str, Any], *, resume: bool) -> None:
        self.path, self._learner = path, learner
        self._episodes = path / "episodes"
        self._vms = {vm.name: place for place, vm in enumerate(learner.platform.vms)}
        head: dict[str, Any] = {
            "format": FORMAT,
            "method": learner.name,
            "workflow": learner.flow.name,
            "tasks": [task.id for task in learner.flow.tasks],
            "machines": list(self._vms),
            "seed": learner.seed,
            "settings": {key: value for key, value in sorted(settings.items()) if key != "episodes"},
            "digest": digest(learner.flow, learner.platform),
        }
        self._tasks, self._index = learner.flow.tasks, learner.flow.index
        there = path / "training.json"
        try:
            if there.exists():
                self._same(there, head, resume=resume)
            elif path.is_dir() and any(path.iterdir()):
                raise WorkflowError(f"{path} has other files in it", hint="name a new folder")
            self._episodes.mkdir(parents=True, exist_ok=True)
            if not there.exists():
                write_atomically(there, json.dumps(head, indent=1) + "\n")
        except OSError as error:
            raise WorkflowError(
                f"{path}: {error.strerror or error}", hint="name a folder that can be written"
            ) from None

    def _same(self, there: Path, head: Mapping[str, Any], *, resume: bool) -> None:
        before = _read(there)
        if not resume:
            raise WorkflowError(f"{self.path} has what was learned before", hint="--resume goes on with it")
        if before.get("format") != FORMAT:
            raise WorkflowError(f"its format is not {FORMAT}", file=str(there))
        for key, what in (
            ("method", "by another method"),
            ("digest", "about another workflow or other machines"),
            ("seed", "from another seed"),
            ("settings", "with other settings"),
        ):
            if before.get(key) != head[key]:
                words = f": {_difference(before.get(key), head[key])}" if key != "digest" else ""
                raise WorkflowError(
                    f"{self.path} has what was learned {what}{words}", hint="name another folder, or the same settings"
                )

    def recall(self) -> Iterator[Episode]:
        """Teach the learner the episodes that are there, one after the other.

        Raises:
            WorkflowError: A file of one of them is not as it was written.
        """
        number = 0
        while (file := self._file(number + 1)).exists():
            number += 1
            episode = self._episode(number, file)
            self._learner.recall(episode)
            yield episode

    def _file(self, number: int) -> Path:
        return self._episodes / f"{number:06}.json"

    def _episode(self, number: int, file: Path) -> Episode:
        document = _read(file)
        vm = np.full(len(self._tasks), -1, dtype=np.int32)
        start, finish = np.zeros(len(vm)), np.zeros(len(vm))
        try:
            for name, machine, begin, end in document["plan"]:
                task = self._index[name]
                vm[task], start[task], finish[task] = self._vms[machine], float(begin), float(end)
            if (vm < 0).any():
                raise KeyError("a task")
            return Episode(number, Schedule(vm, start, finish), float(document["seconds"]), document["state"])
        except (KeyError, TypeError, ValueError) as error:
            raise WorkflowError(
                f"it is not an episode as it was written: {type(error).__name__} {error}", file=str(file),
                hint="remove it and those after it to go on from the one before",
            ) from None  # fmt: skip

    def keep(self, episode: Episode) -> None:
        """Write an episode and the table after it.

        Raises:
            WorkflowError: They cannot be written.
        """
        schedule = episode.schedule
        names = list(self._vms)
        rows = [
            json.dumps([self._tasks[t].id, names[schedule.vm[t]], float(schedule.start[t]), float(schedule.finish[t])])
            for t in map(int, np.lexsort((schedule.finish, schedule.start)))
        ]
        head = json.dumps(
            {
                "episode": episode.number,
                "makespan": episode.makespan,
                "serial": episode.serial,
                "seconds": episode.seconds,
                "state": episode.state,
            }
        )
        try:
            write_atomically(self._file(episode.number), f'{head[:-1]},\n"plan": [\n' + ",\n".join(rows) + "\n]}\n")
            self.write_table()
        except OSError as error:
            raise WorkflowError(f"{self.path}: {error.strerror or error}", hint="--resume goes on") from None

    def write_table(self) -> None:
        """Write the table as it is now."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self._learner.lines())
        write_atomically(self.path / "table.csv", text.getvalue())


def digest(flow: Workflow, platform: Platform) -> str:
    """A short name of a workflow and its machines, by all that learning depends on."""
    said = hashlib.sha256()
    for task, parents in zip(flow.tasks, flow.parents, strict=True):
        said.update(repr((task.id, task.activity, task.runtime, task.cores, parents)).encode())
    said.update(repr(platform.vms).encode())
    said.update(platform.reading(flow).tobytes())
    if not platform.suits(flow):
        said.update(platform.fits(flow).tobytes())
    if platform.tight(flow):
        said.update(platform.memory(flow)[0].tobytes())
    return said.hexdigest()[:16]


def open_learner(method: str, flow: Workflow, platform: Platform, given: Mapping[str, Any], seed: int) -> Learner:
    """The learner of a method.

    Raises:
        WorkflowError: There is no such method.
    """
    if method not in LEARNERS:
        raise WorkflowError(f"there is no method {method!r}", hint=f"methods are {', '.join(sorted(LEARNERS))}")
    kind = LEARNERS[method]
    return kind(flow, platform, kind.Settings.model_validate(dict(given)), seed)


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise WorkflowError(f"it cannot be read: {str(error).splitlines()[0]}", file=str(file)) from None
    if not isinstance(document, dict):
        raise WorkflowError("it is no document of learning", file=str(file))
    return document


def _difference(before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
        return ", ".join(f"{key} was {before.get(key)} and is {now.get(key)}" for key in keys[:3])
    return f"{before}, now {now}"
