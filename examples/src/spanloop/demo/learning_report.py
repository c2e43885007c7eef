"""Report of the learning demo. Every figure is read from the store, none is remembered from the run."""

import json
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape

from spanloop.cli.console import out, print_table
from spanloop.cli.learning.promotion import print_decision

from .tiny_checks import CheckResult, count_exact_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spanloop.evaluation.results import Comparison, Evaluation, Interval
    from spanloop.foundation.paths import DataDir
    from spanloop.store import Store
    from spanloop.training.loop.rounds import LoopRound

MIN_GAIN: Final = 0.20
"""Required rise of the success rate on the test tasks."""
LOGPROB_TOLERANCE: Final = 0.05
"""Largest mean absolute difference of the trainer's and the captured logprobs, in nats: both engines compute in
bfloat16, whose eight bits of mantissa give a logit of 20 a rounding error of up to 0.06."""
_GAP_METRIC: Final = "rollout_corr/logprob_abs_diff_mean"
_ROW_START_TEXTS: Final = {
    "retokenised": "the tokenizer encodes a sampled word with other tokens in the next prompt",
    "template_changed": "the chat template rendered an earlier turn differently",
    "branch": "the agent returned to an earlier point",
    "history_edited": "the agent edited the history",
    "context_truncated": "the history was truncated",
    "prompt_diverged": "the next prompt does not continue the last one",
    "no_tokens": "the previous step was not captured",
}
_SHOWN_EPISODES: Final = 3
_MAX_LINE_CHARACTERS: Final = 160


def report(data_dir: "DataDir", rounds: "Sequence[LoopRound]") -> bool:
    """Print the result of the rounds from what they stored; return whether every claim holds."""
    from spanloop.evaluation.results import compare, load_evaluation
    from spanloop.store import connect

    ids = evaluation_ids(rounds)
    model, first = rounds[0].model, next(iter(ids))
    champion = next((each.candidate for each in reversed(rounds) if each.outcome == "promoted"), first)
    with connect(data_dir) as store:
        evaluations = [load_evaluation(store, evaluation_id) for evaluation_id in ids.values()]
        change = compare(store, ids[first], ids[champion])
        _print_evaluations(store, data_dir, evaluations)
        _print_decisions(data_dir, model)
        _print_change(change)
        _print_episodes(store, change)
        _print_totals(store)
        results = [_check_gain(change), *_check_logprobs(store, data_dir, list(ids)), _check_token_rows(store)]
    out.print()
    for result in results:
        mark = "[green]✓[/green]" if result.ok else "[red]✗[/red]"
        out.print(f"{mark} {escape(result.claim)}: [dim]{escape(result.observed)}[/dim]")
    return all(result.ok for result in results)


def evaluation_ids(rounds: "Sequence[LoopRound]") -> dict[str, str]:
    """Return the evaluation of each version of a loop, the base first."""
    from spanloop.training.loop.rounds import StepName

    ids: dict[str, str] = {}
    for number in rounds:
        for name, version in ((StepName.MEASURE, number.champion), (StepName.TEST, number.candidate)):
            result = number.step(name).result
            if result is not None:
                ids.setdefault(version, str(result["evaluation"]))
    return ids


def _percent(interval: "Interval", form: str = ".0f") -> str:
    return interval.text(form, scale=100, unit=" %")


def _print_evaluations(store: "Store", data_dir: "DataDir", evaluations: "list[Evaluation]") -> None:
    from spanloop.evaluation.results import load_episodes
    from spanloop.training.models.registry import Registry
    from spanloop.training.run.job_api import JobApi

    registry, jobs = Registry(data_dir), JobApi(data_dir)
    tools: list[str] = sorted(
        {_tool(id_) for id_ in load_episodes(store, evaluations[0])["task_id"].unique().to_list()}
    )
    rows: list[tuple[str, ...]] = []
    for each in evaluations:
        version = registry.get(each.model)
        made_by = "as it came" if version.job_id is None else str(jobs.get(version.job_id).spec.kind).upper()
        episodes = load_episodes(store, each).to_dicts()
        successes = {
            tool: [row["is_success"] for row in episodes if not row["left_out"] and _tool(row["task_id"]) == tool]
            for tool in tools
        }
        rates = (f"{sum(successes[tool]) / len(successes[tool]):.0%}" if successes[tool] else "" for tool in tools)
        rows.append((each.model, made_by, str(each.tasks), _percent(each.success), f"{each.reward.value:.2f}", *rates))
    out.print("\n[bold]Success on the test tasks[/bold] [dim](mean and 95 % bootstrap interval; by tool)[/dim]")
    titles = ("version", "made by", "tasks", "success", "reward", *tools)
    print_table(titles, rows, numbers=("tasks", "success", "reward", *tools))


def _print_decisions(data_dir: "DataDir", model: str) -> None:
    from spanloop.training.promotion.decisions import Decisions

    out.print("\n[bold]Decisions[/bold] [dim](of the promotion rule, in order)[/dim]")
    for decision in reversed(Decisions(data_dir).list(model)):
        out.print(f"[dim]{decision.decided_at:%H:%M} UTC[/dim]")
        print_decision(decision)


def _tool(task_id: str) -> str:
    return task_id.split("/")[1]


def _print_change(change: "Comparison") -> None:
    before, after = change.before.model, change.after.model
    working = [each for each in change.tools if any(use.calls > use.failed_calls for use in (each.before, each.after))]
    failing = [each for each in change.tools if each not in working]
    rows = [
        (each.tool, each.before.calls, each.before.failed_calls, each.after.calls, each.after.failed_calls)
        for each in working
    ]
    if failing:
        old, new = (sum(each.before.calls for each in failing), sum(each.after.calls for each in failing))
        rows.append((f"{len(failing)} names that never worked", old, old, new, new))
    out.print("\n[bold]Tools[/bold] [dim](calls on the test tasks, and those that failed)[/dim]")
    numbers = (f"{before} calls", "failed", f"{after} calls", "failed ")
    print_table(("tool", *numbers), ((tool, *map(str, counts)) for tool, *counts in rows), numbers=numbers)
    out.print("\n[bold]Failures[/bold] [dim](test episodes with an unrecovered failure of the class)[/dim]")
    print_table(
        ("class", before, after),
        ((each.error_class, str(each.before.episodes), str(each.after.episodes)) for each in change.errors),
        numbers=(before, after),
    )


def _print_episodes(store: "Store", change: "Comparison") -> None:
    """Print episodes that failed before and succeed now, of different tools where possible."""
    pairs_by_tool: dict[str, list[Any]] = {}
    for pair in change.mended:
        pairs_by_tool.setdefault(_tool(pair.task_id), []).append(pair)
    chosen = [pairs[0] for pairs in pairs_by_tool.values()][:_SHOWN_EPISODES]
    chosen += [pair for pair in change.mended if pair not in chosen][: _SHOWN_EPISODES - len(chosen)]
    for pair in chosen:
        out.print(f"\n[bold]{escape(pair.task_id)}[/bold] [dim]failed before and succeeds now[/dim]")
        for version, episode_id in (
            (change.before.model, pair.before_episode_id),
            (change.after.model, pair.after_episode_id),
        ):
            out.print(f"  [dim]{escape(version)}  {episode_id}[/dim]")
            for line in _conversation(store, episode_id):
                out.print(f"    {escape(line[:_MAX_LINE_CHARACTERS])}")


def _conversation(store: "Store", episode_id: str) -> list[str]:
    lines: list[str] = []
    for step, state, action, results in store.query("demo_episode", episode_id=episode_id).iter_rows():
        if step == 0:
            lines.append(f"user       {_format_message(json.loads(state)[-1])}")
        lines.append(f"assistant  {_format_message(json.loads(action))}")
        lines += [f"{result['name']:9}  {_one_line(str(result['content']))}" for result in json.loads(results)]
    return lines


def _format_message(message: dict[str, Any]) -> str:
    parts: list[str] = []
    for part in message["parts"]:
        if part["type"] == "tool_call":
            parts.append(f"{part['name']}({json.dumps(part['arguments'])})")
        else:
            parts.append(_one_line(str(part.get("content", ""))))
    return " ".join(parts)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _print_totals(store: "Store") -> None:
    totals = store.query("demo_totals").to_dicts()[0]
    untrainable = store.query("demo_untrainable").rows()
    by_owner: dict[str, int] = {}
    for owner, _, failures, _ in store.query("demo_failures").iter_rows():
        by_owner[owner] = by_owner.get(owner, 0) + failures
    reasons = ", ".join(f"{reason} {count}" for reason, count in untrainable) or "none"
    out.print("\n[bold]Stored[/bold]")
    out.print(
        f"  {totals['spans']:,} spans, {totals['model_calls']:,} of them model calls; {totals['captures']:,} captures; "
        f"{totals['episodes']:,} episodes"
    )
    out.print(
        f"  {totals['transitions']:,} transitions, {totals['trainable']:,} trainable, the others by reason: {reasons}; "
        f"{totals['token_rows']:,} token rows"
    )
    out.print(
        "  failures by owner: " + (", ".join(f"{owner} {count:,}" for owner, count in by_owner.items()) or "none")
    )


def _check_gain(change: "Comparison") -> CheckResult:
    before, after = change.before.success, change.after.success
    ok = change.success.value >= MIN_GAIN and after.low > before.high
    observed = f"{_percent(before)} to {_percent(after)}, paired difference {_percent(change.success, '+.0f')}"
    return CheckResult(f"success rose by {MIN_GAIN:.0%} or more, intervals apart", ok, observed)


def _check_logprobs(store: "Store", data_dir: "DataDir", versions: "Sequence[str]") -> "Iterator[CheckResult]":
    """Compare logprobs at a policy gradient's first step, when the trainer still has the weights that sampled."""
    from spanloop.training.models.registry import Registry
    from spanloop.training.recipes.policy_gradient import PolicyGradient
    from spanloop.training.run.job_api import JobApi

    registry, jobs = Registry(data_dir), JobApi(data_dir)
    claim = f"the trainer's logprobs are those that the gateway captured, within {LOGPROB_TOLERANCE} nats"
    for version in versions:
        job_id = registry.get(version).job_id
        if job_id is None or not isinstance(jobs.get(job_id).spec.recipe, PolicyGradient):
            continue
        metrics = store.query("training_metrics", job_id=job_id)
        gaps = [value for step, name, value in metrics.iter_rows() if (step, name) == (1, _GAP_METRIC)]
        ok = bool(gaps) and 0 < gaps[0] <= LOGPROB_TOLERANCE
        observed = f"mean absolute difference {gaps[0]:.4f}" if gaps else f"no {_GAP_METRIC} at step 1"
        yield CheckResult(claim, ok, f"{version}: {observed}")


def _check_token_rows(store: "Store") -> CheckResult:
    """Check that rows hold the sampled tokens; count the rows that start within an episode by reason."""
    starts = {str(start): int(count) for start, count in store.query("demo_row_starts").iter_rows()}
    rows = store.query("demo_trajectories")
    exact, merged = count_exact_rows(store.query("demo_tokens"), rows)
    reasons = [
        f"{count} start within an episode: {_ROW_START_TEXTS.get(start, start)}"
        for start, count in starts.items()
        if start != "first"
    ]
    observed = f"{exact:,} of {rows.height:,} rows exact, {merged:,} merged from several steps"
    return CheckResult(
        "token rows train on the tokens that were sampled and nothing else",
        exact == rows.height and merged > 0,
        "; ".join([observed, *reasons]),
    )
