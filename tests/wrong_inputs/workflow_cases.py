"""Wrong inputs of ``tradewind workflow``."""

from __future__ import annotations

from collections.abc import Sequence

from tests.wrong_inputs.table import Case

FLOW = """\
name: pair
tasks:
  a: {command: [sh, -c, "true"], runtime: 60}
  b: {command: [sh, -c, "true"], runtime: 60, after: [a]}
"""
"""A workflow that is right."""

ONE = ("--type", "c7i.large")


def _advise(id_: str, did: str, code: int, says: str, *words: str, **more: str) -> Case:
    files: dict[str, str | bytes] = {"flow.yaml": FLOW, **more}
    return Case(f"advise-{id_}", f"advise: {did}", code, says, ("workflow", "advise", "flow.yaml", *words), files)


ADVICE: Sequence[Case] = [
    _advise(
        "deadline",
        "a deadline that no machines can keep",
        6,
        "no set of up to 16 VMs can end within 30.0 s (the quickest found is 1 x c7i.large: 3m 00s, 0.446¢)",
        *ONE,
        "--deadline",
        "30s",
    ),
    _advise(
        "budget",
        "a budget that does not pay one execution",
        6,
        "no set of up to 16 VMs can end within 10m 00s and for at most 0.01¢ (the quickest found is 1 x c7i.large: "
        "3m 00s, 0.446¢)",
        *ONE,
        "--deadline",
        "10m",
        "--budget",
        "$0.0001",
    ),
    _advise(
        "time",
        "a deadline that is no time",
        3,
        "'soon' is not a duration (write 90s, 45m, 2h30m or a number of seconds)",
        "--deadline",
        "soon",
    ),
    _advise(
        "nothing", "a deadline of nothing", 3, "--deadline '0s' leaves nothing (it is above 0)", "--deadline", "0s"
    ),
    _advise(
        "money",
        "a budget that is no money",
        3,
        "'much' is not an amount of money (write $2.50 or 2.5)",
        "--budget",
        "much",
    ),
    _advise(
        "speed",
        "a speed without a factor",
        3,
        "--speed 'c7i' is not understood (write --speed c7i=1.3, a factor above 0)",
        "--speed",
        "c7i",
    ),
    _advise(
        "fact",
        "a speed in a price list that is no number",
        3,
        "the speed of x is 'fast' (it is a number above 0)",
        "--csv",
        "prices.csv",
        **{"prices.csv": "API Name,Provider,CPU,Memory,Category,Price,Speed\nx,here,1,2,general,0.1,fast\n"},
    ),
    _advise(
        "storage",
        "a storage that is none",
        2,
        "Invalid value for '--storage': 'nfs' is not one of 'none', 'shared', 'local' "
        "(tradewind workflow advise --help shows what there is)",
        "--storage",
        "nfs",
    ),
    _advise(
        "planner",
        "a misspelt planner",
        13,
        "there is no planner named 'hefd' (did you mean 'heft'?)",
        "--planner",
        "hefd",
    ),
    _advise(
        "mix",
        "sets of no type of machines",
        2,
        "Invalid value for '--mix': Input should be greater than or equal to 1 "
        "(tradewind workflow advise --help shows what there is)",
        "--mix",
        "0",
    ),
    _advise(
        "mix-many",
        "sets of more types than can be searched",
        2,
        "Invalid value for '--mix': Input should be less than or equal to 4 "
        "(tradewind workflow advise --help shows what there is)",
        "--mix",
        "5",
    ),
    _advise(
        "searcher",
        "a misspelt searcher of machines",
        13,
        "there is no searcher named 'randm' (did you mean 'random'?)",
        "--searcher",
        "randm",
    ),
    _advise(
        "type",
        "machines that nobody sells",
        4,
        "no offer is within the query (nobody sells types 'c99.large'; there is …)",
        "--type",
        "c99.large",
    ),
    _advise(
        "wide",
        "a task that is larger than any machine",
        4,
        "no offer has room for task 'a', which takes 5,000 cores (allow larger types, or give --slots)",
        **{"flow.yaml": "tasks:\n  a: {command: [sh, -c, 'true'], runtime: 60, cores: 5000}\n"},
    ),
    _advise(
        "out",
        "a plan into a folder that is not there",
        3,
        "--out no/plan.json: there is no folder no (make it, or name another file)",
        "--out",
        "no/plan.json",
    ),
]
