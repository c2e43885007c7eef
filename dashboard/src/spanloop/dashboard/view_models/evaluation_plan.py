"""The plan of an evaluation, as a page shows it."""

import math

from spanloop.dashboard.view_models.formatting import duration
from spanloop.training.evaluations.plan import EvaluationPlan
from spanloop.training.spec.stored_spec import EvaluationSpec


def plan_rows(plan: EvaluationPlan, spec: EvaluationSpec) -> dict[str, str]:
    """Return names and texts about what an evaluation would do."""
    each = plan.tasks * plan.attempts
    new = [version for version in spec.versions if version not in plan.attempted]
    longest_s = len(new) * math.ceil(each / plan.parallel) * plan.timeout_s
    rows = {
        "versions": ", ".join(spec.versions),
        "tasks": f"{plan.tasks:,} from {plan.source}"
        + (f"; {plan.rejected:,} records are no task" if plan.rejected else ""),
        "attempts": f"{each:,} of each version, {plan.parallel} at a time",
        "agent": plan.agent,
        "graded by": plan.grader or "the agent itself",
        "takes at most": duration(int(longest_s * 1e9)) if new else "no attempt is missing",
    }
    if plan.attempted:
        rows["attempted already"] = f"{', '.join(plan.attempted)}: these attempts are evaluated again"
    rows["left out"] = "tasks that a version was trained on"
    return rows
