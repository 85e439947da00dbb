"""Learns the weights that come with the adaptive policy: ``python prepare.py [generations]`` (50).

The cross-entropy method over graphs of about 50 tasks, all machines of the benchmark and all scenarios, with training
seeds only; the graphs of the test are others. Each generation meets 96 worlds of a seed that no other has. Writes
``work/weights.json``; its numbers, rounded, are the defaults of `tradewind.workflow.learning.adaptive.AdaptiveWeights`.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
from scenarios import PLATFORMS, SCENARIOS, TRAINING, TRAINING_SEEDS, Case

from tradewind.workflow.learning.adaptive import NAMES, ONLINE_HEFT, AdaptivePolicy, AdaptiveWeights
from tradewind.workflow.learning.learners import SPREAD, CrossEntropy

HERE = Path(__file__).parent
WORLDS, SIZE = 96, 16
BEGIN = AdaptiveWeights(0.3, 0.1, 0.3, 0.3, 0.0, 0.0, 0.0, 0.0)

case = cache(Case)


def main(generations: int) -> None:
    search = CrossEntropy(BEGIN.free, [getattr(SPREAD, n) for n in NAMES], size=SIZE, seed=1, step=0.4)
    chosen = random.Random(1)
    (HERE / "work").mkdir(exist_ok=True)
    for generation in range(generations):
        begun, scores = time.perf_counter(), np.zeros(SIZE)
        candidates = [AdaptiveWeights.of_free(each) for each in search.ask()]
        for _ in range(WORLDS):
            here = case(chosen.choice(TRAINING), chosen.choice(list(PLATFORMS)))
            scenario = chosen.choice(list(SCENARIOS))
            world = here.arrays.prepared(here.world(scenario, TRAINING_SEEDS + generation))
            lengths = [
                world.run(AdaptivePolicy(here.flow, here.platform, w, here.arrays).episode).finish.max()
                for w in (ONLINE_HEFT, *candidates)
            ]
            scores += np.log(np.array(lengths[1:]) / lengths[0]) / WORLDS
        search.tell(scores)
        seconds = time.perf_counter() - begun
        print(
            f"{generation:3} middle {np.exp(scores[0]):.4f} best {np.exp(scores.min()):.4f} {seconds:.1f} s", flush=True
        )
        learned = {name: round(value, 4) for name, value in asdict(AdaptiveWeights.of_free(search.mean)).items()}
        (HERE / "work" / "weights.json").write_text(json.dumps(learned, indent=1) + "\n")
    print(learned)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
