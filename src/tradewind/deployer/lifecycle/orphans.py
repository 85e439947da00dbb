"""Ends and gives back what carries our tag and belongs to no run that the store has as open."""

from __future__ import annotations

import time
from collections.abc import Set
from typing import TYPE_CHECKING

from tradewind.deployer.provisioner.base import ClusterState
from tradewind.deployer.runner.base import Runner
from tradewind.errors import TeardownError, TradewindError
from tradewind.problem import Handle

if TYPE_CHECKING:
    from tradewind.deployer.lifecycle.run_context import RunContext

_PATIENCE_SECONDS = 30.0
_GLANCE_SECONDS = 0.05


def destroy_orphans(context: RunContext, owner: str, known: Set[str]) -> list[str]:
    """End and destroy everything with an owner's tag that belongs to no run that is known.

    Args:
        context: Who makes machines, and who runs on them.
        owner: The tag.
        known: The ids of the runs that are somebody's.

    Returns:
        What was done, in words, for the log.

    Raises:
        TeardownError: Something cannot be given back.
    """
    runner, provisioner = context.runner, context.provisioner
    words = []
    problems: list[TradewindError] = []  # what cannot be given back does not keep the rest
    orphans = [handle for handle in runner.find(owner) if handle.run_id not in known]
    try:
        # Asked after the runner: what has a job by now has its machines in the list, or they are gone.
        clusters = [cluster for cluster in provisioner.find(owner) if cluster.run_id not in known]
        own = {cluster.run_id for cluster in clusters} if context.own else None
    except TradewindError as error:
        problems.append(error)
        clusters, own = [], None
    for handle in orphans:
        try:
            if own is not None and handle.run_id not in own:
                words.append(f"forgot run {handle.run_id}, whose machines are gone")
            elif end_orphan(runner, handle):
                words.append(f"ended run {handle.run_id}, which nobody waited for")
            runner.forget(handle)
        except TradewindError as error:
            problems.append(error)
    for cluster in clusters:
        try:
            gone = provisioner.destroy(cluster).state is ClusterState.GONE
            words.append(f"{'gave' if gone else 'is giving'} back the machines of run {cluster.run_id}")
        except TradewindError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    return words


def end_orphan(runner: Runner, handle: Handle) -> bool:
    """End a job that no row knows with all its processes, and wait until it has ended.

    Args:
        runner: Who runs it.
        handle: The job.

    Returns:
        False when it had ended already.

    Raises:
        TeardownError: It is still there after a while.
    """
    if runner.poll([handle])[handle.run_id].state.ended:
        return False
    until = time.monotonic() + _PATIENCE_SECONDS
    runner.cancel(handle)
    while not runner.poll([handle])[handle.run_id].state.ended:
        if time.monotonic() > until:
            raise TeardownError(f"run {handle.run_id}, which nobody waits for, does not end")
        runner.wait([handle], _GLANCE_SECONDS)
    return True
