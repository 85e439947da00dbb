"""Plans that somebody has changed by hand: their order is kept, and their times are made to hold."""

from __future__ import annotations

from dataclasses import replace

from tradewind.errors import WorkflowError
from tradewind.workflow.files import Plan
from tradewind.workflow.plan import check


def timed(plan: Plan) -> tuple[Plan, str]:
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
        from tradewind.workflow.simulator.compiled import Compiled

        schedule = Compiled(plan.flow, plan.platform).follow(plan.schedule)
        return replace(plan, schedule=schedule), f"computed anew from its order: in the file {error.message}"
    return plan, ""
