"""The reference page of extension points, from their classes and from ``examples/extending``."""

import importlib
import inspect
import re
import typing
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from pydantic import BaseModel

from spanloop.foundation.plugins import Extension, ExtensionPoint, Listed
from spanloop.foundation.plugins.lookup import import_object
from spanloop.runtime.extension_points import KINDS, extension_point

EXAMPLE: Final = Path(__file__).resolve().parents[1] / "examples" / "extending" / "src" / "extending"

INTRODUCTION: Final = """An extension point is a class with options, an entry point group, and a lookup by name.
Built-ins and the extensions of packages are subclasses of the same class, and the same lookup finds them.
`spanloop extensions` lists what is installed. [Extend spanloop](../how-to/extend.md) leads to a page for each.

## Names and options

A reference is `NAME`, or `module:NAME` of an importable module, then options: `NAME:OPTION=VALUE:OPTION=VALUE`. A
value may hold colons, except before another `OPTION=`. `OPTION.KEY=VALUE` sets a key of a mapping or a field of a
nested option. Graders and readers also take `--grader-option OPTION=VALUE` and `--reader-option OPTION=VALUE`;
pages take `[dashboard.pages.NAME]`.

The options of a class are its fields: annotated, with a default or required, and with a docstring below each,
which is the help. [Pydantic](https://docs.pydantic.dev) checks them. The first paragraph of the class's docstring
is its help.

A plain callable may stand for a class. Its first parameters are those of the method; each further parameter is an
option. Its annotation is the option's type (`Annotated[float, "help"]` adds help) and its default is the option's
default. With `**options` it takes any.

Options are checked when the object is looked up, before anything runs. An error names the option, what it got,
what is expected, and the nearest known name. A package that cannot be loaded costs its own line of the list.
"""


class _Kind(NamedTuple):
    title: str
    text: str
    callable: str
    """Its form; empty where a class is needed."""
    named: str
    """Where a reference stands, and when it is checked."""
    example: str
    """File of the example package."""
    classes: tuple[str, ...] = ()
    """Subclasses of the base that one derives from instead, as ``module:name``."""


_KINDS: Final[dict[str, _Kind]] = {
    "rules": _Kind(
        "Attribution rules",
        "A rule looks at one model call, one tool call, an episode, or the end of a failed episode, and names what "
        "went "
        "wrong, whose fault it was and how sure that is. The first rule of a kind that returns a finding decides.",
        "`(step)`, `(context)`, `(episode)` or `(episode, reward)`, by these names, then options",
        "`rules` of `[attribution]` in `spanloop.toml`, in order of precedence. `default` stands for all built-in "
        "rules that "
        "are not named beside it. Checked before a conversion starts.",
        "rules.py",
        tuple(
            f"spanloop.converters.attribution:{name}"
            for name in ("ModelCallRule", "ToolCallRule", "EpisodeRule", "EndingRule")
        ),
    ),
    "judges": _Kind(
        "Judges",
        "A judge answers a prompt about a failed episode that no rule before it explains. The answer holds one "
        "JSON object.",
        "`(prompt)`, then options; returns text",
        "`judge` of `[attribution]` in `spanloop.toml`; the name of a model in `[models]` is enough. Checked before a "
        "conversion starts.",
        "judges.py",
    ),
    "rewards": _Kind(
        "Reward functions",
        "A reward function scores an episode when it is converted. `None` gives no score.",
        "`(attempt)`, then options; returns a number, a `Judgement` or None",
        "`functions` of `[rewards]` in `spanloop.toml`, or `SPANLOOP_REWARDS`; `STORED=REFERENCE` stores the "
        "reward under "
        "another name. Checked before a conversion starts.",
        "rewards.py",
    ),
    "readers": _Kind(
        "Task readers",
        "A reader yields the records of a source of tasks, one at a time.",
        "`(source)`, then options; returns or yields mappings",
        "`spanloop run READER:SOURCE`, `--reader`, or `reader` of `[evaluation]`. Checked before the first "
        "attempt, and "
        "before a job that deploys is queued.",
        "task_readers.py",
    ),
    "graders": _Kind(
        "Graders",
        "A grader says how good an answer to a task is.",
        "`(task, answer)`, then options; returns a number, a boolean or a `Verdict`. Its attributes `version` and "
        "`required_fields` count",
        "`spanloop run --grader`, or `grader` of `[evaluation]`. Checked before the first attempt, and before a "
        "job that "
        "deploys is queued.",
        "graders.py",
    ),
    "environments": _Kind(
        "Environments",
        "An environment is what an agent acts in while it attempts a task ([environments](environments.md)). An object "
        "serves one episode, in a process of its own.",
        "",
        "`spanloop run --environment`, `name` of `[environment]` in `app.toml`, or of "
        "`[evaluation.environment_settings]` in `spanloop.toml`. "
        "Checked in a process of its own before the first attempt.",
        "environments.py",
    ),
    "recipes": _Kind(
        "Recipes",
        "A recipe is one way to learn: what it learns from, its settings, its advantage and its loss "
        "([recipes](recipes.md)). Derive from the class of the package that is nearest. Tensors come as arguments, so "
        "the module imports torch for type checkers only.",
        "",
        "`spanloop train --kind NAME`, `kind` of a job file or of a stage. Its options are settings of the job, and "
        "are checked before the job is queued.",
        "recipes.py",
        tuple(
            f"spanloop.training.recipes.{place}"
            for place in ("policy_gradient:GroupRelative", "grpo:Grpo", "ppo:Ppo", "sft:Sft", "dpo:Dpo")
        ),
    ),
    "selections": _Kind(
        "Selections",
        "A selection keeps or leaves out rows that a training job could train on "
        "([columns](settings.md#columns-of-a-selection)). Rows that it leaves out are counted as `not_selected`. One "
        "that raises, or does not return one boolean for each row, fails the job. A policy gradient's baseline is of "
        "the episodes that it leaves.",
        "`(rows)`, then options; returns a boolean Series",
        "The setting `selector` of a job or of a stage. Checked before the job is queued.",
        "selections.py",
    ),
    "pages": _Kind(
        "Dashboard pages",
        "A page draws itself with Streamlit. The navigation has its title and icon, in the menu `group`. What it "
        "raises is "
        "shown in its place, and every other page stays. `spanloop.dashboard.components.actions` has buttons that "
        "only an "
        "operator sees and that are audited.",
        "`(context)`, then options; its attributes `title`, `icon` and `group` count",
        "An installed page is in the navigation. `[dashboard.pages.NAME]` in `spanloop.toml` has its options, "
        "which are "
        "checked before the dashboard starts.",
        "pages.py",
    ),
}


def extension_points_page(notice: str) -> str:
    """Return the page."""
    parts = ["# Extension points\n", notice, INTRODUCTION]
    for kind in KINDS:
        parts += _section(extension_point(kind), _KINDS[kind])
    return "\n".join(parts)


def _section(point: ExtensionPoint[Any], kind: _Kind) -> Iterator[str]:
    yield f"## {kind.title}\n"
    yield f"{kind.text}\n"
    bases: list[type[BaseModel]] = [cast("type[BaseModel]", import_object(each)) for each in kind.classes]
    bases = bases or [point.base]
    yield f"- **Group**: `{point.group}`"
    for module, classes in groupby(bases, _public_module):
        yield f"- **Class**: {', '.join(f'`{each.__name__}`' for each in classes)} of `{module}`"
    methods = dict.fromkeys(method for base in bases for method in _methods(base, point.base))
    yield from (f"- **Method**: `{method}`" for method in methods)
    variables = dict.fromkeys(each for base in bases for each in _class_variables(base))
    if variables:
        yield f"- **Class variables**: {', '.join(variables)}"
    for each in _types_of(bases):
        yield f"- **`{each.__name__}`** of `{_public_module(each)}`: {', '.join(_members(each))}"
    if kind.callable:
        yield f"- **Callable**: {kind.callable}"
    yield f"- **Named in**: {kind.named}\n"
    source = (EXAMPLE / kind.example).read_text(encoding="utf-8")
    yield f"```python\n# src/extending/{kind.example}\n{source}```\n"
    yield "```toml\n# pyproject.toml\n" + "\n".join(_entry_points(point.group)) + "\n```\n"
    listed = point.built_in_listed()
    if any(line.options for line in listed):
        yield "| built in | options | |\n|---|---|---|"
        yield from map(_row, listed)
        yield ""
    elif listed:
        yield f"Built in: {', '.join(f'`{line.name}`' for line in listed)}.\n"
    else:
        yield "Nothing is built in.\n"


def _public_module(base: type) -> str:
    """Return the package that exports a class, else its module."""
    package = base.__module__.rpartition(".")[0]
    exported = getattr(importlib.import_module(package), base.__name__, None)
    return package if exported is base else base.__module__


def _methods(base: type, kind: type) -> Iterator[str]:
    for name, method in inspect.getmembers(base, inspect.isfunction):
        owner = next(each for each in base.__mro__ if name in vars(each))
        is_inherited = issubclass(Extension, owner) or not issubclass(owner, kind)
        if not is_inherited and name != "model_post_init" and (not name.startswith("_") or name == "__call__"):
            yield _signature(name, method)


def _class_variables(base: type[BaseModel]) -> Iterator[str]:
    for name in inspect.get_annotations(base):
        if name in base.__class_vars__:
            value = getattr(base, name, None)
            yield f"`{name} = {value!r}`" if isinstance(value, str | bool) else f"`{name}`"


def _types_of(bases: Sequence[type]) -> Iterator[type]:
    """Yield the types of spanloop in the methods' signatures, each once."""
    hints: list[Any] = []
    for base in bases:
        for name, method in inspect.getmembers(base, inspect.isfunction):
            if name in vars(base) and name != "model_post_init":
                with suppress(NameError):  # types that are imported for type checkers only
                    hints += typing.get_type_hints(method).values()
    yield from dict.fromkeys(each for hint in hints for each in _classes_in(hint))


def _classes_in(hint: Any) -> Iterator[type]:
    arguments = typing.get_args(hint)
    for argument in arguments:
        yield from _classes_in(argument)
    if not arguments and isinstance(hint, type) and hint.__module__.startswith("spanloop."):
        yield hint


def _members(cls: type) -> Iterator[str]:
    """Yield fields with their types, properties, and methods."""
    fields = {name: note for name, note in inspect.get_annotations(cls).items() if not name.startswith("_")}
    yield from (f"`{name}: {_short(inspect.formatannotation(note))}`" for name, note in fields.items())
    for name, member in vars(cls).items():
        if name.startswith("_") or name in fields:
            continue
        if isinstance(member, property | cached_property):
            yield f"`{name}`"
        elif inspect.isfunction(member):
            yield f"`{_signature(name, member)}`"


def _short(annotation: str) -> str:
    text = re.sub(r"\b(?:[a-zA-Z_]\w*\.)+(?=[A-Za-z_])", "", annotation).replace("~", "")
    return re.sub(r"'([A-Za-z_][^']*)'", r"\1", text)


def _signature(name: str, method: Any) -> str:
    signature = inspect.signature(method)
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    return _short(f"{name}{signature.replace(parameters=parameters)}")


def _entry_points(group: str) -> Iterator[str]:
    text = (EXAMPLE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition(f'[project.entry-points."{group}"]')[2].partition("\n[")[0]
    yield f'[project.entry-points."{group}"]'
    yield from section.split("\n")[1:-1] if section.endswith("\n") else section.split("\n")[1:]


def _row(listed: Listed) -> str:
    options = ", ".join(
        f"`{option.name}`" if option.is_required else f"`{option.name}={option.default}`" for option in listed.options
    )
    cells = (f"`{listed.name}`", options, listed.help)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("``", "`") for cell in cells) + " |"
