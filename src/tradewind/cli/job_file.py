"""``tradewind init``: a commented job.yaml to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

STARTER = """\
# yaml-language-server: $schema=@SCHEMA@
#
# A job for Tradewind. It runs as it is: tradewind tune job.yaml
# Lines that start with "# " and a key show what else can be written there, with the value that holds without it.

# Studies and history are found by this name.
name: compress

# ---------------------------------------------------------------- the program
job:
  # One line, or a list of words. {{ ... }} is filled in for each trial: the parameters below, instance
  # ({{ instance.vcpu }}, .memory, .price, .type, ...), nodes and fraction. No shell sees it.
  command:
    - python3
    - -c
    - |
      import json, multiprocessing, os, random, sys, zlib
      level, workers = int(sys.argv[1]), int(sys.argv[2])
      words = random.Random(1).choices(["wind", "trade", "sail", "harbour", "cargo", "tide"], k=100_000)
      blocks = [" ".join(words).encode()] * 16
      with multiprocessing.Pool(workers) as pool:
          packed = sum(pool.starmap(len, [(b,) for b in pool.starmap(zlib.compress, [(b, level) for b in blocks])]))
      with open(os.environ["TRADEWIND_METRICS"], "a") as metrics:
          print(json.dumps({"ratio": sum(map(len, blocks)) / packed}), file=metrics)
    - "{{ level }}"
    - "{{ workers }}"
  # workflow: montage.xml         # instead of a command: each trial plans this workflow and runs it as a whole
  # workdir: .                    # the folder it starts in, seen from this file
  # env: {OMP_NUM_THREADS: "{{ workers }}"}
  # secrets: {TOKEN: "env:MY_TOKEN"}   # or file:PATH; the value is never stored
  # inputs: [data/input.csv]      # files and URLs to bring along, seen from workdir
  # outputs: ["*.csv"]            # files to keep, below the run's folder
  # image: python:3.12-slim       # for runners that use containers
  # parameters: {rows: 100000}    # what this job differs in from others of the same program
  # fraction: 1                   # share of the input that a full run takes

# ---------------------------------------------------------------- what may be chosen
space:
  # The machine: a question to the catalogue, or a list of instance types. "tradewind offers" shows them.
  # Keys: provider, region, types, category, family, arch, vcpu, memory, price, gpus, spot, limit.
  instance: {provider: local}
  # Settings of the program: a list of numbers (ordered), a list of words, or a range.
  level: 1..9                     # 1..64 log,  0.1..0.9  and  0..1 step 0.05  are ranges, too
  workers: [1, 2, 4]
  # codec: [gzip, bz2]
  # nodes: [1, 2, 4]              # the number of machines
  # block: {type: integer, low: 1, high: 900, step: 100, log: false}
  # window: {values: [15, 20], when: {codec: gzip}}     # exists only there

# What every combination keeps; facts of the machine are instance.vcpu, instance.memory, instance.price, ...
where:
  - workers <= max(1, instance.vcpu)

# Which offers may be used at all; the keys are those of "instance" above.
# offers: {provider: [aws, gcp], region: eu-west-1, spot: any, price: ..$2}
# catalogues: {local: {price_per_vcpu: 0.05}, csv: {path: prices.csv}}    # your own prices

# ---------------------------------------------------------------- what is wanted
# cost (USD, this run), runtime (s), or a metric that the interpreters read; minimise or maximise.
objective: {minimise: cost}

constraints:
  deadline: 60s                   # of one run: 90s, 45m, 2h30m
  metrics: {ratio: ">= 3"}        # or {at_least: 3, at_most: 9}

# What the search may spend in total; a limit that is left out does not apply.
budget:
  dollars: $0.50
  hours: 5m                       # on the wall clock: 2 (hours), 5m
  trials: 20

# ---------------------------------------------------------------- how it is run and searched
# deploy:
#   runner: process               # "tradewind plugins" lists what is installed
#   provisioner: none
#   billing: {setup: 0s, minimum: 0s, granularity: 1s}
#   retries: 2                    # of runs that the infrastructure failed
#   keep: 10m                     # machines wait so long for the next trial on the same offer; needs a provisioner
#   log_limit: 256MiB             # kept of stdout and of stderr, each: the beginning and the end
#   hooks: {after_executing: [./notify.sh], on_error: {python: "my_module:my_function", timeout: 10s}}

# select: exact                   # how a configuration becomes an offer
# interpret: [exit_code, {use: json_lines, optional: true}]    # how metrics are read, one after the other
# searcher: tradewind             # a part is written by its name, or {use: gp, ...} with its settings
# past: all                       # earlier studies to learn from: all, none, or job names: [compress, other]
# parallel: 1                     # trials at the same time
# seed: 0
# try_first: []                   # configurations that are tried before the searcher's: [{workers: 4}]
# baseline: {workers: 2}          # the configuration that you use today: tried first, and compared with
# stop: []                        # further reasons to stop
# early_stop: median             # give up running trials for what they report: median, successive_halving
# callbacks: []                   # where trials are written, too, while they run: mlflow, tensorboard
# abort: true                     # cut short runs that can no longer win
# future_runs: 100                # how often the job will run with what is found
# value: $2/h                     # what an hour of a run is worth; with minimise: runtime
# least_improvement: 1%           # the search ends where no trial is expected to improve the best by this
"""


def schema(
    out: Annotated[Path | None, typer.Option("--out", help="Write it to this file instead of printing it.")] = None,
    built_in: Annotated[bool, typer.Option("--built-in", help="Leave out parts of other packages.")] = False,
) -> None:
    """Print the JSON schema of the job YAML, for completion in editors."""
    from tradewind.problem.job_spec.json_schema import json_schema

    text = schema_text(json_schema(built_in_only=built_in))
    if out is None:
        typer.echo(text, nl=False)
        return
    write_file(out, text)
    typer.echo(f"wrote {out}")


def schema_text(document: dict[str, object]) -> str:
    """A schema as the text of a file."""
    import json

    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write_file(path: Path, text: str) -> None:
    """Write a file and the folders above it.

    Raises:
        InputError: It cannot be written.
    """
    from tradewind.errors import InputError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot write {path}: {reason}", hint="choose another place") from None


SCHEMA_FILE = ".tradewind/job.schema.json"
"""Where the schema is put, seen from the job YAML: completion then works without a network."""


def init(
    path: Annotated[Path, typer.Argument(help="The file to write, or a folder for it.")] = Path("job.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented job.yaml that runs as it is, and the schema that editors complete it with."""
    from tradewind.errors import InputError
    from tradewind.problem.job_spec.json_schema import json_schema

    target = path / "job.yaml" if path.is_dir() else path
    if target.exists() and not force:
        raise InputError(f"{target} is there already", hint="--force replaces it")
    write_file(target.parent / SCHEMA_FILE, schema_text(json_schema()))
    write_file(target, STARTER.replace("@SCHEMA@", SCHEMA_FILE))
    typer.echo(f"wrote {target}; try it with: tradewind tune {target}")
