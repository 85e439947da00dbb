"""Whether an Optuna sampler can search with the options that it was given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tradewind.errors import SpecError

if TYPE_CHECKING:
    import optuna

    MakeSampler = Callable[[Mapping[str, Any]], optuna.samplers.BaseSampler]
    """Makes the sampler with some options."""

_ROUNDS = 9
"""Suggestions asked for: enough that a sampler that was hurried has begun to learn from what it was told."""

_AT_MOST = {"n_ei_candidates": 4, "n_startup_trials": 2, "population_size": 4, "popsize": 6}
"""Options that only put off the moment at which a sampler begins to work by itself, or make it slow."""

_PLAIN = ("QMCSampler", "RandomSampler")
"""Samplers that look at all of their options when they are made."""

_NEVER_FITTED = "GPSampler"
"""Fitting it takes longer than a check may, and its options are all used before that."""


def check_options(kind: str, options: Mapping[str, Any], make: MakeSampler, *, note: str) -> None:
    """Refuse options that the sampler cannot search with.

    Optuna looks at most of them only when they are used, which may be after ten paid trials; so a sampler is used here
    for a moment, on a study that is thrown away.

    Args:
        kind: The sampler's name in Optuna.
        options: What it was given.
        make: Makes it.
        note: The name under which a trial has its constraints, for versions of Optuna where a function looks there.

    Raises:
        SpecError: It refuses them, or fails with them.
    """
    try:
        make(options)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"searcher.options: Optuna's {kind} does not take them: {error}",
            hint="the names are those of the sampler's arguments",
        ) from error
    if not options or kind in _PLAIN or (failure := _failure(kind, options, make, note)) is None:
        return
    guilty = [name for name, value in options.items() if _failure(kind, {name: value}, make, note) is not None]
    what = ", ".join(f"{name}: {options[name]!r}" for name in guilty) or "them together"
    raise SpecError(
        f"searcher.options: Optuna's {kind} cannot search with {what} ({failure})",
        hint=f"the documentation of Optuna's {kind} says which values these may have",
    ) from failure


def _failure(kind: str, options: Mapping[str, Any], make: MakeSampler, note: str) -> Exception | None:
    """What happens when the sampler is used for a moment; None if nothing does."""
    import optuna

    try:
        study = optuna.create_study(sampler=make(_hurried(kind, options)))
        for _ in range(_ROUNDS):
            trial = study.ask()
            share, number = trial.suggest_float("share", 0.0, 1.0), trial.suggest_int("number", 1, 8)
            kind_of = trial.suggest_categorical("kind", ["a", "b"])
            trial.set_user_attr(note, [])
            study.tell(trial, share + number + (kind_of == "a"))
    except Exception as error:  # whatever it is, the search would end with it
        return error
    return None


def _hurried(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The same options, of the same types, with which the sampler soon does all that it can do."""
    import optuna

    takes = inspect.signature(getattr(optuna.samplers, kind)).parameters
    hurried = {**{name: most for name, most in _AT_MOST.items() if name in takes}, **options}
    for name, most in _AT_MOST.items():
        value = options.get(name)
        if isinstance(value, int | float):
            hurried[name] = type(value)(min(value, most))
    if kind == _NEVER_FITTED and isinstance(hurried["n_startup_trials"], int | float):
        hurried["n_startup_trials"] = _ROUNDS + 1
    return hurried
