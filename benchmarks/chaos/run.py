"""Kills the controller of a search with SIGKILL, again and again, and counts what that has cost.

    python benchmarks/chaos/run.py --engine docker --kills 100
    python benchmarks/chaos/run.py --engine docker --kills 100 --workflows

A study on a real engine is searched by controllers that are killed one after the other: half of them by themselves,
right before or after a call of the store, the runner or the provisioner, the others at any moment. After some kills a
last controller brings the study to its end, and everything is compared: the rows, what the jobs themselves have noted,
and what the engine still has. With ``--workflows`` it is a plan of a workflow that is carried out, see `workflows`.
Each study is a line in results.csv. It needs root, and what tests/engines needs.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2])]

from controllers import Controllers  # noqa: E402
from verify import Findings, look  # noqa: E402
from workflows import Kills, Stage, one_run  # noqa: E402

from engines import ENGINES, Engine, started, write_prices  # noqa: E402

RESULTS = Path(__file__).parent / "results.csv"
COLUMNS = ("date", "engine", "seed", "kills", "at_calls", "at_moments", "runs", "repeated", "seconds")
COUNTED = ("lost", "leaked", "twice", "machines", "money")
_NOTE = "read up _ < /proc/uptime; echo $TRADEWIND_RUN_ID $up >>"
_LAST_SECONDS = 240.0


def job_file(engine: Engine, work: Path, pause: float) -> dict[str, Any]:
    """The study: short runs, two at a time, in more configurations than there will be runs."""
    place = engine.journal or str(work)
    script = f"{_NOTE} {place}/began; sleep {{{{ pause }}}}; {_NOTE} {place}/ended"
    return {
        "name": "chaos",
        "job": {"workdir": "work", "command": ["sh", "-c", script], **engine.job},
        "space": {
            "instance": dict(engine.instance),
            "pause": [pause / 4, pause / 2, pause],
            "level": "1..5000",
        },
        "catalogues": dict(engine.catalogues),
        "searcher": {"use": "exhaustive", "order": "shuffled"},
        "parallel": 2,
        "abort": False,
        "deploy": {
            "provisioner": dict(engine.provisioner),
            "runner": dict(engine.runner),
            "billing": {"granularity": "1ms"},
        },
    }


def first_submission(engine: Engine) -> Stage:
    """Where the first run has been handed over."""
    runner = str(engine.runner["use"])
    return "runner", runner, submission(runner), "after", 1


def submission(runner: str) -> str:
    """The method by which a runner gets runs."""
    from tradewind import plugins
    from tradewind.deployer.runner.base import SubmitsTogether

    return "submit_all" if issubclass(plugins.load("runner", runner), SubmitsTogether) else "submit"


def stage_of(engine: Engine, chance: random.Random) -> Stage | None:
    """Where a controller kills itself, or None for any moment."""
    if chance.random() < 0.5:
        return None
    runner, provisioner = str(engine.runner["use"]), str(engine.provisioner["use"])
    submit = submission(runner)
    calls = [("store", "sql", "write", 14), ("runner", runner, submit, 3), ("runner", runner, "poll", 20)]
    calls += [("runner", runner, "collect", 3), ("runner", runner, "forget", 3)]
    if provisioner != "none" or engine.provisioner.get("hosts"):
        calls += [("provisioner", provisioner, name, most) for name, most in (("make", 3), ("poll", 6), ("destroy", 3))]
    kind, name, method, most = chance.choice(calls)
    return kind, name, method, chance.choice(("before", "after")), chance.randint(1, most)


def tune(trials: int) -> list[str]:
    """The command that searches, with a budget of trials."""
    return ["tune", "job.yaml", "--quiet", "--trials", str(trials)]


def one_study(engine: Engine, controllers: Controllers, folder: Path, kills: int, seed: int) -> tuple[Kills, Findings]:
    """Kill controllers of a study, bring it to its end, and look at it."""
    from tradewind import plugins

    chance, done = random.Random(seed), Kills()
    work, home = folder / "work", folder / "home"
    work.mkdir(parents=True)
    write_prices(folder)
    (folder / "job.yaml").write_text(json.dumps(job_file(engine, work, 0.4)))
    environment = {"TRADEWIND_HOME": str(home), **engine.environment}
    tries, longest = 0, engine.longest
    while done.at_calls + done.at_moments < kills:
        # Every fifth dies after its first submission, which tells how fast this machine is now.
        pace = tries % 5 == 0
        stage = first_submission(engine) if pace else stage_of(engine, chance)
        seconds = _LAST_SECONDS if pace else 4 * longest if stage else chance.uniform(0.02, longest)
        tries += 1
        death = controllers.run(folder, tune(100_000), seconds=seconds, environment=environment, stage=stage)
        longest = max(engine.longest, 3 * death.seconds) if pace else longest
        done.at_calls += death.code == -9 and not death.by_time
        done.at_moments += death.code == -9 and death.by_time
        if death.code != -9 or tries > 3 * kills + 20:
            said = (folder / "controllers.log").read_text()[-2000:]
            raise RuntimeError(f"a controller ended by itself with {death.code}\n{said}")
    store: Any = plugins.create("store", "sql", {}, url=f"sqlite:///{home}/tradewind.db")
    studies = store.find_studies("chaos")
    trials = len(store.trials(studies[0].id)) if studies else 0
    store.close()
    last = controllers.run(folder, tune(trials + 3), seconds=_LAST_SECONDS, environment=environment)
    makes = str(engine.provisioner["use"]) != "none"
    if last.code != 0:
        raise RuntimeError(f"the last one ended with {last}\n{(folder / 'controllers.log').read_text()[-2000:]}")
    return done, look(home, work, engine.left, makes_machines=makes)


def append(path: Path, row: dict[str, Any]) -> None:
    """Add a line to the results; several engines may be at it at a time."""
    with path.open("a", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        writer = csv.DictWriter(file, [*COLUMNS, *COUNTED])
        if path.stat().st_size == 0:
            writer.writeheader()
        writer.writerow(row)


def kill(name: str, kills: int, each: int, seed: int, results: Path, *, workflows: bool) -> int:
    """Kill controllers over an engine; how many things went wrong."""
    wrong, number = 0, 0
    kill_some, label = (one_run, f"{name} workflow") if workflows else (one_study, name)
    with started(name) as engine:
        controllers = Controllers(engine.imports)
        base = Path(tempfile.mkdtemp(prefix="tw-chaos-"))
        try:
            while number < kills:
                began, folder = time.monotonic(), base / str(number)
                done, found = kill_some(engine, controllers, folder, min(each, kills - number), seed + number)
                row = {"date": datetime.now(UTC).date(), "engine": label, "seed": seed + number, "kills": done.total}
                number += max(1, done.total)
                row |= {**asdict(done), "runs": found.runs, "repeated": len(found.repeated)}
                row |= {"seconds": round(time.monotonic() - began, 1)}
                append(results, {**row, **{kind: len(getattr(found, kind)) for kind in COUNTED}})
                print(f"{label}: {number} kills, {found.runs} runs, {len(found.wrong)} wrong", flush=True)
                for words in [*found.wrong, *(f"repeated: {each}" for each in found.repeated)]:
                    print(f"  {words}", flush=True)
                wrong += len(found.wrong)
                if found.wrong or found.repeated:
                    print(f"  what there was: {folder}", flush=True)
                else:
                    shutil.rmtree(folder)
        finally:
            controllers.close()
            if not any(base.iterdir()):
                base.rmdir()
    return wrong


def main(words: Sequence[str] | None = None) -> int:
    """Kill and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=sorted(ENGINES), required=True)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--each", type=int, default=20, help="kills of one study")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file that lines are added to")
    parser.add_argument("--workflows", action="store_true", help="carry out plans of workflows instead of searching")
    given = parser.parse_args(words)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the engine is stopped on that way, too
    return 1 if kill(given.engine, given.kills, given.each, given.seed, given.results, workflows=given.workflows) else 0


if __name__ == "__main__":
    sys.exit(main())
