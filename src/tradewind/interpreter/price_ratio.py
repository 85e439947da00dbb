"""A metric divided by, multiplied with or weighed against the price."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import ConfigDict, Field

from tradewind.errors import InterpretationError
from tradewind.interpreter.base import Interpreter, ReadsNoFiles
from tradewind.plugins import Settings
from tradewind.problem import RunOutput


class PriceRatioSettings(Settings):
    """Settings of `PriceRatioInterpreter`."""

    model_config = ConfigDict(serialize_by_alias=True)

    metric: str = Field(description="The metric, read by an interpreter before this one")
    by: Literal["price_per_hour", "hourly", "cost"] = Field(
        "hourly",
        description="price_per_hour: USD per node and hour; hourly: of all nodes; cost: USD of this run",
    )
    mode: Literal["divide", "multiply", "weighted"] = Field(
        "divide", description="weighted: metric_weight x metric - price_weight x price"
    )
    metric_weight: float = Field(1.0, allow_inf_nan=False, description="With mode: weighted")
    price_weight: float = Field(1.0, allow_inf_nan=False, description="With mode: weighted")
    as_: str | None = Field(None, alias="as", min_length=1, description="Name of the new metric")

    @property
    def result(self) -> str:
        """The name of the new metric; ``score_per_hourly``, ``score_times_cost``, ``score_minus_cost`` by default."""
        word = {"divide": "per", "multiply": "times", "weighted": "minus"}[self.mode]
        return self.as_ or f"{self.metric}_{word}_{self.by}"


class PriceRatioInterpreter(Interpreter, ReadsNoFiles):
    """Sets a metric against the price: a benchmark's score divided by the hourly price of the machines.

    Cf. "Cloud configuration tool requirements", section 3.4: values from the logs divided by the hourly price.
    """

    Settings = PriceRatioSettings
    settings: PriceRatioSettings

    def interpret(self, output: RunOutput, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Compute the new metric.

        Raises:
            InterpretationError: ``no-match`` without the metric, ``not-a-number`` for a price of zero.
        """
        chosen = self.settings
        if chosen.metric not in metrics:
            raise InterpretationError(
                "no-match",
                f"price_ratio: there is no metric {chosen.metric!r}",
                hint=f"read before it: {', '.join(sorted(metrics))}",
            )
        value = metrics[chosen.metric]
        price = {"price_per_hour": output.offer.price_per_hour, "hourly": output.offer.hourly, "cost": output.cost}[
            chosen.by
        ]
        if chosen.mode == "weighted":
            result = chosen.metric_weight * value - chosen.price_weight * price
        elif chosen.mode == "multiply":
            result = value * price
        elif price > 0:
            result = value / price
        else:
            raise InterpretationError(
                "not-a-number", f"price_ratio: {chosen.metric} cannot be divided by a price of {price:g}"
            )
        if not math.isfinite(result):
            raise InterpretationError("not-a-number", f"price_ratio: {chosen.result} is {result}")
        return {chosen.result: result}
