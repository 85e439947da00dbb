"""The nodes of a Slurm cluster, as ``sinfo`` prints them."""

from __future__ import annotations

from tradewind.deployer.runner.slurm.runner import read_nodes

SINFO = """\
n1|4|8192|(null)|idle
n2|64|524288|gpu:a100:4(S:0-1),gpu:t4:2|mixed
n3|4|8192|(null)|down*
n4|4|8192|(null)|drained
n5|8|16384|gpu:1|allocated+
n6|8|16384|(null)|idle*
n7|8|16384|(null)|idle~
n8|4|8192|(null)|planned
n9|4|8192|(null)|mixed-
"""


def test_nodes_that_take_work_with_what_they_have() -> None:
    assert read_nodes(SINFO) == {
        "n1": {"cpu": 4.0, "memory": 8.0},
        "n2": {"cpu": 64.0, "memory": 512.0, "gpu": 6.0},
        "n5": {"cpu": 8.0, "memory": 16.0, "gpu": 1.0},
        "n8": {"cpu": 4.0, "memory": 8.0},
        "n9": {"cpu": 4.0, "memory": 8.0},
    }
    assert read_nodes("") == {}
