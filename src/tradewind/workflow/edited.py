"""Plans that are not carried out as they stand: changed by hand, or without the programs of their tasks."""

from __future__ import annotations

from dataclasses import replace

from tradewind.errors import WorkflowError
from tradewind.workflow.files import Plan
from tradewind.workflow.schedule import check


def with_feasible_times(plan: Plan) -> tuple[Plan, str]:
    """A plan whose times keep every rule.

    Args:
        plan: A plan; who edits one to change an order changes its starts, and seldom all times that follow from them.

    Returns:
        The plan, and what there is to say: where its own times break a rule, those of following its order are in their
        place; "" where they hold.

    Raises:
        WorkflowError: Its order contradicts the graph.
    """
    try:
        check(plan.flow, plan.platform, plan.schedule)
    except WorkflowError as error:
        from tradewind.workflow.simulator.compiled import CompiledSimulator

        schedule = CompiledSimulator(plan.flow, plan.platform).follow(plan.schedule)
        return replace(plan, schedule=schedule), f"computed anew from its order: in the file {error.message}"
    return plan, ""


def without_commands(plan: Plan) -> Plan:
    """The same plan, of tasks that have no command and only take their time.

    Args:
        plan: A plan; one of a workflow that ran elsewhere has the commands of there, whose programs and files are not
            here.
    """
    return replace(plan, flow=replace(plan.flow, tasks=tuple(replace(task, command=()) for task in plan.flow.tasks)))
