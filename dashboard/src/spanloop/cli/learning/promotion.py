"""``spanloop promote``, and the commands of ``spanloop models`` that move, show, prune and export versions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanloop.runtime.command_line import command_line

from ..console import err, out, print_table
from ..options import DataDirOption, ModelArgument, data_directory

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir
    from spanloop.training.promotion.evidence import Decision, Measured
    from spanloop.training.promotion.promote import Actions

_GB: Final = 1e9

NameArgument = Annotated[str, typer.Argument(help="The model's name.")]
EvaluationOption = Annotated[
    str,
    typer.Option(metavar="NAME", help="The evaluations to compare.", show_default="the newest that both versions have"),
]
DeployOption = Annotated[bool, typer.Option("--deploy/--no-deploy", help="Serve the version that wins.")]


def promote(
    model: ModelArgument,
    evaluation: EvaluationOption = "",
    deploy: DeployOption = True,
    data_dir: DataDirOption = None,
) -> None:
    """Decide from stored evaluations whether a version becomes the champion, as the rule in spanloop.toml says.

    Ask as often as you like: the test allows for it. A promoted version is served and gets the alias champion.

    Example: `spanloop promote mine@v4`
    """
    from spanloop.foundation.settings import load_configuration
    from spanloop.store import connect
    from spanloop.training.promotion.promote import promote as decide

    directory = data_directory(data_dir)
    rule = load_configuration(directory.path).promotion
    with connect(directory) as store:
        decision = decide(store, model, rule, promotion_actions(directory, deploys=deploy), evaluation=evaluation)
    print_decision(decision)


def rollback(
    name: NameArgument,
    by_rule: Annotated[
        bool, typer.Option("--by-rule", help="Only when stored evaluations show that the champion is worse.")
    ] = False,
    evaluation: EvaluationOption = "",
    deploy: DeployOption = True,
    data_dir: DataDirOption = None,
) -> None:
    """Serve the champion before the current one again.

    Example: `spanloop models rollback mine`
    """
    from spanloop.foundation.settings import load_configuration
    from spanloop.store import connect
    from spanloop.training.promotion.promote import roll_back, roll_back_by_rule

    directory = data_directory(data_dir)
    actions = promotion_actions(directory, deploys=deploy)
    if not by_rule:
        print_decision(roll_back(name, actions))
        return
    rule = load_configuration(directory.path).promotion
    with connect(directory) as store:
        decision = roll_back_by_rule(store, name, rule, actions, evaluation=evaluation)
    if decision is None:
        out.print("the champion stays: no evaluation shows that it is worse than the one before")
    else:
        print_decision(decision)


def decisions(
    model: Annotated[
        str, typer.Argument(metavar="[NAME | NAME@VERSION]", help="Only decisions about these.", show_default="all")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many, the newest first.")] = 20,
    data_dir: DataDirOption = None,
) -> None:
    """List the decisions about versions; about a single version, with their evidence.

    Example: `spanloop models decisions mine@v4`
    """
    from spanloop.training.models.registry import Registry
    from spanloop.training.promotion.decisions import Decisions

    directory = data_directory(data_dir)
    candidate = Registry(directory).exact(model) if "@" in model else ""
    found = Decisions(directory).list("" if candidate else model, candidate=candidate, limit=limit)
    if not found:
        err.print(f"no decision yet; make one: {command_line('promote NAME@VERSION', directory)}", markup=False)
    elif candidate:
        for decision in found:
            print_decision(decision)
    else:
        print_table(
            ("candidate", "verdict", "champion", "time (UTC)", "by", "why"),
            [
                (
                    each.candidate,
                    each.outcome.value,
                    each.champion,
                    f"{each.decided_at:%Y-%m-%d %H:%M}",
                    each.job_id or "hand",
                    each.evidence.reason,
                )
                for each in found
            ],
        )


def alias(
    model: ModelArgument,
    name: Annotated[str, typer.Argument(metavar="ALIAS", help="Such as champion, candidate or nightly.")],
    remove: Annotated[bool, typer.Option("--remove", help="Remove the alias of this model instead.")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Let an alias name a version: `mine@ALIAS` then works wherever `mine@v3` does. It serves nothing.

    Example: `spanloop models alias mine@v3 champion`
    """
    from spanloop.training.promotion.aliases import Aliases

    aliases = Aliases(data_directory(data_dir))
    if remove:
        model_name = model.partition("@")[0]
        aliases.remove(model_name, name)
        out.print(f"{model_name} has no alias {name} any more", markup=False)
        return
    moved = aliases.set(model, name)
    out.print(f"{moved.name}@{moved.alias} is {moved.reference}", markup=False)


def prune(
    name: Annotated[str, typer.Argument(help="Only this model.", show_default="every model")] = "",
    keep: Annotated[int, typer.Option(min=1, help="The newest versions of each model that stay.")] = 3,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go; remove nothing.")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Remove the weights of versions that nothing needs; their tokenizer and lineage stay.

    What an alias names, what is served, what the champion can be rolled back to, the ancestors of these, bases of open
    jobs and schedules, and the newest versions stay.

    Example: `spanloop models prune --keep 3 --dry-run`
    """
    from spanloop.training.promotion.prune import plan_prune
    from spanloop.training.promotion.prune import prune as prune_versions

    directory = data_directory(data_dir)
    plan = plan_prune(directory, keep=keep, name=name) if dry_run else prune_versions(directory, keep=keep, name=name)
    print_table(
        ("model", "weights", "GB", "why"),
        [
            (
                each.version.reference,
                "stay" if each.kept_because else "go" if dry_run else "gone",
                "" if each.kept_because else f"{each.size_bytes / _GB:.2f}",
                each.kept_because or "nothing needs it",
            )
            for each in plan
        ],
        numbers=("GB",),
    )
    freed = sum(each.size_bytes for each in plan)
    err.print(f"{freed / _GB:.2f} GB {'would be freed' if dry_run else 'freed'}")


def export(
    model: ModelArgument,
    folder: Annotated[Path, typer.Argument(help="A folder that does not exist or is empty.")],
    data_dir: DataDirOption = None,
) -> None:
    """Copy a version to a Hugging Face folder with its lineage, evaluations and decisions in the model card.

    Example: `spanloop models export mine@champion exports/mine`
    """
    from spanloop.evaluation.results import load_evaluations
    from spanloop.foundation.errors import SpanloopError
    from spanloop.store import connect
    from spanloop.training.models.registry import Registry
    from spanloop.training.promotion.model_export import export_model

    directory = data_directory(data_dir)
    reference = Registry(directory).get(model).reference
    try:
        with connect(directory, start=True) as store:
            evaluations = load_evaluations(store, model=reference)
    except SpanloopError as error:
        evaluations = []
        err.print(f"warning: the card lists no evaluations: {error.what}", markup=False)
    version = export_model(directory, reference, folder, evaluations=evaluations)
    out.print(f"{version.reference} is in {folder}", markup=False)


def promotion_actions(directory: "DataDir", *, deploys: bool = True) -> "Actions":
    """Return what a decision may do; its progress is printed."""
    from spanloop.training.promotion.promote import Actions

    def show(line: str) -> None:
        err.print(line, markup=False)

    return Actions(directory, deploys=deploys, on_progress=show)


def print_decision(decision: "Decision") -> None:
    """Print a decision with its evidence."""
    evidence = decision.evidence
    rival = f" against {decision.champion}" if decision.champion else ""
    out.print(f"{decision.candidate} {decision.outcome.value}{rival}: {evidence.reason}", markup=False)
    if evidence.measured is not None:
        print_table(("", decision.candidate, decision.champion, ""), _measured_rows(evidence.measured))
    if evidence.guards:
        print_table(
            ("guard", decision.candidate, decision.champion, "holds"),
            [
                (
                    f"{check.metric} {check.limit}",
                    "" if check.candidate is None else f"{check.candidate:.3f}",
                    "" if check.champion is None else f"{check.champion:.3f}",
                    "yes" if check.holds else "not shown",
                )
                for check in evidence.guards
            ],
        )
    if evidence.evaluations:
        out.print(f"from {' and '.join(evidence.evaluations)}; look {evidence.looks}", markup=False)


def _measured_rows(measured: "Measured") -> list[tuple[str, str, str, str]]:
    interval = "" if measured.interval is None else f"{measured.interval.range_text('+.3f')} at all looks"
    rows = [(str(measured.metric), f"{measured.candidate:.3f}", f"{measured.champion:.3f}", interval)]
    if measured.wins or measured.losses:
        rows.append(("better at", str(measured.wins), str(measured.losses), f"of {measured.count} tasks"))
    if measured.better_e_value is not None and measured.worse_e_value is not None:
        evidence = f"{measured.better_e_value:.3g}", f"{measured.worse_e_value:.3g}"
        rows.append(("evidence for it", *evidence, "e-value; 1 / alpha decides"))
    return rows
