"""One proposal of BoTorch and of Optuna's Gaussian process; run by ``run.py`` with the Python that has them.

Reads trials as JSON from standard input and prints figures as JSON. It imports nothing of Tradewind.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import optuna
import torch
from botorch.acquisition.multi_step_lookahead import qMultiStepLookahead
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood

warnings.filterwarnings("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)


def multi_step(data: dict[str, Any], steps: int) -> None:
    """Fit a Gaussian process to ln cost and optimise a lookahead of some steps, three fantasies each.

    BoTorch searches the box around the grid (the nearest candidate would be run), as its tutorial does: 4 restarts
    from 64 raw samples.
    """
    torch.manual_seed(1)
    top = torch.tensor(data["shape"], dtype=torch.double) - 1.0
    x = torch.tensor(data["x"], dtype=torch.double) / top
    y = -torch.log(torch.tensor(data["cost"], dtype=torch.double))[:, None]
    model = SingleTaskGP(x, (y - y.mean()) / y.std())
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    look = qMultiStepLookahead(model, batch_sizes=[1] * steps, num_fantasies=[3] * steps)
    bounds = torch.stack([torch.zeros(len(top)), torch.ones(len(top))]).double()
    optimize_acqf(
        look,
        bounds=bounds,
        q=look.get_augmented_q_batch_size(1),
        num_restarts=4,
        raw_samples=64,
        options={"batch_limit": 4, "maxiter": 200},
    )


def optuna_gp(data: dict[str, Any]) -> None:
    """Ask Optuna's GPSampler once, the deadline as a constraint."""
    sampler = optuna.samplers.GPSampler(seed=1, constraints_func=lambda trial: trial.user_attrs["late"])
    study = optuna.create_study(sampler=sampler)
    space = {f"p{i}": optuna.distributions.IntDistribution(0, n - 1) for i, n in enumerate(data["shape"])}
    for row, cost, seconds in zip(data["x"], data["cost"], data["seconds"], strict=True):
        late = [seconds - data["deadline"]]
        trial = optuna.trial.create_trial(
            params={f"p{i}": v for i, v in enumerate(row)},
            distributions=space,
            value=cost,
            user_attrs={"late": late},
            system_attrs={"constraints": late},
        )
        study.add_trial(trial)
    study.ask(space)


def timed(call: Callable[[], None], repeats: int) -> tuple[float, float]:
    best = (float("inf"), float("inf"))
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        best = min(best, (time.perf_counter() - wall, time.process_time() - cpu))
    return best


def main() -> None:
    data = json.load(sys.stdin)
    repeats = 1 if data["quick"] else 3
    rows = []
    for name, call in (
        (f"Optuna {optuna.__version__} GPSampler", lambda: optuna_gp(data)),
        ("BoTorch qMultiStepLookahead, 1 step", lambda: multi_step(data, 1)),
        ("BoTorch qMultiStepLookahead, 2 steps", lambda: multi_step(data, 2)),
    ):
        call()  # the first call imports and allocates
        wall, cpu = timed(call, repeats)
        rows.append({"name": name, "wall": wall, "cpu": cpu})
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
