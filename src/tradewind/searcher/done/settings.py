"""The settings of DONE."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tradewind import plugins


class DoneSettings(plugins.Settings):
    """Settings of DONE's model and choice. benchmarks/done has the experiment that the defaults come from."""

    terms: int = Field(default=300, ge=10, le=5000, description="m: cosines of the random Fourier expansion.")
    sigma: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="σ_ω: spread of the frequencies, for inputs on [-1, 1]; chosen by evidence when not given.",
    )
    penalty: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description="λ, divided by terms/2 as against the published form; chosen by evidence when not given.",
    )
    trend: float = Field(
        default=1.0, ge=0, le=100, description="How steep the straight lines beside the cosines may be; 0 for none."
    )
    law: bool = Field(
        default=True,
        description="Where it is likelier than lines, time is shared work plus a rest (Amdahl); needs log and trend.",
    )
    speedup: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Expected before any run: time falls with this power of the vCPUs; 0 expects nothing.",
    )
    target: Literal["log", "plain"] = Field(
        default="log", description="log: models the logarithm of the time; plain: the time, as published."
    )
    inputs: Literal["both", "configuration"] = Field(
        default="both",
        description="both: job parameters and configuration; configuration: as published, only the configuration.",
    )
    most_runs: int = Field(
        default=200, ge=1, le=5000, description="S_max: earlier runs that the model is made of, the nearest ones."
    )
    reach: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="P_max: greatest distance of job parameters, as a share of the greatest possible.",
    )
    spread: int = Field(
        default=4, ge=0, description="First runs, earlier ones included, that are spread over the space; 0: published."
    )
    optimism: float = Field(
        default=0.5,
        ge=0,
        le=10,
        description="Standard deviations below the expected time that a guess is taken at; "
        "unless 0, at least 1 while other runs are on their way.",
    )
    noise: float = Field(
        default=0.1, ge=0, le=2, description="Standard deviation of the exploration noise at the first run, on [-1, 1]."
    )
    decay: float = Field(
        default=1.0, ge=0, le=4, description="The noise falls with this power of the number of runs in the model."
    )
    confidence: float = Field(
        default=0.7, gt=0, lt=1, description="A configuration must meet the deadline and all bounds with this chance."
    )
    average: bool = Field(
        default=True,
        description="Average over all fits that explain the runs about as well; false: the likeliest alone.",
    )
    ignore: bool = Field(default=True, description="Leave out job parameters that do not matter.")
    profile: bool = Field(default=True, description="Use low-level metrics of earlier runs where they help.")
