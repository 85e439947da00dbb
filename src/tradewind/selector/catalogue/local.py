"""The catalogue of this machine."""

from __future__ import annotations

import math
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from tradewind import plugins
from tradewind.problem import Offer, round_money
from tradewind.selector.canonical_words import canonical_arch
from tradewind.selector.catalogue.base import Catalogue
from tradewind.selector.disk_sizes import disk_facts
from tradewind.utils.machine.gpus import Gpu, gpus_here

_GIB = 1 << 30
_RATIOS = (("c", "compute", 1), ("g", "general", 2), ("m", "memory", 4))
"""Letter, category and GiB per vCPU."""

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_CGROUP_QUOTAS = (
    (Path("/sys/fs/cgroup/cpu.max"),),
    (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")),
)
"""Files with the CPU time that a container may use, and its period: one of cgroup version 2, two of version 1."""


class LocalSettings(plugins.Settings):
    """Settings of the local catalogue; its prices are stand-ins, to be set to what an hour costs you."""

    price_per_vcpu: float = Field(default=0.04, gt=0, description="USD per vCPU and hour, a stand-in price.")
    price_per_gib: float = Field(default=0.005, ge=0, description="USD per GiB and hour, a stand-in price.")
    price_per_gpu: float = Field(default=2.0, ge=0, description="USD per GPU and hour, a stand-in price.")
    vcpu: int | None = Field(
        default=None, ge=1, description="CPUs to sell; those this process or its container may use when not set."
    )
    memory_gib: float | None = Field(default=None, gt=0, description="GiB to sell; the machine's when not set.")


class LocalCatalogue(Catalogue):
    """Sells slices of this machine, at stand-in prices that the user can change.

    CPU counts double from 1 to the machine's own; each comes with 1, 2 and 4 GiB per vCPU, as far as the memory
    goes: ``local.c2`` has 2 vCPU and 2 GiB, ``local.m2`` 2 vCPU and 8 GiB. Where the machine has GPUs, each
    slice is sold with 1, 2, 4, ... of them as well: ``local.c2-gpu1``.
    """

    provider: ClassVar[str] = "local"
    Settings = LocalSettings
    settings: LocalSettings

    def offers(self) -> Sequence[Offer]:
        """List the slices that fit on this machine; the smallest is always there, and those with GPUs come last."""
        cpus = self.settings.vcpu or available_cpus()
        memory = self.settings.memory_gib or available_memory() / _GIB
        disk = disk_facts(self._disk())
        fitting = [
            self._offer(letter, category, count, float(count * ratio), disk)
            for count in _counts(cpus)
            for letter, category, ratio in _RATIOS
            if count * ratio <= memory
        ]
        slices = fitting or [self._offer("c", "compute", 1, round(memory, 3), disk)]
        gpus = gpus_here()
        return [*slices, *(self._with_gpus(each, gpus, count) for count in _counts(len(gpus)) for each in slices)]

    def _with_gpus(self, offer: Offer, gpus: Sequence[Gpu], count: int) -> Offer:
        facts = {**offer.facts, "accelerator": gpus[0].name}
        price = round_money(offer.price_per_hour + count * self.settings.price_per_gpu)
        name = f"{offer.instance_type}-gpu{count}"
        return replace(offer, instance_type=name, price_per_hour=price, category="accelerated", gpus=count, facts=facts)

    def _disk(self) -> float | None:
        """Bytes of the file system that runs keep their files on; what is free of it changes all the time."""
        folder = self.data_folder.absolute()
        there = next(each for each in (folder, *folder.parents) if each.is_dir() or each == each.parent)
        try:
            return float(shutil.disk_usage(there).total)
        except OSError:
            return None

    def _offer(self, letter: str, category: str, count: int, memory: float, facts: Mapping[str, float | str]) -> Offer:
        return Offer(
            provider=self.provider,
            instance_type=f"local.{letter}{count}",
            vcpu=float(count),
            memory_gib=memory,
            price_per_hour=round_money(count * self.settings.price_per_vcpu + memory * self.settings.price_per_gib),
            category=category,
            family=f"local.{letter}",
            arch=canonical_arch(platform.machine()),
            source="stand-in price from the settings of the local catalogue",
            facts=facts,
        )


def _counts(cpus: int) -> list[int]:
    """1, 2, 4, ... and the machine's own count; nothing where that is 0."""
    return sorted({1 << power for power in range(cpus.bit_length())} | ({cpus} - {0}))


def available_cpus() -> int:
    """Count the CPUs that this process may run on, within the CPU quota of its container: at least 1."""
    counts = [len(os.sched_getaffinity(0))]
    for paths in _CGROUP_QUOTAS:
        try:
            words = [word for path in paths for word in path.read_text().split()]
        except OSError:
            continue
        if len(words) == 2 and all(word.isdigit() and int(word) > 0 for word in words):  # "max" or -1: no quota
            counts.append(math.ceil(int(words[0]) / int(words[1])))
    return min(counts)


def available_memory() -> int:
    """Bytes of memory of this machine, or of the container that this process is in."""
    import psutil

    limits = [int(psutil.virtual_memory().total)]
    for path in _CGROUP_LIMITS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) > 0:
            limits.append(int(text))
    return min(limits)
