"""Which trial of a study is the best."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.problem import Objective, Trial, TrialState
from tradewind.problem.ranking import ConfigurationRanking, MeasuredRun
from tradewind.store.base import StudyRow
from tradewind.store.sql.schema import trials
from tradewind.store.studies import rows

_INFORM = tuple(state.value for state in TrialState if state.informs)


def studies_with_repeats(connection: Connection, study_ids: Sequence[int]) -> set[int]:
    """Those of some studies that ran a configuration several times."""
    again = (
        sa.select(trials.c.study_id)
        .where(trials.c.study_id.in_(study_ids), trials.c.state.in_(_INFORM), trials.c.fidelity >= 1.0)
        .group_by(trials.c.study_id, trials.c.key)
        .having(sa.func.count() > 1)
    )
    return set(connection.execute(again).scalars())


def best_trial(connection: Connection, study: StudyRow, repeated: Collection[int]) -> Trial | None:
    """The best feasible trial on the whole input, or None; of equals the one with the shortest run time.

    Where a configuration was run several times, all its runs count together: see `ConfigurationRanking`.

    Args:
        connection: The database.
        study: The study.
        repeated: The studies in which that is so, by `studies_with_repeats`.
    """
    objective = trials.c.objective
    better = objective.desc() if _maximises(study.spec) else objective.asc()
    own = trials.c.study_id == study.id
    row = connection.execute(
        sa.select(*rows.TRIAL_COLUMNS)
        .where(own, trials.c.feasible == sa.true(), objective.is_not(None))
        .where(trials.c.state == TrialState.SUCCEEDED.value, trials.c.fidelity >= 1.0)
        .order_by(better, trials.c.runtime.asc().nulls_last(), trials.c.number)
        .limit(1)
    ).first()
    if row is None:
        return None
    least = rows.trial_of(row)
    informing = (own, trials.c.state.in_(_INFORM), trials.c.fidelity >= 1.0)
    if study.id not in repeated:
        return least
    best = ConfigurationRanking(_measured(connection, study, informing), _deadline(study.spec)).best_run
    if best is None or best.number == least.number:
        return least
    chosen = sa.select(*rows.TRIAL_COLUMNS).where(own, trials.c.number == best.number)
    return rows.trial_of(connection.execute(chosen).one())


def _measured(connection: Connection, study: StudyRow, informing: tuple[Any, ...]) -> list[MeasuredRun]:
    goal = Objective(goal="maximise" if _maximises(study.spec) else "minimise")
    columns = [trials.c[name] for name in ("number", "key", "objective", "runtime", "feasible", "censored")]
    found = []
    for number, key, value, runtime, feasible, censored in connection.execute(sa.select(*columns).where(*informing)):
        loss = float("nan") if value is None else goal.loss(value)
        found.append(MeasuredRun(number, key, loss, runtime or 0.0, bool(feasible), bool(censored)))
    return found


def _deadline(spec: Mapping[str, Any]) -> float | None:
    """The deadline in seconds, as the engine stores it in plain keys; None where there is none."""
    constraints = spec.get("constraints")
    value = constraints.get("deadline") if isinstance(constraints, Mapping) else None
    return float(value) if isinstance(value, int | float) else None


def _maximises(spec: Mapping[str, Any]) -> bool:
    """True when the specification's objective is to be made large: ``{"goal": ...}`` or ``{"maximise": metric}``."""
    objective = spec.get("objective")
    if not isinstance(objective, Mapping):
        return False
    return "maximise" in objective or objective.get("goal") == "maximise"
