"""How long a tenant that comes waits on a real cluster that others fill, beside the bound that is printed.

    python benchmarks/tenancy/preemption.py --arrivals 12      # about 25 s each; a cluster of its own with 2 CPUs

Tenants A and C have a CPU each with runs of hours that save checkpoints; B comes again and again with one run of 2
seconds, of one CPU or of both in turns. Waits are from the search's row to the time stamp of the program.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

WORK = Path(tempfile.mkdtemp(prefix="tradewind-preemption-"))
TRADEWIND = Path(sys.executable).parent / "tradewind"
PROGRAM = """
import os, signal, sys, time
marks, ticks = open(sys.argv[1], "a", buffering=1), int(float(sys.argv[2]) * 10)
saved = os.environ.get("TRADEWIND_CHECKPOINT", "/nowhere") + "/ticks"
done = int(open(saved).read()) if os.path.exists(saved) else 0

def note(what):
    marks.write(f"{what} {time.time()} {os.environ['TRADEWIND_RUN_ID']} {done}\\n")

def save(*_):
    with open(saved, "w") as file:
        file.write(str(done))
    note("stopped")
    sys.exit(1)

signal.signal(signal.SIGTERM, save)
note("begin")
while done < ticks:
    time.sleep(0.1)
    done += 1
note("end")
print("loss", done)
"""
JOB = """
name: {name}
job: {{command: [{python}, {program}, {marks}, "{seconds}", "{{{{ x }}}}"]}}
space: {{x: 1..40}}
offers: {{provider: local, vcpu: 1}}
objective: {{minimise: loss}}
interpret: [{{use: regex, patterns: 'loss (?P<loss>[0-9.]+)'}}]
budget: {{trials: {trials}}}
searcher: random
parallel: 1
deploy: {{checkpoint: 10s}}
"""


def tradewind(*words: str) -> str:
    """The output of a command on this benchmark's store."""
    home = {**os.environ, "TRADEWIND_HOME": str(WORK / "home"), "COLUMNS": "200"}
    return subprocess.run([TRADEWIND, *words], env=home, check=True, capture_output=True, text=True).stdout


def submit(name: str, tenant: str, seconds: float, cpus: int, trials: int) -> None:
    """Submit a search whose runs take so many seconds and CPUs."""
    job = WORK / f"{name}.yaml"
    how = {"name": name, "python": sys.executable, "program": WORK / "program.py", "marks": WORK / f"{name}.marks"}
    job.write_text(JOB.format(**how, seconds=seconds, trials=trials))
    tradewind("submit", str(job), "--tenant", tenant, "--live-folder", "--demand", f"cpu={cpus},memory=1GiB")


def marks(name: str) -> list[list[str]]:
    """What the programs of a search have noted."""
    path = WORK / f"{name}.marks"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def wait(done: Callable[[], bool], seconds: float = 240.0) -> None:
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            raise SystemExit("it took too long")
        time.sleep(0.1)


def full() -> bool:
    """True when others have all of the cluster."""
    nodes = json.loads(tradewind("top", "--json")).get("nodes", {}).values()
    return bool(nodes) and not any(node["free"].get("cpu") for node in nodes)


def arrive(number: int, cpus: int) -> tuple[float, float | None]:
    """Let B come; how long it waited, and the bound that was printed first."""
    name, printed, began = f"short{number}", None, time.time()
    submit(name, "B", 2.0, cpus, 1)
    while not marks(name):
        if printed is None:
            printed = json.loads(tradewind("top", "--json"))["tenants"].get("B", {}).get("within")
        if time.time() - began > 240.0:
            raise SystemExit("B has no place after four minutes")
        time.sleep(0.1)
    row = next(row for row in json.loads(tradewind("queue", "--all", "--json")) if row["name"] == name)
    waited = float(marks(name)[0][1]) - row["submitted"]
    wait(lambda: name not in tradewind("queue"))
    return waited, printed


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--arrivals", type=int, default=12)
    parser.add_argument("--within", default="15s")
    args = parser.parse_args()
    (WORK / "program.py").write_text(PROGRAM)
    print(tradewind("tenant", "set", "B", "--preempt", f"within={args.within},exempt=5s,pays=owner"), end="")
    home = {**os.environ, "TRADEWIND_HOME": str(WORK / "home")}
    with (
        (WORK / "cluster.log").open("w") as log,
        subprocess.Popen([TRADEWIND, "cluster", "start", "--limit", "cpu=2"], env=home, stdout=log, stderr=log) as it,
    ):
        try:
            for tenant in ("A", "C"):
                submit(f"long{tenant}", tenant, 7200.0, 1, 4)
            wait(lambda: bool(marks("longA") and marks("longC")))
            chance = random.Random(1)
            for number in range(args.arrivals):
                wait(full)
                time.sleep(chance.uniform(6.0, 10.0))
                cpus = 1 + number % 2
                waited, printed = arrive(number, cpus)
                bound = "none" if printed is None else f"{printed:.1f}"
                print(f"{number}: {cpus} CPU, waited {waited:.1f} s, printed bound {bound} s", flush=True)
            lost = 0.0
            for tenant in ("A", "C"):
                found = marks(f"long{tenant}")
                stopped = [int(mark[3]) for mark in found if mark[0] == "stopped"]
                again = [int(mark[3]) for mark in found if mark[0] == "begin"][1:]
                lost += sum(a - b for a, b in zip(stopped, again, strict=False)) / 10.0
                print(f"{tenant}: stopped {len(stopped)} times")
            print(f"work lost: {lost:.1f} s")
            for row in json.loads(tradewind("tenant", "list", "--json")):
                print(row["tenant"], f"{row['taken']} of its runs taken, pays {100 * row['dollars']:.4f} cents")
            for number in (1, 2):
                tradewind("cancel", str(number))
            wait(lambda: "No search" in tradewind("queue"))
        finally:
            it.terminate()
            it.wait(60)
            shutil.rmtree(WORK, ignore_errors=True)


main()
