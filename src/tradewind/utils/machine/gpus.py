"""The GPUs of this machine, as the tools of their makers tell them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_SECONDS = 20.0
"""How long a maker's tool may take: the first call after a start of the machine loads the driver."""
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits")
_ROCM = ("rocm-smi", "--showproductname", "--showuniqueid", "--showmeminfo", "vram", "--json")
VARIABLES: Mapping[str, Mapping[str, Literal["number", "place"]]] = {
    "nvidia": {"CUDA_VISIBLE_DEVICES": "number"},
    "amd": {"ROCR_VISIBLE_DEVICES": "number", "HIP_VISIBLE_DEVICES": "place"},
}
"""By maker, the variables that show a program some devices only: by their numbers, or by their places among those.

HIP counts among the devices that ROCr shows, so its numbers begin at 0 again.
"""
CONSTANTS: Mapping[str, Mapping[str, str]] = {"nvidia": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "amd": {}}
"""Further variables: CUDA counts by speed unless it is told to count as ``nvidia-smi`` does."""
DRIVER = Path("/proc/driver/nvidia/gpus")
"""Where NVIDIA's driver lists its devices, which needs no tool."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of this machine.

    Attributes:
        index: Its number, as its maker's tool counts: in the order of the PCI bus.
        name: Its model.
        uuid: Its id, or empty.
        memory_gib: Its memory in GiB; 0 where nobody says.
        maker: ``nvidia`` or ``amd``.
    """

    index: int
    name: str
    uuid: str = ""
    memory_gib: float = 0.0
    maker: Literal["nvidia", "amd"] = "nvidia"


def gpus_here() -> tuple[Gpu, ...]:
    """The GPUs that this process may use: those of the machine that its own environment does not hide.

    NVIDIA's are looked for first, and AMD's where there are none.
    """
    return _shown(_found(os.environ.get("PATH", os.defpath)))[0]


def why_none() -> str:
    """The reason why this process may use no GPU although the machine has some, in words; empty without a reason."""
    found = _found(os.environ.get("PATH", os.defpath))
    shown, name = _shown(found)
    if not found or shown:
        return ""
    value = os.environ[name]
    words = f"{name}={value!r} hides {describe_gpus(found)}"
    if value.strip().startswith("MIG-"):
        words += " (parts of a GPU by MIG are not known)"
    return words


def _shown(found: Sequence[Gpu]) -> tuple[tuple[Gpu, ...], str]:
    """The GPUs that the variables of their driver show, and the variable that hides the last of them; empty if none."""
    shown = tuple(found)
    for name, counts in VARIABLES[found[0].maker].items() if found else ():
        if shown and (named := os.environ.get(name)) is not None:
            shown = _visible(shown, named, by_place=counts == "place")
            if not shown:
                return (), name
    return shown, ""


@functools.lru_cache(maxsize=8)
def _found(path: str) -> tuple[Gpu, ...]:
    """Ask once for each search path: a tool takes up to seconds, and devices do not come and go."""
    return tuple(_nvidia(path) or _amd(path))


def _visible(found: Sequence[Gpu], named: str, *, by_place: bool) -> tuple[Gpu, ...]:
    """GPUs that a variable names, by number, by the beginning of their id, or by their place among those there are.

    As for the driver, the first word that names none ends the list.
    """
    seen: list[Gpu] = []
    for word in (each.strip() for each in named.split(",")):
        those = [gpu for place, gpu in enumerate(found) if _is_named(gpu, word, place if by_place else gpu.index)]
        if not those:
            break
        seen += those
    return tuple(gpu for gpu in found if gpu in seen)


def _is_named(gpu: Gpu, word: str, number: int) -> bool:
    return word == str(number) or (word != "" and not word.isdigit() and gpu.uuid.startswith(word))


def _output(argv: Sequence[str], path: str) -> str:
    """The output of a tool; empty where it is not there or fails, as it does without a driver."""
    program = shutil.which(argv[0], path=path)
    if program is None:
        return ""
    try:
        return subprocess.run([program, *argv[1:]], capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""


def _nvidia(path: str) -> list[Gpu]:
    found: list[Gpu] = []
    for line in _output(_QUERY, path).splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4 and cells[0].isdigit():
            mib = float(cells[3]) if cells[3].replace(".", "", 1).isdigit() else 0.0
            found.append(Gpu(int(cells[0]), cells[2], cells[1], round(mib / 1024, 1)))
    return found or _driver_list()


def _driver_list() -> list[Gpu]:
    """NVIDIA's devices as the driver lists them, for machines and containers without its tool."""
    found: list[Gpu] = []
    for place in sorted(DRIVER.glob("*/information")):
        try:
            lines = place.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        found.append(Gpu(len(found), facts.get("Model", "NVIDIA GPU"), facts.get("GPU UUID", "")))
    return found


def _amd(path: str) -> list[Gpu]:
    try:
        document: Any = json.loads(_output(_ROCM, path) or "{}")
    except ValueError:
        return []
    found: list[Gpu] = []
    for card, facts in sorted(document.items() if isinstance(document, dict) else ()):
        number = str(card).removeprefix("card")
        if not number.isdigit() or not isinstance(facts, dict):
            continue
        name = facts.get("Card Series") or facts.get("Card series") or facts.get("Device Name") or "AMD GPU"
        memory = str(facts.get("VRAM Total Memory (B)", ""))
        gib = round(int(memory) / 2**30, 1) if memory.isdigit() else 0.0
        found.append(Gpu(int(number), str(name), str(facts.get("Unique ID", "")), gib, "amd"))
    return sorted(found, key=lambda gpu: gpu.index)


def describe_gpus(gpus: Sequence[Gpu]) -> str:
    """GPUs in words: ``2 × NVIDIA H100 80GB HBM3 (80 GiB)``; ``none`` without any."""
    kinds: dict[str, int] = {}
    for gpu in gpus:
        words = f"{gpu.name} ({gpu.memory_gib:g} GiB)" if gpu.memory_gib else gpu.name
        kinds[words] = kinds.get(words, 0) + 1
    return ", ".join(f"{number} × {words}" for words, number in kinds.items()) or "none"
