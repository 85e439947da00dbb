"""The contract of a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tradewind import plugins
from tradewind.plugins import Plugin, Settings
from tradewind.problem import MachineLease, Run, Trial
from tradewind.utils.processes import process_namespace, process_start_time

if TYPE_CHECKING:
    from tradewind.store.studies.study_workers import StudyWorkers

StudyState = Literal["open", "finished", "interrupted"]

IMPORTED = "its trials were imported"
"""The reason of a study that was made of trials that another tool has run, until a search goes on with it."""

StudyKind = Literal["search", "workflow"]
"""``search``: trials of configurations. ``workflow``: a run of a workflow's plan, whose trials are its machines."""


def this_process() -> str:
    """Identity of this process as the holder of a study: host, pid and start, so that a reused pid is not taken for it.

    Behind that, where the pid means something: other machines and containers may have the host's name.
    """
    import os

    return process_of_this_host(os.getpid(), process_start_time(os.getpid()) or 0.0)


def process_of_this_host(pid: int, start: float) -> str:
    """A process as a holder.

    Args:
        pid: Its number here.
        start: When it started, in seconds after the host did.
    """
    import socket

    return f"{socket.gethostname()}:{pid}:{start:.2f}@{process_namespace()}"


@dataclass(frozen=True, slots=True)
class StudyRow:
    """A study as the store keeps it.

    Attributes:
        id: The store's own number.
        name: The job's name.
        problem_key: Hash of the problem: a study is continued only for the same problem.
        spec: The whole specification, as a JSON-able document.
        created: Seconds since the epoch.
        state: ``open``, ``finished`` or ``interrupted``.
        reason: Why it ended, in words.
        seed: Of its searcher.
        elapsed: Wall-clock seconds used by finished sessions: stored as spent, never as an end time.
        searcher_state: The searcher's JSON-able state.
        owner: Tag of everything that its runs create.
        kind: ``search``, or ``workflow`` for a run of a plan.
    """

    id: int
    name: str
    problem_key: str
    spec: Mapping[str, Any]
    created: float
    state: StudyState = "open"
    reason: str = ""
    seed: int = 0
    elapsed: float = 0.0
    searcher_state: Mapping[str, Any] = field(default_factory=dict)
    owner: str = ""
    kind: StudyKind = "search"


@dataclass(frozen=True, slots=True)
class StudySummary:
    """A summary of a study, as ``tradewind status`` shows it, computed by the database.

    Attributes:
        study: The row.
        counts: Trials by state.
        spent: USD over all runs, total.
        reserved: USD set aside for runs that are not settled, and for machines that are kept.
        best: The best feasible trial on the whole input, or None; of equals the one with the shortest run time, then
            the first.
        running_since: When the live process that holds the study took it, or None.
        holder: Who holds it (host and pid), or empty.
        kept: Machines that are kept for the next trial.
    """

    study: StudyRow
    counts: Mapping[str, int]
    spent: float
    reserved: float
    best: Trial | None = None
    running_since: float | None = None
    holder: str = ""
    kept: tuple[MachineLease, ...] = ()


@dataclass(frozen=True, slots=True)
class StudyLine:
    """A study in a list: what can be had without reading its specification.

    Attributes:
        id: The store's own number.
        name: The job's name.
        state: ``open``, ``finished`` or ``interrupted``.
        owner: Tag of everything that its runs create.
        holder: The live process that holds it (host and pid), or empty.
        kind: ``search``, or ``workflow`` for a run of a plan.
    """

    id: int
    name: str
    state: StudyState
    owner: str
    holder: str = ""
    kind: StudyKind = "search"


@dataclass(frozen=True, slots=True)
class StudyTotals:
    """All studies of a store together.

    Attributes:
        states: Studies by state: ``running`` those that a live process holds, else ``finished``, ``interrupted``,
            ``stopped`` (open, with trials) or ``open``.
        spent: USD over all runs of studies that pay for them, total.
        reserved: USD set aside for runs of such studies that are not settled.
        simulated: USD that the runs of the other studies would have cost, which nobody has paid.
    """

    states: Mapping[str, int]
    spent: float
    reserved: float
    simulated: float = 0.0


@dataclass(frozen=True, slots=True)
class EarlierStudy:
    """A study that another one may learn from.

    Attributes:
        study: The row.
        quiet: When it was last let go, or its hold ran out, in real seconds since the epoch: nothing was written to it
            since. None while a process holds it, and where nobody knows.
    """

    study: StudyRow
    quiet: float | None


@dataclass(frozen=True, slots=True)
class Change:
    """The rows that one step of the engine writes, all of them or none.

    Attributes:
        trials: Trials to insert or replace, by number.
        runs: Runs to insert or replace, by run id.
        study: Fields of the study to change, by name.
        lasting: False where a power cut may take it back as long as nothing lasting was written after it; a crash of
            the process never does.
    """

    trials: Sequence[Trial] = ()
    runs: Sequence[Run] = ()
    study: Mapping[str, Any] = field(default_factory=dict)
    lasting: bool = True


@dataclass(frozen=True, slots=True)
class ImportedTrials:
    """Trials that a study has taken from records.

    Attributes:
        study: The study.
        new: Number of trials that were inserted.
        known: Number of trials that the study had already.
        unfinished: Number of trials that had not ended when they were exported, and were left out.
        renumbered: The numbers of inserted trials whose own number another trial has: by the old one the new one.
    """

    study: StudyRow
    new: int
    known: int = 0
    unfinished: int = 0
    renumbered: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CodeVersion:
    """A version of the program's folder, and the trials that ran it.

    Attributes:
        digest: Digest of its files.
        trials: Numbers of the trials, in order.
    """

    digest: str
    trials: tuple[int, ...]


def code_versions(runs: Iterable[tuple[int, str]]) -> list[CodeVersion]:
    """Versions of a program, in the order of their first trials.

    Args:
        runs: The trial of each run and the digest that it began with, by trial and attempt; those without one are
            left out.
    """
    found: dict[str, dict[int, None]] = {}
    for trial, digest in runs:
        if digest:
            found.setdefault(digest, {})[trial] = None
    return [CodeVersion(digest, tuple(trials)) for digest, trials in found.items()]


class Store(Plugin, ABC):
    """Keeps everything. When a method returns, what it wrote survives a crash of the machine.

    Args:
        settings: An instance of the class's ``Settings``.
        url: Where it is (``sqlite:///path`` or ``postgresql+psycopg://...``).
    """

    def __init__(self, *, settings: Settings, url: str) -> None:
        self.settings = settings
        self.url = url

    @abstractmethod
    def create_study(self, study: StudyRow) -> StudyRow:
        """Insert a study; its ``id`` is set by the store."""

    @abstractmethod
    def find_or_create_study(self, study: StudyRow) -> tuple[StudyRow, bool]:
        """The newest study of the same name and problem, or this one, inserted.

        Of several processes that ask at the same moment one inserts it, and the others find it.

        Returns:
            The study, and whether it is new.
        """

    @abstractmethod
    def study(self, study_id: int) -> StudyRow:
        """One study.

        Raises:
            StudyNotFoundError: There is none.
        """

    @abstractmethod
    def find_studies(self, name: str | None = None, problem_key: str | None = None) -> list[StudyRow]:
        """Studies by name and problem, the newest first."""

    @abstractmethod
    def list_studies(self, name: str | None = None, *, limit: int | None = None) -> list[StudyLine]:
        """Studies by name, the newest first, without their specifications.

        Args:
            name: Only those of this name.
            limit: So many at most.
        """

    def open_studies(self) -> set[int]:
        """The ids of the studies that have runs which have not ended."""
        return {line.id for line in self.list_studies() if self.runs(line.id, open_only=True)}

    def queued_search(self, study_id: int, tenant: str, name: str) -> int | None:
        """The number of the search of a cluster's queue that is not over and has a study; None where none has it.

        Args:
            study_id: The study; 0 for one that is not stored yet.
            tenant: With the name: a search that waits, and has no study yet, counts, too.
            name: The job's name.
        """
        return None

    @abstractmethod
    def totals(self, simulates: Callable[[Mapping[str, Any]], bool]) -> StudyTotals:
        """The number of studies in each state, and what all of them have cost.

        Args:
            simulates: True for the specification of a study whose runs nobody pays; a store knows no runners.
        """

    @abstractmethod
    def earlier_studies(
        self, tenant: str, names: Collection[str] | None = None, *, before: StudyRow | None = None, limit: int
    ) -> list[EarlierStudy]:
        """Searches of one tenant, the newest first.

        Args:
            tenant: What stands before the ``/`` in their names; empty for those without one.
            names: Only studies whose name, without the tenant, is one of these; all without it.
            before: Only others that were made no later than this one.
            limit: How many.
        """

    @abstractmethod
    def summaries(self, study_ids: Sequence[int] | None = None) -> list[StudySummary]:
        """Summaries of some or all studies, the newest first, without reading every trial."""

    @abstractmethod
    def hold(self, study_id: int, holder: str, seconds: float, *, force: bool = False) -> str:
        """Take a study for this process, for ``seconds`` from now, unless another live one holds it.

        Args:
            study_id: The study.
            holder: `this_process`: ``host:pid:start``; a dead process of this host is no holder.
            seconds: How long without `renew`.
            force: Take it from a live process, too: that one finds out when it next writes.

        Returns:
            A token, for `renew`, `release` and `write`.

        Raises:
            StudyBusyError: Another live process holds it, without ``force``.
        """

    def workers(self, study_id: int) -> StudyWorkers:
        """The steps of several workers on one study.

        Raises:
            StoreError: This store is for one worker at a time.
        """
        from tradewind.errors import StoreError
        from tradewind.passwords import hide_password

        raise StoreError(
            f"the store {hide_password(self.url)} is for one worker at a time", hint="open the study with Study(...)"
        )

    @abstractmethod
    def renew(self, study_id: int, token: str, seconds: float) -> None:
        """Hold on for ``seconds`` more.

        Raises:
            StudyBusyError: The hold was lost to another process.
        """

    @abstractmethod
    def release(self, study_id: int, token: str) -> None:
        """Let go of a study; a lost hold is no error."""

    @abstractmethod
    def write(self, study_id: int, change: Change, token: str | None = None) -> None:
        """Write one step in one transaction.

        Raises:
            StudyBusyError: ``token`` no longer holds the study; nothing is written.
        """

    @abstractmethod
    def trials(self, study_id: int, *, since: int = 0, limit: int | None = None) -> list[Trial]:
        """Trials by number, from ``since``."""

    @abstractmethod
    def runs(self, study_id: int, *, open_only: bool = False, trial: int | None = None) -> list[Run]:
        """Runs by trial and attempt; with ``open_only`` those that have not ended."""

    def code_versions(self, study_id: int) -> list[CodeVersion]:
        """The versions of the program that the trials of a study ran, in the order of their first trials."""
        return code_versions((run.trial, run.code) for run in self.runs(study_id))

    def taken_runs(self, study_id: int) -> list[Run]:
        """The runs that a shared cluster ended so that another tenant got their places, by trial and attempt."""
        return [run for run in self.runs(study_id) if run.preemption is not None]

    @abstractmethod
    def columns(self, study_id: int) -> Mapping[str, Sequence[Any]]:
        """The plain columns of all trials, by name, for reports over many trials.

        ``number, state, key, objective, cost, runtime, feasible, censored, fidelity, spent, price_per_hour, nodes,
        provider, instance_type, created, started, ended, configuration`` (a JSON text).
        """

    @abstractmethod
    def export_records(self, study_id: int) -> Iterator[Mapping[str, Any]]:
        """One full JSON-able record a trial: proposal, offer, runs, observation (paper 2's dictionary)."""

    @abstractmethod
    def import_records(self, study: StudyRow, records: Iterable[Mapping[str, Any]]) -> ImportedTrials:
        """Insert records of trials that `export_records` made: all of them in one transaction, or nothing.

        A trial that the study has already, by its runs, is left as it is. One whose number another trial has gets the
        next free number. One that had not ended when it was exported is left out: its machines are not this study's.

        Args:
            study: The study that takes them; one with the id 0 is inserted in the same transaction.
            records: The records.

        Raises:
            RecordError: A record is not one; nothing is inserted.
            StudyNotFoundError: There is no such study.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back connections."""


_SQL = ("sqlite", "postgresql", "postgres")


def store_at(url: str) -> Store:
    """The store at an address: the part that is called like its scheme, or the SQL store.

    Args:
        url: ``sqlite:///FILE``, ``postgresql://…``, or ``NAME://…`` for a store that a package announces as ``NAME``.

    Raises:
        StoreError: It cannot be opened.
    """
    scheme = url.partition("://")[0].partition("+")[0].lower()
    name = scheme if scheme not in _SQL and scheme in plugins.names("store") else "sql"
    store: Store = plugins.create("store", name, {}, url=url)
    return store
