"""The settings of OBOL."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tradewind.plugins import Settings


class ObolSettings(Settings):
    """Settings of OBOL's starts, model, lookahead and stop rule."""

    depth: int = Field(default=2, ge=0, le=5, description="Further runs that are imagined behind each candidate.")
    starts: int | Literal["auto"] = Field(
        default=5,
        description="Trials before the model chooses; auto: 3 % of the candidates, at least one a parameter (Lynceus).",
    )
    design: Literal["random", "lhs"] = Field(
        default="random", description="Starts at random, or a maximin Latin hypercube (Lynceus)."
    )
    beta: float = Field(
        default=0.99,
        gt=0.5,
        lt=1,
        description="A candidate is allowed where the money left pays for it with this probability.",
    )
    gamma: float = Field(default=0.9, ge=0, le=1, description="What an improvement one run later is worth.")
    epsilon: float | None = Field(
        default=None,
        ge=0,
        description="Stop when the path chosen promises no more than this, in units of the objective.",
    )
    min_trials: int = Field(
        default=6, ge=1, description="Trials before epsilon or beta may stop the search; below, the cheapest is tried."
    )
    target: Literal["cost", "log_cost"] = Field(
        default="cost", description="What the trees predict; log_cost with log-normal formulas is not in the paper."
    )
    features: Literal["parameters", "machines"] = Field(
        default="parameters",
        description="parameters: one column each; machines: facts of the machines, and what they amount to together.",
    )
    trees: int = Field(default=10, ge=2, le=200, description="Trees in the ensemble.")
    agreement: float = Field(
        default=0.0,
        ge=0,
        description="Standard deviation where all trees agree, as a share of the mean (Lynceus: 10).",
    )
    switch_seconds: float = Field(
        default=0.0,
        ge=0,
        description="Seconds of its price that a candidate on other machines than the latest run is charged besides.",
    )
    abort: bool = Field(
        default=False, description="Cut a run short at the best cost so far and at the deadline (Lynceus)."
    )
    aborted: Literal["truncated", "bound"] = Field(
        default="truncated",
        description="Label of a run cut short: mean of the prediction above the bound (Lynceus), or the bound itself.",
    )
    exact: int = Field(
        default=512, ge=1, description="Up to so many allowed candidates, paths are begun from every one."
    )
    roots: int = Field(
        default=200, ge=1, description="Above, from this many: the best by improvement for their money alone."
    )
    threads: int = Field(default=2, ge=1, le=64, description="Threads for looking ahead; the choice is the same.")
    pool: int = Field(default=2048, ge=16, description="Random candidates where the space is too large to list.")
