"""Removes checkpoints of a study's ended trials from which nothing goes on any more."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from tradewind.deployer.checkpoints import CheckpointStore
from tradewind.engine.deployment import checkpoint_folder
from tradewind.engine.proposals import search_state
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.errors import DeployError
from tradewind.problem import Objective, Trial, TrialState
from tradewind.searcher.base import ContinuesTrials, Searcher
from tradewind.store.base import Store, StudyRow, this_process
from tradewind.utils.units import count, format_memory

_HOLD_SECONDS = 3600.0
"""How long removing all of them may take; a process of this host that has died lets go at once."""


class OldCheckpoints:
    """The checkpoints of a study that are removed while it goes on.

    Kept are those of trials that have not ended and of those that they go on from, those at which the searcher may yet
    let another trial begin, and those of the best whole runs, where the searcher's trials go on from others.

    Args:
        folder: The folder with the checkpoints of its trials.
        keep: Checkpoints of whole runs that stay.
        waiting: The most that wait for a trial that goes on from them; None for all.
    """

    def __init__(self, folder: Path, keep: int, waiting: int | None) -> None:
        self._folder, self._keep, self._waiting = folder, keep, waiting

    def remove(self, machine: SearchMachine, searcher: Searcher) -> None:
        """Remove what is not needed now.

        Args:
            machine: The search.
            searcher: Its searcher.
        """
        try:
            there = {int(path.name): path for path in self._folder.iterdir() if path.name.isdecimal()}
        except OSError:  # none yet, or not to be read: whoever copies into it says why
            return
        told = {trial.number for trial in searcher.history}
        trials = [machine.history.trials[number] for number in there if number in machine.history.trials]
        ended = [each for each in trials if each.state.ended and (each.number in told or not each.state.informs)]
        if not ended:
            return
        needed = self._needed(ended, machine, searcher)
        for trial in ended:
            if trial.number not in needed:
                CheckpointStore(there[trial.number]).remove()

    def _needed(self, ended: Sequence[Trial], machine: SearchMachine, searcher: Searcher) -> set[int]:
        """The numbers of the ended trials whose checkpoints stay."""
        found = {trial.proposal.origin for trial in machine.history.pending if trial.proposal.origin is not None}
        if not isinstance(searcher, ContinuesTrials):
            return found
        waiting = searcher.origins(search_state(machine))
        if waiting is None:
            waiting = [trial.number for trial in ended]
        return found | set(waiting[: self._waiting]) | set(_best(ended, machine.problem.objective)[: self._keep])


def remove_checkpoints(store: Store, study: StudyRow, data_folder: Path, *, force: bool = False) -> str:
    """Remove all checkpoints of a study on this machine: trials that would go on from them begin anew.

    Args:
        store: Where the study is kept; nobody else goes on with it meanwhile.
        study: The study, of which nothing runs.
        data_folder: The folder of all data.
        force: Do so even if a live process runs the study.

    Returns:
        What was removed, in words; empty where there was nothing.

    Raises:
        StudyBusyError: A live process runs it, without ``force``.
        DeployError: They cannot be removed.
    """
    folder = checkpoint_folder(data_folder, study.owner)
    token = store.hold(study.id, this_process(), _HOLD_SECONDS, force=force)
    try:
        sizes = [path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        trials = sum(path.name.isdecimal() for path in folder.iterdir())
        shutil.rmtree(folder)
    except FileNotFoundError:
        return ""
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise DeployError(f"its checkpoints cannot be removed: {words}: {error.filename or folder}") from error
    finally:
        store.release(study.id, token)
    return f"its checkpoints are removed, of {count(trials, 'trial')}, {format_memory(sum(sizes))}" if trials else ""


def _best(trials: Iterable[Trial], objective: Objective) -> list[int]:
    """The numbers of the trials that ran the whole input, the best first."""
    ranked = [
        (not seen.feasible, objective.loss(seen.objective), trial.number)
        for trial in trials
        if trial.state is TrialState.SUCCEEDED
        and trial.proposal.fidelity >= 1.0
        and (seen := trial.observation) is not None
        and seen.objective is not None
    ]
    return [number for *_, number in sorted(ranked)]
