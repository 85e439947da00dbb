"""What earlier studies measured, for searchers that learn from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tradewind.problem.objective import Constraints, JobParameters, Objective
from tradewind.problem.offer import Billing
from tradewind.problem.trial import Trial


@dataclass(frozen=True, slots=True)
class PastStudy:
    """An earlier study of the store: of the same job, of the same job with other parameters, or of another job.

    Attributes:
        name: The job's name.
        parameters: The job's parameters, and the share of the input that its full runs took.
        trials: Its trials that ended and inform, by number; their configurations may be of another space.
        problem_key: Hash of its problem: equal keys mean that every figure can be compared.
        objective: What was wanted.
        constraints: What had to hold; ``feasible`` of an observation is meant by these.
        billing: How time became money.
    """

    name: str
    parameters: JobParameters
    trials: tuple[Trial, ...]
    problem_key: str = ""
    objective: Objective = field(default_factory=Objective)
    constraints: Constraints = field(default_factory=Constraints)
    billing: Billing = field(default_factory=Billing)

    @property
    def values(self) -> Mapping[str, float | str]:
        """The job's parameters by name."""
        return self.parameters.values
