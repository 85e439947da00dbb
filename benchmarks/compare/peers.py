"""Other optimisers, driven through their own ask and tell on the finite list of a table.

Each gets what a user of it would write down: one parameter for each column of the table, numbers as places in their
order (so that they are evenly spread), words as categories, conditions as conditions; the price of an instance type is
one of these columns. What it asks for is moved to the nearest row of the table that was not tried, by the sum of the
differences in the columns, so it never pays for a repetition or an unsold combination. It minimises the logarithm of
the cost; the deadline is a constraint where it knows constraints, else a penalty. None knows censored runs or budgets.
"""

from __future__ import annotations

import logging
import math
import re
import shutil
import tempfile
import warnings
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tradewind.problem import Instance, Nodes, Ordinal, Problem, Proposal, Trial
from tradewind.searcher.base import NothingLeft, SearchState

FINE = 32
"""Values of a number above which Optuna's Gaussian process is told a range; it would try a list one by one."""

STARTS = 5
"""Random or quasi-random trials before the model of a peer chooses."""

PENALTY = math.log(10.0)
"""Added to the logarithm of the cost of what failed or was late, for a peer without constraints."""


@dataclass(frozen=True)
class Column:
    """One parameter of a peer.

    Attributes:
        name: Its name.
        ordered: True for numbers and other values with an order.
        count: How many values it has; they are called 0 to count - 1.
        when: Column and value on which it depends, or None.
    """

    name: str
    ordered: bool
    count: int
    when: tuple[int, int] | None = None


class Grid:
    """A table as columns of small integers.

    Args:
        problem: Its problem.

    Attributes:
        columns: The parameters.
        rows: Shape (candidates, columns); -1 where a column does not exist.
    """

    def __init__(self, problem: Problem) -> None:
        candidates = problem.candidates
        found = [candidates.configuration(i) for i in range(len(candidates))]
        self.columns: list[Column] = []
        codes: list[list[int]] = []
        for parameter in problem.space.parameters:
            if isinstance(parameter, Instance):
                for name, ordered, values in facts_of(parameter):
                    levels = sorted(set(values.values()))
                    self.columns.append(Column(f"{parameter.name}.{name}", ordered, len(levels)))
                    codes.append([levels.index(values[str(c[parameter.name])]) for c in found])
                continue
            levels = list(parameter.levels)
            when = None
            if parameter.when is not None:
                told = re.fullmatch(r"(\w+) == '(\w+)'", parameter.when.text)
                if told is None:
                    raise ValueError(f"the condition {parameter.when.text!r} cannot be told to a peer")
                on = [c.name for c in self.columns].index(told[1])
                when = (on, list(problem.space[told[1]].levels).index(told[2]))
            self.columns.append(Column(parameter.name, isinstance(parameter, Ordinal | Nodes), len(levels), when))
            codes.append([levels.index(c[parameter.name]) if parameter.name in c else -1 for c in found])
        self.rows = np.array(codes).T
        self._ordered = np.array([c.ordered for c in self.columns])
        self._spans = np.array([max(1, c.count - 1) for c in self.columns], dtype=float)

    def nearest(self, wanted: list[int], free: np.ndarray) -> int:
        """The free row that is nearest to some values, the first of equal ones."""
        rows, values = self.rows[free], np.array(wanted)
        both = (rows >= 0) & (values >= 0)
        near = np.where(self._ordered & both, np.abs(rows - values) / self._spans, rows != values)
        return int(free[int(np.argmin(np.round(near.sum(axis=1), 9)))])


def facts_of(parameter: Instance) -> list[tuple[str, bool, dict[str, Any]]]:
    """The facts of instance types that differ, each with whether it is a number; none that says the same as another."""
    found: list[tuple[str, bool, dict[str, Any]]] = []
    known: set[tuple[int, ...]] = set()
    names = ["vcpu", "memory", "price", "gpus", "provider", "category", "family", "arch"]
    names += sorted({name for offer in parameter.offers.values() for name in offer.facts})
    for name in names:
        values = {key: offer.attribute(name) for key, offer in parameter.offers.items()}
        if any(v is None for v in values.values()):
            continue
        ordered = all(isinstance(v, int | float) for v in values.values())
        levels = sorted(set(values.values()))
        places = [levels.index(v) for v in values.values()]
        if not ordered:  # by first occurrence, so that the words themselves do not matter
            seen: dict[int, int] = {}
            places = [seen.setdefault(p, len(seen)) for p in places]
        if len(levels) > 1 and tuple(places) not in known:
            known.add(tuple(places))
            found.append((name, ordered, values))
    if not found and len(parameter.values) > 1:
        found.append(("name", False, {str(v): str(v) for v in parameter.values}))
    return found


class Peer:
    """What all peers share: the grid, what was tried, and a question that is answered by a row.

    Args:
        problem: The problem.
        seed: Equal seeds give equal proposals.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem, self.seed = problem, seed
        self.grid = grid_of(problem)
        self._free = np.arange(len(problem.candidates))

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """One proposal: the nearest untried row to what the optimiser asks for."""
        if not len(self._free) or (state.money_left is not None and state.money_left <= 0):
            return NothingLeft("every configuration has been tried, or nothing is left to spend")
        self.row = self.grid.nearest(self.wanted(), self._free)
        self._free = self._free[self._free != self.row]
        return [Proposal(self.problem.candidates.configuration(self.row))]

    def tell(self, trial: Trial) -> None:
        """Pass on the logarithm of the cost, and by how much the deadline was missed, as a logarithm too."""
        seen, deadline = trial.observation, self.problem.constraints.deadline
        assert seen is not None and deadline is not None
        late = math.log(max(seen.runtime, 1e-9) / deadline)
        if not seen.feasible:
            late = max(late, 0.1)
        self.learn(math.log(max(seen.cost, 1e-12)), late, seen.feasible)

    def wanted(self) -> list[int]:
        """What the optimiser wants to try, a value for each column, -1 for those that do not exist."""
        raise NotImplementedError

    def learn(self, value: float, late: float, feasible: bool) -> None:
        """Take in the result of the last row."""
        raise NotImplementedError


_grids: dict[int, tuple[Problem, Grid]] = {}


def grid_of(problem: Problem) -> Grid:
    """The grid of a problem, made once for each problem that is kept."""
    kept = _grids.get(id(problem))
    if kept is None or kept[0] is not problem:
        _grids.clear()
        _grids[id(problem)] = kept = (problem, Grid(problem))
    return kept[1]


class OptunaPeer(Peer):
    """Optuna's TPE or Gaussian process, with the deadline as a constraint.

    Args:
        problem: The problem.
        seed: Of the sampler.
        sampler: ``tpe`` or ``gp``.
    """

    def __init__(self, problem: Problem, seed: int, sampler: Literal["tpe", "gp"]) -> None:
        super().__init__(problem, seed)
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", module="optuna")
        made: dict[str, Any] = {"tpe": optuna.samplers.TPESampler, "gp": optuna.samplers.GPSampler}
        self._optuna = optuna
        self._study = optuna.create_study(
            sampler=made[sampler](
                seed=seed, n_startup_trials=STARTS, constraints_func=lambda trial: trial.user_attrs["late"]
            )
        )
        self._fine = FINE if sampler == "gp" else math.inf
        self._kinds = [self._kind(column) for column in self.grid.columns]

    def _kind(self, column: Column) -> Any:
        distributions = self._optuna.distributions
        if not column.ordered:
            return distributions.CategoricalDistribution(tuple(range(column.count)))
        if column.count > self._fine:
            return distributions.FloatDistribution(0.0, column.count - 1.0)
        return distributions.IntDistribution(0, column.count - 1)

    def wanted(self) -> list[int]:
        """Suggest every column that exists."""
        self._trial = self._study.ask()
        values: list[int] = []
        for column in self.grid.columns:
            if column.when is not None and values[column.when[0]] != column.when[1]:
                values.append(-1)
            elif column.ordered and column.count > self._fine:
                values.append(round(self._trial.suggest_float(column.name, 0.0, column.count - 1.0)))
            elif column.ordered:
                values.append(self._trial.suggest_int(column.name, 0, column.count - 1))
            else:
                values.append(int(self._trial.suggest_categorical(column.name, range(column.count))))
        return values

    def learn(self, value: float, late: float, feasible: bool) -> None:
        """Tell the row itself, which may not be what was asked for; the question is withdrawn then."""
        columns = self.grid.columns
        row = {c.name: int(v) for c, v in zip(columns, self.grid.rows[self.row], strict=True) if v >= 0}
        if row == self._trial.params:
            self._trial.set_user_attr("late", (late,))
            self._study.tell(self._trial, value)
            return
        self._study.tell(self._trial, state=self._optuna.trial.TrialState.FAIL)
        kinds = {c.name: kind for c, kind in zip(columns, self._kinds, strict=True) if c.name in row}
        moved = self._optuna.trial.create_trial(
            params=row,
            distributions=kinds,
            value=value,
            user_attrs={"late": (late,)},
            system_attrs={"constraints": (late,)},
        )
        self._study.add_trial(moved)


class SmacPeer(Peer):
    """SMAC3's facade for hyper-parameters (random forest, log expected improvement), with a penalty for the deadline.

    Args:
        problem: The problem.
        seed: Of the scenario.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed)
        import smac
        from ConfigSpace import Categorical, ConfigurationSpace, EqualsCondition, Integer
        from smac.main.config_selector import ConfigSelector

        logging.getLogger("smac").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="numpy")
        space = ConfigurationSpace(seed=seed)
        parameters = [
            Integer(c.name, (0, c.count - 1))
            if c.ordered and c.count > 1
            else Categorical(c.name, list(range(c.count)))
            for c in self.grid.columns
        ]
        space.add(*parameters)
        for parameter, column in zip(parameters, self.grid.columns, strict=True):
            if column.when is not None:
                space.add(EqualsCondition(parameter, parameters[column.when[0]], column.when[1]))
        self._space = space
        self._configurations = [self._row(i) for i in range(len(self.grid.rows))]
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        scenario = smac.Scenario(
            space,
            deterministic=True,
            seed=seed,
            n_trials=10_000,
            output_directory=Path(folder),
        )
        facade = smac.HyperparameterOptimizationFacade
        model = facade.get_model(scenario)
        # One thread a search, as for all; by default each prediction starts one a core. And no memory for 2^20 leaves
        # a tree, which takes 0.1 s to set up: there are never more leaves than trials. It proposes the same.
        model._rf_opts.update(n_jobs=1, max_leaf_nodes=2048)
        self._smac = facade(
            scenario,
            lambda _config, seed=0: 0.0,
            model=model,
            initial_design=facade.get_initial_design(scenario, n_configs=STARTS),
            intensifier=facade.get_intensifier(scenario, max_config_calls=1),
            config_selector=ConfigSelector(scenario, retrain_after=1),
            acquisition_maximizer=self._listed(scenario),
            logging_level=False,
            overwrite=True,
        )

    def _row(self, i: int) -> Any:
        """A row as SMAC writes it."""
        from ConfigSpace import Configuration

        pairs = zip(self.grid.columns, self.grid.rows[i], strict=True)
        return Configuration(self._space, values={c.name: int(v) for c, v in pairs if v >= 0})

    def _listed(self, scenario: Any) -> Any:
        """A maximiser that scores all untried rows: exact on a finite list, where SMAC's own would search by chance."""
        from smac.acquisition.maximizer.abstract_acquisition_maximizer import AbstractAcquisitionMaximizer

        peer = self

        class Listed(AbstractAcquisitionMaximizer):
            def _maximize(self, previous_configs: list[Any], n_points: int) -> list[tuple[float, Any]]:
                return self._sort_by_acquisition_value([peer._configurations[int(i)] for i in peer._free])

        return Listed(scenario.configspace, seed=scenario.seed)

    def wanted(self) -> list[int]:
        """Ask for a configuration; random once SMAC finds none that is new."""
        from smac.main.exceptions import ConfigurationSpaceExhaustedException

        try:
            self._info = self._smac.ask()
        except (StopIteration, ConfigurationSpaceExhaustedException):
            self._info = None
            return [int(v) for v in self.grid.rows[self._free[(self.seed + len(self._free)) % len(self._free)]]]
        values = dict(self._info.config)
        return [int(values[c.name]) if c.name in values else -1 for c in self.grid.columns]

    def learn(self, value: float, late: float, feasible: bool) -> None:
        """Tell the row that was run and, where it was moved, the question as well: it would wait for ever."""
        from smac.runhistory.dataclasses import TrialInfo, TrialValue

        # The facade takes the logarithm itself.
        told = TrialValue(cost=math.exp(value + (0.0 if feasible else PENALTY)))
        row = self._configurations[self.row]
        seed = 0
        if self._info is not None:
            seed = self._info.seed
            self._smac.tell(self._info, told, save=False)
        if self._info is None or row != self._info.config:
            self._smac.tell(TrialInfo(row, seed=seed), told, save=False)


class BotorchPeer(Peer):
    """BoTorch's constrained log expected improvement per dollar: a Gaussian process each of the cost and of lateness.

    Until something was in time, the probability of that per dollar is what counts. A dollar is what the process of the
    cost expects. All untried rows are scored.

    Args:
        problem: The problem.
        seed: Of the starts.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed)
        import torch
        from botorch.acquisition.analytic import LogConstrainedExpectedImprovement, LogProbabilityOfFeasibility
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import ModelListGP, SingleTaskGP
        from botorch.models.transforms import Standardize
        from gpytorch.mlls import SumMarginalLogLikelihood

        torch.set_num_threads(1)
        warnings.filterwarnings("ignore", module="botorch|linear_operator|gpytorch")
        parts = []
        for column, codes in zip(self.grid.columns, self.grid.rows.T, strict=True):
            if column.ordered:  # what does not exist is in the middle
                parts.append(np.where(codes < 0, 0.5, codes / max(1, column.count - 1))[:, None])
            else:
                parts.append((codes[:, None] == np.arange(column.count)).astype(float))
        self._x = torch.tensor(np.hstack(parts), dtype=torch.double)
        self._rng = np.random.default_rng(seed)
        self._told: list[tuple[int, float, float, bool]] = []
        self._improvement, self._feasibility = LogConstrainedExpectedImprovement, LogProbabilityOfFeasibility

        def fitted(x: Any, y: Any, before: Any) -> Any:
            models = [SingleTaskGP(x, y[:, i : i + 1], outcome_transform=Standardize(1)) for i in range(2)]
            for model, earlier in zip(models, before.models if before else (), strict=False):  # begins where it ended
                model.covar_module.load_state_dict(earlier.covar_module.state_dict())
                model.likelihood.load_state_dict(earlier.likelihood.state_dict())
            joint = ModelListGP(*models)
            few = {"options": {"maxiter": 50}}
            fit_gpytorch_mll(SumMarginalLogLikelihood(joint.likelihood, joint), optimizer_kwargs=few)
            return joint

        self._torch, self._fitted, self._model = torch, fitted, None

    def wanted(self) -> list[int]:
        """The untried row of the best acquisition less the logarithm of its cost; random ones first."""
        if len(self._told) < STARTS:
            return [int(v) for v in self.grid.rows[self._rng.choice(self._free)]]
        torch = self._torch
        y = torch.tensor([[value, late] for _, value, late, _ in self._told], dtype=torch.double)
        self._model = model = self._fitted(self._x[[row for row, *_ in self._told]], y, self._model)
        good = [value for _, value, _, feasible in self._told if feasible]
        limits: dict[int, tuple[float | None, float | None]] = {1: (None, 0.0)}
        rule = (
            self._improvement(model, min(good), 0, limits, maximize=False) if good else self._feasibility(model, limits)
        )
        free = self._x[self._free]
        with torch.no_grad():
            scores = rule(free[:, None, :]) - model.posterior(free).mean[:, 0]
        return [int(v) for v in self.grid.rows[self._free[int(scores.argmax())]]]

    def learn(self, value: float, late: float, feasible: bool) -> None:
        """Keep the result of the last row."""
        self._told.append((self.row, value, late, feasible))


class HeboPeer(Peer):
    """HEBO, with a penalty for the deadline; what does not exist for a choice is told as the first of its values.

    Args:
        problem: The problem.
        seed: Of its chance; HEBO draws from the global generators.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed)
        import torch
        from hebo.design_space.design_space import DesignSpace
        from hebo.optimizers.hebo import HEBO

        torch.set_num_threads(1)
        warnings.filterwarnings("ignore")
        np.random.seed(seed)  # HEBO's own source of chance
        torch.manual_seed(seed)
        kinds = [
            {"name": c.name, "type": "int", "lb": 0, "ub": c.count - 1}
            if c.ordered and c.count > 1
            else {"name": c.name, "type": "cat", "categories": [str(v) for v in range(c.count)]}
            for c in self.grid.columns
        ]
        self._optimiser = HEBO(DesignSpace().parse(kinds), rand_sample=STARTS, scramble_seed=seed)

    def wanted(self) -> list[int]:
        """Ask for a configuration; a column that does not exist in it is not asked for."""
        asked = self._optimiser.suggest(n_suggestions=1).iloc[0]
        values: list[int] = []
        for c in self.grid.columns:
            absent = c.when is not None and values[c.when[0]] != c.when[1]
            values.append(-1 if absent else int(asked[c.name]))
        return values

    def learn(self, value: float, late: float, feasible: bool) -> None:
        """Tell the row that was run."""
        import pandas

        row = {
            c.name: max(0, int(v)) if c.ordered and c.count > 1 else str(max(0, int(v)))
            for c, v in zip(self.grid.columns, self.grid.rows[self.row], strict=True)
        }
        told = value + (0.0 if feasible else PENALTY)
        self._optimiser.observe(pandas.DataFrame([row]), np.array([[told]]))


def make(name: str, problem: Problem, seed: int) -> Peer:
    """A peer by name.

    Raises:
        ImportError: Its package is not installed.
    """
    if name == "smac":
        return SmacPeer(problem, seed)
    if name == "optuna-tpe":
        return OptunaPeer(problem, seed, "tpe")
    if name == "optuna-gp":
        import torch  # noqa: F401  Optuna imports it late, in the middle of a search

        return OptunaPeer(problem, seed, "gp")
    if name == "botorch":
        return BotorchPeer(problem, seed)
    if name == "hebo":
        return HeboPeer(problem, seed)
    raise ValueError(f"there is no peer named {name!r}")
