"""Wrong inputs of ``tradewind workflow learn``."""

# ruff: noqa: E501  (the lines are shown as they are printed)
from __future__ import annotations

from collections.abc import Sequence

from tests.wrong_inputs.table import Case
from tests.wrong_inputs.workflow_cases import FLOW

_VMS = "vms: [{kind: small, count: 2}]\n"
_HEAD = '{"format": "tradewind-learning-1", "method": "q_learning", "tasks": ["x"], "machines": [], "seed": 0, "settings": {}}'


def _learn(id_: str, did: str, code: int, says: str, *words: str, **more: str) -> Case:
    files: dict[str, str | bytes] = {"flow.yaml": FLOW, "vms.yaml": _VMS}
    files |= {name.replace("__", "/") + ".json": text for name, text in more.items()}
    return Case(
        f"learn-{id_}",
        did,
        code,
        says,
        ("workflow", "learn", "flow.yaml", "--vms", "vms.yaml", "--quiet", *words),
        files,
    )


LEARNING: Sequence[Case] = [
    Case(
        "learn-no-machines",
        "named no machines to learn for",
        2,
        "Missing option '--vms' (tradewind workflow learn --help shows what there is)",
        ("workflow", "learn", "flow.yaml"),
        {"flow.yaml": FLOW},
    ),
    _learn(
        "method",
        "a method that there is not",
        3,
        "--method sarsa: there is no such method (methods are adaptive, q_learning)",
        "--method",
        "sarsa",
    ),
    _learn(
        "setting",
        "a setting that the method has not",
        3,
        "method q_learning: unknown setting 'epsilon' (…)",
        "--method",
        "q_learning",
        "--set",
        "epsilon=0.1",
    ),
    _learn(
        "setting-form",
        "a setting of learning without a value",
        3,
        "--set 'explore' is not NAME=VALUE (write --set explore=0.1)",
        "--set",
        "explore",
    ),
    _learn(
        "noise",
        "a deviation below zero",
        3,
        "method adaptive: noise: Input should be greater than or equal to 0",
        "--noise",
        "-1",
    ),
    _learn(
        "period",
        "a period that is no time",
        3,
        "'soon' is not a duration (write 90s, 45m, 2h30m or a number of seconds)",
        "--drift",
        "0.1",
        "--period",
        "soon",
    ),
    _learn(
        "resume",
        "resumed without a folder",
        3,
        "--resume goes on with a folder, and there is none (name it with --out)",
        "--resume",
    ),
    _learn(
        "twice",
        "learned again into a folder that has something",
        3,
        "seen has what was learned before (--resume goes on with it)",
        "--out",
        "seen",
        seen__training=_HEAD,
    ),
    _learn(
        "other",
        "resumed with another method",
        3,
        "seen has what was learned by another method: q_learning, now adaptive (name another folder, or the same settings)",
        "--out",
        "seen",
        "--resume",
        seen__training=_HEAD,
    ),
    _learn(
        "other-flow",
        "resumed with another workflow",
        3,
        "seen has what was learned about other tasks: now without x and with a, b (name another folder, or the same settings)",
        "--method",
        "q_learning",
        "--out",
        "seen",
        "--resume",
        seen__training=_HEAD,
    ),
    _learn(
        "foreign",
        "a folder with other files in it",
        3,
        "seen has other files in it (name a new folder)",
        "--out",
        "seen",
        seen__notes="{}",
    ),
    _learn(
        "png",
        "a picture in a folder that is not there",
        3,
        "--png pictures/curve.png: there is no folder pictures (make it, or name another file)",
        "--png",
        "pictures/curve.png",
    ),
]
