"""Measures how long a catalogue of 100,000 offers keeps people waiting.

    python benchmarks/offers/run.py [--rounds 5]

It makes a database of Spare Cores with on-demand and spot prices in two zones of each region, and prints the table of
the README beside it: processor time and memory of whole commands.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.selector.catalogue.others_lists import Price, Server, write_sparecores  # noqa: E402

PROGRAM = [sys.executable, "-m", "tradewind"]
VENDORS = {"aws": (20, 1250), "azure": (20, 950), "gcp": (20, 300)}
"""Regions and machine types of each vendor: each type has a price on demand and one on spot in each region."""
JOB = """\
name: offers
job: {{command: "true"}}
space: {{instance: {{provider: sparecores{bounds}}}{nodes}}}
catalogues: {{sparecores: {{path: {path}}}}}
budget: {{dollars: 1, trials: 1}}
"""
SPACES = (
    ("limit: 100", ", limit: 100", ""),
    ("vcpu: 8..32", ", vcpu: 8..32", ""),
    ("no bounds", "", ""),
    ("on demand and spot, 1, 2 or 4 nodes", ", spot: any", ", nodes: {type: nodes, values: [1, 2, 4]}"),
)
"""Name, bounds on the offers, and further parameters of each space."""
PROPOSE = """\
import sys
from pathlib import Path
from tradewind.cli.common import load_job
from tradewind.engine.search_builder import build_problem, build_searcher
from tradewind.searcher.base import SearchState

spec = load_job(Path(sys.argv[1]))
problem = build_problem(spec, Path("none"))
assert build_searcher(spec, problem).ask(SearchState(), 1)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each command is run")
    rounds = parser.parse_args().rounds
    # What pip installs is compiled; without this, a session that writes no .pyc files would compile in every round.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as place:
        path = write_database(Path(place, "offers.db"))
        listed = [*PROGRAM, "offers", "--provider", "sparecores", "--set", f"sparecores.path={path}", "--limit", "20"]
        rows = [
            ("`tradewind --help`", [*PROGRAM, "--help"]),
            ("`offers --limit 20`", listed),
            ("`offers --region aws-region-3 --vcpu 8`", [*listed, "--region", "aws-region-3", "--vcpu", "8"]),
            ("`offers --spot --max-price 0.2`", [*listed, "--spot", "--max-price", "0.2"]),
            ("`offers --arch arm64 --memory 16..`", [*listed, "--arch", "arm64", "--memory", "16.."]),
        ]
        for name, bounds, nodes in SPACES:
            job = Path(place, f"{len(rows)}.yaml")
            job.write_text(JOB.format(bounds=bounds, nodes=nodes, path=path))
            rows.append((f"first proposal, {name}", [sys.executable, "-c", PROPOSE, str(job)]))
        rows.append(("`tune --dry-run`, likewise", [*PROGRAM, "tune", "--dry-run", str(job)]))
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        print(f"{date.today()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, load {load}\n")
        print("| what | processor | memory |\n|---|---|---|")
        for name, command in rows:
            print(f"| {name} | " + " | ".join(measured(command, rounds)) + " |", flush=True)


def write_database(path: Path) -> Path:
    """Write a database with 100,000 offers: prices are the same in both zones on demand, and differ on spot."""
    rng = random.Random(1)
    servers: list[Server] = []
    prices: list[Price] = []
    for vendor, (regions, types) in VENDORS.items():
        for number in range(types):
            vcpu = rng.choice((1, 2, 4, 8, 16, 32, 64, 96))
            name, arch = f"{vendor}.t{number}", rng.choice(("X86_64", "ARM64"))
            mib = vcpu * rng.choice((2048, 4096, 8192))
            servers.append((vendor, name, name, f"f{number // 8}", vcpu, "DEDICATED", arch, mib, 0.0, None))
            for region in range(regions):
                prices += _prices(rng, vendor, f"{vendor}-r{region}", name, vcpu * 0.045 * rng.uniform(0.8, 1.3))
    places = [
        (vendor, f"{vendor}-r{region}", f"{vendor}-region-{region}", (f"{vendor}-r{region}a", f"{vendor}-r{region}b"))
        for vendor, (regions, _) in VENDORS.items()
        for region in range(regions)
    ]
    return write_sparecores(path, servers=servers, prices=prices, regions=places)


def _prices(rng: random.Random, vendor: str, region: str, name: str, usd: float) -> Iterator[Price]:
    for zone in "ab":
        yield vendor, region, region + zone, name, "ONDEMAND", "HOUR", usd, "USD"
        yield vendor, region, region + zone, name, "SPOT", "HOUR", usd * rng.uniform(0.2, 0.5), "USD"


def measured(command: Sequence[str], rounds: int) -> tuple[str, str]:
    """The median of a command's processor time, and the most memory that it had."""
    processors, memory = [], 0.0
    for _ in range(rounds):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        # A dry run says all it has to say before it refuses: the machines of others are not this one.
        if process.returncode and not (process.returncode == 3 and "--dry-run" in command):
            raise SystemExit(f"{' '.join(command)} ended with code {process.returncode}")
        processors.append(usage.ru_utime + usage.ru_stime)
        memory = max(memory, usage.ru_maxrss / 1024)
    return f"{statistics.median(processors):.2f} s", f"{memory:.0f} MB"


if __name__ == "__main__":
    main()
