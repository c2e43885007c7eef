"""What the demo that learns came to, read from the store: nothing here is remembered from the run."""

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.markup import escape

from spanloop.cli.console import out, print_table

from .evidence import exact_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanloop.datadir import DataDir
    from spanloop.store import Store
    from spanloop.training.evaluation import Comparison, Evaluation, Interval

LEAST_GAIN: Final = 0.20
"""Share of the test tasks by which success has to rise."""
LOGPROB_TOLERANCE: Final = 0.05
"""Mean absolute difference, in nats, up to which recomputed logprobs count as the captured ones: both engines compute
in bfloat16, whose eight bits of mantissa give a logit of 20 a rounding error of up to 0.06."""
_GAP_METRIC: Final = "rollout_corr/logprob_abs_diff_mean"
_ANEW: Final = {
    "retokenised": "the policy spelled a word with other tokens than its tokenizer, which wrote the next prompt",
    "template_changed": "the chat template wrote an earlier turn otherwise",
    "branch": "the agent went back to an earlier point",
    "history_edited": "the agent changed what had been said",
    "context_truncated": "the history was cut to fit",
    "prompt_diverged": "the next prompt does not continue the last one",
    "no_tokens": "the step before was not captured",
}
_SHOWN_EPISODES: Final = 3
_LONGEST_TEXT: Final = 160


class Verdict(NamedTuple):
    """One claim and what was seen."""

    claim: str
    ok: bool
    seen: str


def report(data_dir: "DataDir", model: str, versions: "Sequence[str]") -> bool:
    """Print the result; True when every claim holds.

    Args:
        data_dir: Of the running spanloop.
        model: Name under which the evaluations are stored.
        versions: ``name@version``, in the order in which they were made.
    """
    from spanloop.store import connect
    from spanloop.training.evaluation import compare, load_evaluation

    with connect(data_dir) as store:
        found = [load_evaluation(store, f"{model}:{version}") for version in versions]
        change = compare(store, found[0].evaluation_id, found[-1].evaluation_id)
        _print_stages(store, data_dir, found)
        _print_change(change)
        _print_episodes(store, change)
        _print_stored(store)
        verdicts = [_learned(change), _logprobs_agree(store, data_dir, versions), _rows_are_exact(store)]
    out.print()
    for each in verdicts:
        mark = "[green]✓[/green]" if each.ok else "[red]✗[/red]"
        out.print(f"{mark} {escape(each.claim)}: [dim]{escape(each.seen)}[/dim]")
    return all(each.ok for each in verdicts)


def interval(found: "Interval", *, signed: bool = False) -> str:
    """A share and its interval in per cent, or a difference in points."""
    sign = "+" if signed else ""
    return f"{found.value * 100:{sign}.0f} % [{found.low * 100:{sign}.0f}, {found.high * 100:{sign}.0f}]"


def _print_stages(store: "Store", data_dir: "DataDir", found: "list[Evaluation]") -> None:
    from spanloop.training.evaluation import load_episodes
    from spanloop.training.jobs import JobApi
    from spanloop.training.registry import Registry

    registry, jobs = Registry(data_dir), JobApi(data_dir)
    kinds: list[str] = sorted({_kind(task) for task in load_episodes(store, found[0])["task_id"].unique().to_list()})
    rows: list[tuple[str, ...]] = []
    for each in found:
        version = registry.get(each.model)
        made_by = "as it came" if version.job_id is None else str(jobs.get(version.job_id).spec.kind).upper()
        counted = load_episodes(store, each).to_dicts()
        of_kind = {
            kind: [row["is_success"] for row in counted if not row["left_out"] and _kind(row["task_id"]) == kind]
            for kind in kinds
        }
        shares = (f"{sum(of_kind[kind]) / len(of_kind[kind]):.0%}" if of_kind[kind] else "" for kind in kinds)
        rows.append((each.model, made_by, str(each.tasks), interval(each.success), f"{each.reward.value:.2f}", *shares))
    out.print("\n[bold]Success on the test tasks[/bold] [dim](mean and 95 % bootstrap interval; by tool)[/dim]")
    titles = ("version", "made by", "tasks", "success", "reward", *kinds)
    print_table(titles, rows, numbers=("tasks", "success", "reward", *kinds))


def _kind(task_id: str) -> str:
    return task_id.split("/")[1]


def _print_change(change: "Comparison") -> None:
    before, after = change.before.model, change.after.model
    worked = [each for each in change.tools if any(use.calls > use.failed_calls for use in (each.before, each.after))]
    never = [each for each in change.tools if each not in worked]
    rows = [
        (each.tool, each.before.calls, each.before.failed_calls, each.after.calls, each.after.failed_calls)
        for each in worked
    ]
    if never:
        old, new = (sum(each.before.calls for each in never), sum(each.after.calls for each in never))
        rows.append((f"{len(never)} names that never worked", old, old, new, new))
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
    """Failed before, succeed now: one of each tool first."""
    by_kind: dict[str, list[Any]] = {}
    for pair in change.mended:
        by_kind.setdefault(_kind(pair.task_id), []).append(pair)
    chosen = [pairs[0] for pairs in by_kind.values()][:_SHOWN_EPISODES]
    chosen += [pair for pair in change.mended if pair not in chosen][: _SHOWN_EPISODES - len(chosen)]
    for pair in chosen:
        out.print(f"\n[bold]{escape(pair.task_id)}[/bold] [dim]failed before and succeeds now[/dim]")
        for version, episode_id in (
            (change.before.model, pair.before_episode_id),
            (change.after.model, pair.after_episode_id),
        ):
            out.print(f"  [dim]{escape(version)}  {episode_id}[/dim]")
            for line in _conversation(store, episode_id):
                out.print(f"    {escape(line[:_LONGEST_TEXT])}")


def _conversation(store: "Store", episode_id: str) -> list[str]:
    lines: list[str] = []
    for step, state, action, results in store.query("demo_episode", episode_id=episode_id).iter_rows():
        if step == 0:
            lines.append(f"user       {_text(json.loads(state)[-1])}")
        lines.append(f"assistant  {_text(json.loads(action))}")
        lines += [f"{each['name']:9}  {_oneline(str(each['content']))}" for each in json.loads(results)]
    return lines


def _text(message: dict[str, Any]) -> str:
    parts: list[str] = []
    for part in message["parts"]:
        if part["type"] == "tool_call":
            parts.append(f"{part['name']}({json.dumps(part['arguments'])})")
        else:
            parts.append(_oneline(str(part.get("content", ""))))
    return " ".join(parts)


def _oneline(text: str) -> str:
    return " ".join(text.split())


def _print_stored(store: "Store") -> None:
    totals = store.query("demo_totals").to_dicts()[0]
    untrainable = store.query("demo_untrainable").rows()
    owners: dict[str, int] = {}
    for owner, _, failures, _ in store.query("demo_failures").iter_rows():
        owners[owner] = owners.get(owner, 0) + failures
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
    out.print("  failures by owner: " + (", ".join(f"{owner} {count:,}" for owner, count in owners.items()) or "none"))


def _learned(change: "Comparison") -> Verdict:
    before, after = change.before.success, change.after.success
    ok = change.success.value >= LEAST_GAIN and after.low > before.high
    text = f"{interval(before)} to {interval(after)}, paired difference {interval(change.success, signed=True)}"
    return Verdict(f"success rose by {LEAST_GAIN:.0%} or more, intervals apart", ok, text)


def _logprobs_agree(store: "Store", data_dir: "DataDir", versions: "Sequence[str]") -> Verdict:
    """At a GRPO job's first step the trainer's weights are those that sampled."""
    from spanloop.training.jobs import JobApi, JobKind
    from spanloop.training.registry import Registry

    registry, jobs = Registry(data_dir), JobApi(data_dir)
    made = [registry.get(version).job_id for version in versions]
    claim = f"the trainer's logprobs are those that the gateway captured, within {LOGPROB_TOLERANCE} nats"
    for job_id in made:
        if job_id is None or jobs.get(job_id).spec.kind is not JobKind.GRPO:
            continue
        for step, name, value in store.query("training_metrics", job_id=job_id).iter_rows():
            if name == _GAP_METRIC and step == 1:
                return Verdict(claim, 0 < value <= LOGPROB_TOLERANCE, f"mean absolute difference {value:.4f}")
    return Verdict(claim, ok=False, seen=f"no job stored {_GAP_METRIC} at step 1")


def _rows_are_exact(store: "Store") -> Verdict:
    """Rows that begin anew within an episode are counted by why; no row is tokenised again."""
    starts = {str(start): int(count) for start, count in store.query("demo_row_starts").iter_rows()}
    rows = store.query("demo_trajectories")
    exact, merged = exact_rows(store.query("demo_tokens"), rows)
    anew = [f"{count} begin anew: {_ANEW.get(start, start)}" for start, count in starts.items() if start != "first"]
    text = f"{exact:,} of {rows.height:,} rows exact, {merged:,} merged from several steps"
    return Verdict(
        "token rows train on the tokens that were sampled and nothing else",
        exact == rows.height and merged > 0,
        "; ".join([text, *anew]),
    )
