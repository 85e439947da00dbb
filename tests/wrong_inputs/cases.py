"""All wrong inputs, by group; docs/reference/wrong-inputs.md is written from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.wrong_inputs.other_cases import COMMANDS, DATA, PROGRAMS, STORES
from tests.wrong_inputs.table import Case
from tests.wrong_inputs.workflow_cases import ADVICE
from tests.wrong_inputs.workflow_file_cases import FILES
from tests.wrong_inputs.workflow_learn_cases import LEARNING
from tests.wrong_inputs.workflow_run_cases import RUNS
from tests.wrong_inputs.yaml_cases import YAML

GROUPS: Mapping[str, Sequence[Case]] = {
    "The job YAML": YAML,
    "The command line": COMMANDS,
    "Prices, recorded runs and records": DATA,
    "Programs and their output": PROGRAMS,
    "Stores, disks and packages": STORES,
    "Workflows, machines and plans": FILES,
    "Machines for a workflow": ADVICE,
    "Learning where tasks go": LEARNING,
    "Carrying out a plan": RUNS,
}

CASES = [case for cases in GROUPS.values() for case in cases]
