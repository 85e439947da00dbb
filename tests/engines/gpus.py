"""Programs in the place of the tools by which makers of GPUs tell what is there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tradewind.utils.machine import gpus


def _program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "said").write_text(text)
    (folder / name).write_text(f'#!/bin/sh\ncat "{folder}/said"\n')
    (folder / name).chmod(0o755)


def have_nvidia(monkeypatch: pytest.MonkeyPatch, folder: Path, count: int = 2) -> None:
    """Let this machine have GPUs of NVIDIA; none with 0."""
    rows = [f"{index}, GPU-{index}a, NVIDIA H100 80GB HBM3, 81559\n" for index in range(count)]
    _use(monkeypatch, folder / "gpus", "nvidia-smi", "".join(rows))


def have_amd(monkeypatch: pytest.MonkeyPatch, folder: Path, count: int = 2) -> None:
    """Let this machine have GPUs of AMD."""
    facts = {"Card Series": "AMD Instinct MI300X", "VRAM Total Memory (B)": str(192 * 2**30), "Unique ID": "0x1"}
    document = {f"card{index}": facts for index in range(count)} | {"system": {"Driver version": "6.8"}}
    _use(monkeypatch, folder / "gpus", "rocm-smi", json.dumps(document))


def _use(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, text: str) -> None:
    _program(folder, name, text)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for variable in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(gpus, "DRIVER", folder / "driver")
    gpus._found.cache_clear()
