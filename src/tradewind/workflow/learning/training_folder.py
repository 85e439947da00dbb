"""Keeps everything that was learned in a folder: one file for each episode, and the table for people."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
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

    Between real runs the run times may be replaced by those that were measured. ``training.json`` lists the phases:
    each has the episode from which on its run times hold. A learner keeps what it has learned before.

    Args:
        path: The folder; it is made.
        learner: Learner whose episodes are kept.
        settings: Settings of the learner, but for the number of episodes.
        resume: True to go on with what is there; otherwise the folder must be empty.
        stated: The workflow with the run times of its file; None if the learner has these.
        renew: True if the learner has run times that were measured, and may begin a new phase with them.
        episodes: Episodes that there will be in the end, those of before included; None if that is not known.

    Attributes:
        since: The first episode with the run times of now; only makespans from there on compare.
        former: Run times of the phase before, where a new one begins; None otherwise.

    Raises:
        WorkflowError: Something else was learned there, or something is there without ``resume``; or run times were
            measured, and no episode is left to learn with them.
    """

    def __init__(
        self, path: Path, learner: Learner, settings: Mapping[str, Any], *, resume: bool,
        stated: Workflow | None = None, renew: bool = False, episodes: int | None = None,
    ) -> None:  # fmt: skip
        self.path, self._learner = path, learner
        self._episodes = path / "episodes"
        self._vms = {vm.name: place for place, vm in enumerate(learner.platform.vms)}
        flow, platform = learner.flow, learner.platform
        self.since = 1
        self.former: Mapping[str, float] | None = None
        self._starts: list[int] = []
        phase = {
            "from": 1,
            "stated": digest(stated or flow, platform),
            "digest": digest(flow, platform),
            "runtimes": {task.id: float(task.runtime) for task in flow.tasks},
        }
        head: dict[str, Any] = {
            "format": FORMAT,
            "method": learner.name,
            "workflow": learner.flow.name,
            "tasks": [task.id for task in learner.flow.tasks],
            "machines": list(self._vms),
            "seed": learner.seed,
            "settings": {key: value for key, value in sorted(settings.items()) if key != "episodes"},
            "shape": digest(flow, platform, runtimes=False),
            "phases": [phase],
        }
        self._tasks, self._index = learner.flow.tasks, learner.flow.index
        there = path / "training.json"
        try:
            if there.exists():
                before = self._same(there, head, resume=resume)
                self._go_on(there, before, phase, renew=renew, episodes=episodes)
            elif path.is_dir() and any(path.iterdir()):
                raise WorkflowError(f"{path} has other files in it", hint="name a new folder")
            self._episodes.mkdir(parents=True, exist_ok=True)
            if not there.exists():
                write_atomically(there, json.dumps(head, indent=1) + "\n")
        except OSError as error:
            raise WorkflowError(
                f"{path}: {error.strerror or error}", hint="name a folder that can be written"
            ) from None

    def _same(self, there: Path, head: Mapping[str, Any], *, resume: bool) -> dict[str, Any]:
        """Read ``training.json``, and see that it is by the same method about the same tasks and machines."""
        before = _read(there)
        if not resume:
            raise WorkflowError(f"{self.path} has what was learned before", hint="--resume goes on with it")
        if before.get("format") != FORMAT:
            raise WorkflowError(f"its format is not {FORMAT}", file=str(there))
        # A folder of an earlier version says no shape: the digest of its phase has it, with the run times.
        for key, what in (
            ("method", "by another method"),
            ("tasks", "about other tasks"),
            ("machines", "about other machines"),
            ("shape", "about another workflow or other machines"),
            ("seed", "from another seed"),
            ("settings", "with other settings"),
        ):
            if before.get(key) != head[key] and not (key == "shape" and key not in before):
                words = f": {_difference(before.get(key), head[key])}" if key != "shape" else ""
                raise WorkflowError(
                    f"{self.path} has what was learned {what}{words}", hint="name another folder, or the same settings"
                )
        return before

    def _go_on(
        self, there: Path, before: dict[str, Any], phase: dict[str, Any], *, renew: bool, episodes: int | None
    ) -> None:
        """Go on with the last phase, or with a new one if other run times were measured since."""
        phases = _phases(before, there)
        last = phases[-1]
        if (not renew or "shape" not in before) and last["stated"] != phase["stated"]:
            what = "with other run times" if "shape" in before else "about another workflow or other machines"
            hint = "give the file as it was, or name another folder; --measured goes on with run times of real runs"
            raise WorkflowError(f"{self.path} has what was learned {what}", hint=hint)
        number = self._kept()
        if last["digest"] != phase["digest"]:
            if episodes is not None and episodes <= number:
                words = f"{self.path} has {number} episodes: none is left to learn with the measured run times"
                raise WorkflowError(words, hint=f"give --episodes {number + 50}, those of before included")
            self.former = last["runtimes"]
            phases = [*phases, {**phase, "from": number + 1}]
        # Files of episodes may have been removed, and a phase may have ended before its first episode.
        kept = [each for each in phases[:-1] if each["from"] <= number]
        phases = [*kept, {**phases[-1], "from": min(phases[-1]["from"], number + 1)}]
        self.since, self._starts = phases[-1]["from"], [each["from"] for each in phases[1:]]
        if phases != _phases(before, there):
            write_atomically(there, json.dumps({**before, "phases": phases}, indent=1) + "\n")

    def _kept(self) -> int:
        """Number of episodes that are there."""
        number = 0
        while self._file(number + 1).exists():
            number += 1
        return number

    def recall(self) -> Iterator[Episode]:
        """Teach the learner the episodes that are there, one after the other.

        Raises:
            WorkflowError: A file of one of them is not as it was written.
        """
        number = 0
        while (file := self._file(number + 1)).exists():
            number += 1
            if number in self._starts:
                self._learner.renew()
            episode = self._episode(number, file)
            self._learner.recall(episode)
            yield episode
        if number + 1 in self._starts:
            self._learner.renew()

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


def digest(flow: Workflow, platform: Platform, *, runtimes: bool = True) -> str:
    """A short name of a workflow and its machines, by all that learning depends on.

    Args:
        flow: The workflow.
        platform: Its machines.
        runtimes: False to leave out how long tasks take.
    """
    said = hashlib.sha256()
    for task, parents in zip(flow.tasks, flow.parents, strict=True):
        took = float(task.runtime) if runtimes else 0.0
        said.update(repr((task.id, task.activity, took, task.cores, parents)).encode())
    said.update(repr(platform.vms).encode())
    said.update(platform.reading(flow).tobytes())
    if not platform.suits(flow):
        said.update(platform.fits(flow).tobytes())
    if platform.tight(flow):
        said.update(platform.scarce(flow)[0].tobytes())
    return said.hexdigest()[:16]


def with_kept_runtimes(flow: Workflow, path: Path) -> Workflow:
    """Give a workflow the run times with which a folder last went on, where those were measured.

    Args:
        flow: The workflow.
        path: The folder, which may have nothing yet.

    Raises:
        WorkflowError: What the folder has cannot be read.
    """
    there = path / "training.json"
    if not there.exists():
        return flow
    last = _phases(_read(there), there)[-1]
    if last["runtimes"] is None or last["stated"] == last["digest"]:
        return flow
    tasks = tuple(replace(task, runtime=float(last["runtimes"].get(task.id, task.runtime))) for task in flow.tasks)
    return replace(flow, tasks=tasks)


def _phases(document: Mapping[str, Any], file: Path) -> list[dict[str, Any]]:
    """The phases that a folder has; a folder of an earlier version has one."""
    before = document.get("digest")
    phases = document.get("phases", [{"from": 1, "stated": before, "digest": before, "runtimes": None}])
    keys = {"from", "stated", "digest", "runtimes"}
    if not isinstance(phases, list) or not phases or not all(isinstance(p, dict) and keys <= p.keys() for p in phases):
        raise WorkflowError("its 'phases' are not as they were written", file=str(file), hint="name another folder")
    return phases


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
    if isinstance(before, list) and isinstance(now, list):
        gone, new = ([each for each in one if each not in other] for one, other in ((before, now), (now, before)))
        said = [f"{word} {', '.join(map(str, some[:3]))}" for word, some in (("without", gone), ("with", new)) if some]
        return "now " + " and ".join(said or ["in another order"])
    return f"{before}, now {now}"
