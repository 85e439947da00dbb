"""Why DONE recommends what it does, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from tradewind.problem import COST, RUNTIME, Configuration, Offer, Problem
from tradewind.problem.configuration import plain_number
from tradewind.searcher.done.model import DoneModel
from tradewind.searcher.done.run_history import FRACTION
from tradewind.utils.units import count

_APART = "apart from what does not matter"


def model_basis(model: DoneModel, left_out: int, problem: Problem) -> list[str]:
    """What the model rests on: one sentence each.

    Args:
        model: The model.
        left_out: Earlier runs that could not be used.
        problem: The problem.
    """
    lines = []
    if model.time is None and model.runs:
        return [f"of {count(len(model.runs), 'run')}, none came to its end"]
    if model.used:
        away = model.distance(model.used)
        same, like = sum(run.given(model.wanted) for run in model.used), int((away == 0.0).sum())
        line = f"{count(len(model.used), 'run')} of {problem.job.name}, {same} of them with these job parameters"
        lines.append(line if like <= same else f"{line}, {like} with these {_APART}")
        nearest = model.used[int(away.argmin())].parameters
        if (
            any(nearest[name] != value for name, value in model.wanted.items() if name not in model.unknown)
            and not like
        ):
            lines.append(f"the nearest runs had {_values(nearest)}")
    for name in model.unknown:
        had = f"{name}={plain_number(model.shared[name])}"
        lines.append(f"all runs had {had}: how the time depends on it is not known")
    lines += [_beyond(name, model) for name in model.outside]
    aim = problem.objective.metric
    if model.time is not None and aim not in (COST, RUNTIME, *model.figures):
        lines.append(f"no run says its {aim} yet: the quickest come first")
    if model.time is not None:
        bounded = dict.fromkeys(threshold.metric for threshold in problem.constraints.thresholds)
        unknown = [metric for metric in bounded if metric not in (COST, RUNTIME, *model.figures)]
        lines += [f"no run says its {metric} yet: its bound is not judged" for metric in unknown]
    varying = [name for name in model.parameters.groups if name not in model.dropped and name not in model.shared]
    helping = [name for name in model.profiles.names if name not in model.dropped]
    if model.ignored and not helping:
        lines.append(f"found not to matter: {', '.join(model.ignored)}")
    if model.doubtful and not helping:
        lines.append(f"likely not to matter: {', '.join(model.doubtful)}")
    if varying:
        lines.append(f"found to matter: {', '.join(varying)}")
    if helping:
        lines.append(f"{', '.join(helping)} of earlier runs tells more than the names")
    if left_out:
        lines.append(f"{count(left_out, 'run')} left out: of another space, or without one of these job parameters")
    return lines


def recommendation_reason(model: DoneModel, offer: Offer, configuration: Configuration) -> str:
    """What is known of one configuration, in a few words.

    Args:
        model: The model.
        offer: Its machines.
        configuration: The configuration.
    """
    mine = [run for run in model.runs if run.trial.configuration == configuration and run.trial.offer.key == offer.key]
    if not mine:
        return "never run; by what others took"
    same, like = sum(run.given(model.wanted) for run in mine), int((model.distance(mine) == 0.0).sum())
    if same:
        return f"run {same}x with these job parameters"
    if like:
        return f"run {like}x with these job parameters {_APART}"
    return f"run {len(mine)}x with other job parameters"


def _beyond(name: str, model: DoneModel) -> str:
    """That no run was near what is wanted."""
    wanted = model.wanted[name]
    if isinstance(wanted, str):
        return f"no run with {name}={wanted} came to its end: how the time depends on it is not known"
    values = sorted({float(run.parameters[name]) for run in model.telling})
    ran = f"{plain_number(values[0])} to {plain_number(values[-1])}"
    return f"{name}={plain_number(wanted)} is outside of what was run, {ran}: how the time goes on there is a guess"


def _values(parameters: Mapping[str, float | str]) -> str:
    shown = {name: value for name, value in parameters.items() if name != FRACTION or value != 1.0}
    return ", ".join(f"{name}={plain_number(value)}" for name, value in shown.items())
