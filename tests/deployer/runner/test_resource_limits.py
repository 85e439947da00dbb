"""What a run may use, and what this machine has for it, mean the same to all runners."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.deployer.helpers import OFFER, request_for

from tradewind.deployer.runner.resource_limits import cpus_here, cpus_of, fits_here, memory_here, memory_of
from tradewind.problem import Limits


def test_a_limit_comes_before_the_offer(tmp_path: Path) -> None:
    request = replace(request_for(tmp_path, ("true",)), offer=replace(OFFER, vcpu=2.0, memory_gib=1.5), limits=Limits())
    assert (cpus_of(request), memory_of(request)) == (2.0, 1.5 * 2**30)
    limited = replace(request, limits=Limits(cpus=0.5, memory_bytes=100))
    assert (cpus_of(limited), memory_of(limited)) == (0.5, 100)


def test_what_neither_says_is_no_limit(tmp_path: Path) -> None:
    request = replace(request_for(tmp_path, ("true",)), offer=replace(OFFER, vcpu=0.0, memory_gib=0.0), limits=Limits())
    assert (cpus_of(request), memory_of(request)) == (None, None)


def test_this_machine_has_what_it_has() -> None:
    assert cpus_here() == len(os.sched_getaffinity(0))
    assert memory_here() == pytest.approx(psutil.virtual_memory().total, rel=0.01)


def test_runs_fit_until_the_machine_is_full() -> None:
    cpus, gib = cpus_here(), memory_here() / 2**30
    half, whole = replace(OFFER, vcpu=cpus / 2, memory_gib=0.1), replace(OFFER, vcpu=cpus, memory_gib=0.1)
    assert fits_here(half, [half])
    assert not fits_here(half, [half, half])
    assert not fits_here(replace(half, nodes=2), [half])
    large = replace(OFFER, vcpu=0.0, memory_gib=gib * 0.6)
    assert not fits_here(large, [large])
    assert fits_here(replace(whole, vcpu=cpus + 1.0), []), "a run alone always fits"
