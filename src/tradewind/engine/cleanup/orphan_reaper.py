"""Looks for what is left over at all providers and engines that a store knows of, and gives it back."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tradewind import plugins
from tradewind.deployer.lifecycle.orphans import end_orphan
from tradewind.deployer.provisioner.base import Cluster, ClusterState, MakesMachines, Provisioner, ReachableBySsh
from tradewind.deployer.runner.base import Runner, Simulates
from tradewind.deployer.runner.handle import HandleData
from tradewind.engine.cleanup.kept_leases import end_leases
from tradewind.engine.cleanup.orphan_policy import (
    KnownRecords,
    KnownRun,
    OrphanDecision,
    OrphanFate,
    OrphanFinding,
    OrphanKind,
    OwningStudy,
)
from tradewind.engine.cleanup.study_teardown import tear_down_study
from tradewind.engine.deployment import make_plugin
from tradewind.errors import MissingProgramError, PluginError, StudyBusyError, TeardownError, TradewindError
from tradewind.plugins import CallsNetwork
from tradewind.problem import Billing, Handle
from tradewind.store.base import Store, StudyLine, StudyRow, this_process

if TYPE_CHECKING:
    from tradewind.problem.job_spec.spec import JobSpec


_Part = Provisioner | Runner
_Answer = TypeVar("_Answer")

_HOLD_SECONDS = 3600.0
_PATIENCE_SECONDS = 30.0
_AGAIN_SECONDS = 10.0
_PAUSE_SECONDS = 0.2
_THREADS = 8


@dataclass(frozen=True, slots=True)
class ReapOutcome:
    """The result of giving something back.

    Attributes:
        decision: What was to become of it.
        problem: Why it is still there, in words; empty when it is gone.
        kept: True when it is still there because a live process has taken it over meanwhile.
    """

    decision: OrphanDecision
    problem: str = ""
    kept: bool = False


class OrphanReaper:
    """All provisioners and runners that the studies of a store use, and those that are named besides.

    Provisioners and runners that only pretend are left out, unless they are named.

    Args:
        store: The store.
        data_folder: Where the parts keep what they need between processes.
        provisioners: Names of further provisioners, with their usual settings.
        runners: Names of further runners, likewise.
        like: Jobs whose provisioners and runners are asked, too, with the settings that the jobs give them.
        studies: The studies whose parts are asked; all of the store where None.

    Attributes:
        problems: What could not be asked, and why; something may be left there.
        notes: What is not installed here any more, and so was not asked.

    Raises:
        PluginError: One that is named is not installed.
    """

    def __init__(
        self,
        store: Store,
        data_folder: Path,
        *,
        provisioners: Sequence[str] = (),
        runners: Sequence[str] = (),
        like: Sequence[JobSpec] = (),
        studies: Sequence[StudyRow] | None = None,
    ) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._store = store
        self._data_folder = data_folder
        self._studies = store.find_studies() if studies is None else studies
        # Of each study: None is a part that could not be made.
        self._used: dict[int, tuple[Provisioner | Runner | None, ...]] = {}
        self._silent: set[Provisioner | Runner] = set()
        self._made: dict[str, Provisioner | Runner | None] = {}
        # By owner, where jobs are on machines that were made for them.
        self._makers: dict[str, tuple[Runner, Provisioner]] = {}
        for kind, names in (("provisioner", provisioners), ("runner", runners)):
            for name in names:
                self._add(kind, {"use": name}, Path.cwd(), named=True)
        for spec in like:
            for kind, part in (("provisioner", spec.provisioner), ("runner", spec.runner)):
                self._add(kind, {"use": part.name, **part.settings}, spec.base, named=True)
        for study in self._studies:
            self._add_study(study)

    def look(self) -> list[OrphanFinding]:
        """Find by their tags what the parts have, of all owners.

        A job on machines that its provisioner says do not exist any more has certainly ended.
        """
        found: dict[tuple[str, str, str], OrphanFinding] = {}
        there: dict[Provisioner, set[str]] = {}
        for part, findings in self._answers(_findings):
            if isinstance(part, Provisioner):
                there[part] = {finding.run_id for finding in findings}
            for finding in findings:
                found.setdefault((finding.kind, finding.part, finding.run_id), finding)
        return [self._judged(finding, there) for finding in found.values()]

    def _answers(self, ask: Callable[[_Part], Iterable[_Answer]]) -> Iterator[tuple[_Part, list[_Answer]]]:
        """Collect the answers of all parts; one that cannot be asked is a problem.

        Jobs come first: what has a job by now has its machines in the list, or they are gone.
        """
        for part in sorted(self._parts, key=lambda part: isinstance(part, Provisioner)):
            try:
                answer = list(ask(part))
            except TradewindError as error:
                self.problems.append(f"{part.name} could not be asked: {error}")
                self._silent.add(part)
            else:
                yield part, answer

    def _judged(self, finding: OrphanFinding, there: Mapping[Provisioner, Collection[str]]) -> OrphanFinding:
        runner, provisioner = self._makers.get(finding.owner, (None, None))
        if finding.kind is OrphanKind.MACHINES or provisioner is None or finding.thing[0] is not runner:
            return finding
        known = there.get(provisioner)
        return finding if known is None or finding.run_id in known else replace(finding, alive=False)

    def tags(self) -> set[str]:
        """The owners' tags of all that is there, and what the names of its runs begin with, up to each ``-``."""
        found: set[str] = set()
        for _, there in self._answers(_there):
            for one in there:
                found.add(one.owner if isinstance(one, Cluster) else str(HandleData.of(one).owner))
                found |= {one.run_id[:at] for at, letter in enumerate(one.run_id) if letter == "-"}
        return found

    def asked(self) -> set[int]:
        """The studies all of whose parts were asked and answered, or only pretend; to be asked after a look."""
        return {
            number
            for number, parts in self._used.items()
            if all(part is not None and part not in self._silent for part in parts)
        }

    def known(self, findings: Iterable[OrphanFinding]) -> KnownRecords:
        """Read the stored rows of some findings; call it after `look`, never before."""
        studies = {study.owner: study for study in self._store.list_studies() if study.owner}
        owners = {tag: OwningStudy(study.id, study.name, study.holder) for tag, study in studies.items()}
        rows: dict[str, KnownRun] = {}
        wanted: dict[str, set[str]] = {}
        for finding in findings:
            # The run's name begins with the tag of its owner, whatever became of the tag itself.
            tag = finding.owner or next((tag for tag in studies if finding.run_id.startswith(f"{tag}-")), "")
            if tag in studies:
                wanted.setdefault(tag, set()).add(finding.run_id)
        for tag, run_ids in wanted.items():
            rows |= self._rows(studies[tag], run_ids)
        return KnownRecords(owners, rows)

    def give_back(self, decisions: Sequence[OrphanDecision]) -> Iterator[ReapOutcome]:
        """End, destroy or forget what was decided; each is tried, whatever became of the others."""
        ours: dict[int, list[OrphanDecision]] = {}
        others = []
        for decision in decisions:
            if decision.fate is OrphanFate.KEEP:
                continue
            if decision.study_id is None:
                others.append(decision)
            else:
                ours.setdefault(decision.study_id, []).append(decision)
        for study_id, mine in ours.items():
            yield from self._of_study(study_id, mine)
        yield from self._all(others)

    def close(self) -> None:
        """Give back connections."""
        for part in self._parts:
            part.close()

    # ------------------------------------------------------------------ parts

    def _add_workflow_run(self, study: StudyRow) -> None:
        """Add the parts that give the machines of a workflow's run; of one whose folder is gone nothing is left."""
        from tradewind.engine.cleanup.workflow_teardown import workflow_parts

        parts = workflow_parts(study)
        there = [(kind, one) for kind, one in parts if Path(one.get("data_folder") or self._data_folder).exists()]
        self._used[study.id] = tuple(self._add(kind, choice, Path.cwd()) for kind, choice in there)

    def _add_study(self, study: StudyRow) -> None:
        if study.kind == "workflow":
            self._add_workflow_run(study)
            return
        document = study.spec.get("job")
        deploy = document.get("deploy", {}) if isinstance(document, Mapping) else {}
        runner, provisioner = deploy.get("runner", {}), deploy.get("provisioner", {})
        with contextlib.suppress(PluginError):
            if issubclass(plugins.load("runner", str(runner.get("use"))), Simulates):
                if not issubclass(plugins.load("provisioner", str(provisioner.get("use"))), MakesMachines):
                    self._used[study.id] = ()
                return  # its machines are on a clock that stands still now
        base = Path(str(study.spec.get("base", ".")))
        runs, makes = (
            self._add(kind, choice, base) if choice.get("use") else None
            for kind, choice in (("runner", runner), ("provisioner", provisioner))
        )
        self._used[study.id] = runs, makes
        if isinstance(runs, Runner) and isinstance(makes, Provisioner) and _makes_own(type(makes)):
            self._makers[study.owner] = runs, makes

    @property
    def _parts(self) -> list[Provisioner | Runner]:
        return [part for part in self._made.values() if part is not None]

    def _add(
        self, kind: str, choice: Mapping[str, Any], base: Path, *, named: bool = False
    ) -> Provisioner | Runner | None:
        settings = {key: value for key, value in choice.items() if key not in ("use", "data_folder")}
        folder = Path(choice.get("data_folder") or self._data_folder)
        key = json.dumps([kind, choice, str(base) if settings else ""], sort_keys=True, default=str)
        if key in self._made:
            return self._made[key]
        self._made[key] = None
        try:
            self._made[key] = make_plugin(kind, str(choice["use"]), settings, base, folder)
        except (PluginError, MissingProgramError) as error:
            if named:
                raise
            self.notes.append(f"{kind} {choice['use']} was not asked: {error}")
        except TradewindError as error:
            self.problems.append(f"{kind} {choice['use']} could not be asked: {error}")
        return self._made[key]

    def _rows(self, study: StudyLine, run_ids: set[str]) -> dict[str, KnownRun]:
        rows: dict[str, KnownRun] = {}
        had_by: dict[str, str] = {}
        kept: dict[str, float] = {}
        for run in self._store.runs(study.id):
            if run.taken is not None and not run.state.ended:
                had_by[run.cluster] = run.run_id
            if run.lease is not None and run.lease.ended is None:
                kept[run.lease.cluster] = run.lease.until
            if run.run_id in run_ids:
                trials = self._store.trials(study.id, since=run.trial, limit=1)
                price = next((trial.offer.hourly for trial in trials if trial.number == run.trial), None)
                rows[run.run_id] = KnownRun(study.owner, run.state.ended, run.started, price)
        return {
            run_id: replace(row, had_by=had_by.get(run_id, ""), kept_until=kept.get(run_id))
            for run_id, row in rows.items()
        }

    # ------------------------------------------------------------------ giving back

    def _of_study(self, study_id: int, decisions: Sequence[OrphanDecision]) -> Iterator[ReapOutcome]:
        """Give back what belongs to a study of this store, which nobody else can begin meanwhile."""
        settled = [decision for decision in decisions if decision.fate is OrphanFate.SETTLE]
        rest = [decision for decision in decisions if decision.fate is not OrphanFate.SETTLE]
        if settled:
            yield from self._settle(study_id, settled)
        if not rest:
            return
        try:
            token = self._store.hold(study_id, this_process(), _HOLD_SECONDS)
        except StudyBusyError as error:
            yield from (ReapOutcome(decision, str(error), kept=True) for decision in rest)
            return
        gone = set()
        try:
            for outcome in self._all(rest):
                finding = outcome.decision.finding
                if finding.kind is OrphanKind.MACHINES and not outcome.problem:
                    gone.add(finding.run_id)
                yield outcome
        finally:
            if gone:
                self._end_leases(study_id, token, gone)
            self._store.release(study_id, token)

    def _end_leases(self, study_id: int, token: str, tags: Collection[str]) -> None:
        """Charge the study with what keeping the machines has cost that are given back now."""
        document = self._store.study(study_id).spec.get("job")
        deploy = document.get("deploy", {}) if isinstance(document, Mapping) else {}
        given = deploy.get("billing") or {}
        billing = Billing(
            minimum_seconds=float(given.get("minimum", 0.0)), granularity_seconds=float(given.get("granularity", 1.0))
        )
        end_leases(self._store, study_id, billing, token, tags)

    def _settle(self, study_id: int, decisions: Sequence[OrphanDecision]) -> Iterator[ReapOutcome]:
        run_ids = {decision.run_id for decision in decisions}
        study = self._store.study(study_id)
        try:
            ended = tear_down_study(self._store, study, self._data_folder, only=run_ids, reason="it had expired")
        except TradewindError as error:
            for decision in decisions:
                yield ReapOutcome(decision, str(error), kept=isinstance(error, StudyBusyError))
            return
        still = {run.run_id: run.reason for run in ended.runs if not run.state.ended}
        for decision in decisions:
            run_id = decision.run_id
            problem = "; ".join(ended.problems) or still.get(run_id, "") or "it does not end"
            yield ReapOutcome(decision, problem if run_id in still else "")

    def _all(self, decisions: Sequence[OrphanDecision]) -> Iterator[ReapOutcome]:
        """Several at a time where the provider takes its time and the part allows it."""
        slow = [decision for decision in decisions if isinstance(decision.finding.thing[0], CallsNetwork)]
        for decision in decisions:
            if decision not in slow:
                yield self._one(decision)
        if slow:
            with ThreadPoolExecutor(_THREADS) as pool:
                yield from pool.map(self._one, slow)

    def _one(self, decision: OrphanDecision) -> ReapOutcome:
        part, thing = decision.finding.thing
        try:
            if isinstance(part, Provisioner):
                _destroy(part, thing)
            else:
                if decision.fate is not OrphanFate.FORGET:
                    end_orphan(part, thing)
                part.forget(thing)
        except TradewindError as error:
            return ReapOutcome(decision, str(error))
        except Exception as error:  # a bug in one part must not keep what others can give back
            return ReapOutcome(decision, f"{type(error).__name__}: {error}")
        return ReapOutcome(decision)


def _makes_own(kind: type[Provisioner]) -> bool:
    """True where jobs run on machines that are made for them, and end with them."""
    return issubclass(kind, MakesMachines) and issubclass(kind, ReachableBySsh)


def _there(part: _Part) -> Sequence[Cluster | Handle]:
    return part.find(None)


def _findings(part: _Part) -> Iterator[OrphanFinding]:
    return _machines(part) if isinstance(part, Provisioner) else _jobs(part)


def _machines(part: Provisioner) -> Iterator[OrphanFinding]:
    for cluster in part.find(None):
        facts = cluster.data
        yield OrphanFinding(
            OrphanKind.MACHINES,
            part.name,
            cluster.run_id,
            cluster.owner,
            cluster.expires,
            _number(facts.get("created")),
            price_per_hour=_number(facts.get("price_per_hour")),
            thing=(part, cluster),
        )


def _jobs(part: Runner) -> Iterator[OrphanFinding]:
    handles = part.find(None)
    statuses = part.poll(handles) if handles else {}
    for handle in handles:
        data, status = HandleData.of(handle), statuses.get(handle.run_id)
        yield OrphanFinding(
            OrphanKind.JOB,
            part.name,
            handle.run_id,
            str(data.owner),
            _number(data.expires),
            _number(data.created),
            alive=status is None or not status.state.ended,
            price_per_hour=_number(data.price_per_hour),
            thing=(part, handle),
        )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _destroy(part: Provisioner, cluster: Cluster) -> None:
    """Destroy machines, and wait until the provider confirms that they are gone.

    Raises:
        TeardownError: They are still there after a while.
    """
    cluster = part.destroy(cluster)
    again = time.monotonic() + _AGAIN_SECONDS
    until = time.monotonic() + max(_PATIENCE_SECONDS, part.patience_seconds)
    while cluster.state is not ClusterState.GONE:
        if time.monotonic() > until:
            raise TeardownError(f"the machines of run {cluster.run_id} are still there")
        time.sleep(_PAUSE_SECONDS)
        if time.monotonic() > again:
            again = time.monotonic() + _AGAIN_SECONDS
            cluster = part.destroy(cluster)
        else:
            cluster = part.poll([cluster])[cluster.run_id]


def idle_studies(store: Store, studies: Sequence[StudyRow], data_folder: Path) -> set[int]:
    """Studies of which nothing is there, here or at a provider.

    Each part that one of them names is asked once for what is there of all owners, which for thousands of studies is
    quicker than to ask for each. Then, and not before, the store is asked for open runs and for who holds a study: a
    row is written before anything is made, so that what came after the look is among those. A study is not idle, and
    has to be ended for itself, if a process holds it, if it has open runs or results to be uploaded, if anything with
    its tag or with a run's name of it was found, or if one of its parts could not be made or asked.

    Args:
        store: Where they are kept.
        studies: The studies.
        data_folder: Where parts keep what they need between processes.

    Returns:
        Their ids.
    """
    with contextlib.closing(OrphanReaper(store, data_folder, studies=studies)) as yard:
        tags, asked = yard.tags(), yard.asked()
    busy = store.open_studies() | {line.id for line in store.list_studies() if line.holder}
    return {
        study.id
        for study in studies
        if study.id in asked
        and study.id not in busy
        and study.owner
        and study.owner not in tags
        and not any((data_folder / "uploads" / study.owner).glob("*"))
    }
