"""The base class of extensions: a class whose fields are its options, and whose docstrings are its help.

Invariant: options are checked when the object is made. An unknown, missing or invalid option is an error that names the
option, its value, what is expected, and the nearest known name.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, cast, get_origin

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from pydantic.fields import FieldInfo

from spanloop.foundation.errors import ConfigurationError

B = TypeVar("B", bound=BaseModel)
_OPTION: Final = re.compile(r":(?=[A-Za-z_][\w.-]*=)")
_SHOWN: Final = 80


class Option(NamedTuple):
    """An option of an extension, for listings."""

    name: str
    type: str
    default: str
    """As text; empty for none, and for an option that is required."""
    is_required: bool
    help: str


class Extension(BaseModel):
    """An extension with its options, which are its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    summary: ClassVar[str] = ""
    """One or two sentences for listings and the reference; empty takes the first paragraph of the docstring."""

    _name: str = PrivateAttr(default="")

    @property
    def name(self) -> str:
        """The name that the object was looked up by; the name of its class, in snake case, if it was made directly."""
        return self._name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()

    def option_values(self) -> dict[str, object]:
        """Return the options' values by name."""
        return {**{name: getattr(self, name) for name in type(self).model_fields}, **(self.model_extra or {})}

    def set_name(self, name: str) -> None:
        """Set the name under which the object was looked up."""
        self._name = name


def help_of(cls: type[BaseModel]) -> str:
    """Return what an extension does, in one paragraph: its ``summary``, else the first paragraph of its docstring."""
    return " ".join((getattr(cls, "summary", "") or inspect.getdoc(cls) or "").partition("\n\n")[0].split())


def options_of(cls: type[BaseModel]) -> tuple[Option, ...]:
    """Return the options, in the order of their declaration; those of a nested dataclass have dotted names."""
    docs = _docs_of_fields(cls)
    options: list[Option] = []
    for name, field in cls.model_fields.items():
        options += _nested_options(name, field) or [_option(name, field, docs.get(name, ""))]
    return tuple(options)


def split_reference(reference: str) -> tuple[str, dict[str, str]]:
    """Split ``TARGET:KEY=VALUE:KEY=VALUE`` into target and options.

    A target may itself be ``module:name``. A value may hold colons, except before another ``KEY=``.

    Examples:
        >>> split_reference("latency:seconds=20")
        ('latency', {'seconds': '20'})
        >>> split_reference("my_rewards:short:limit=100:unit=words")
        ('my_rewards:short', {'limit': '100', 'unit': 'words'})
    """
    target, *parts = _OPTION.split(reference.strip())
    pairs = [part.partition("=") for part in parts]
    return target, {name: value for name, _, value in pairs}


def options_from(cls: type[B], options: Mapping[str, object], what: str) -> B:
    """Return an object of ``cls`` with the options.

    Args:
        cls: Its fields are the options.
        options: Name → value, or text as it was typed. A dotted name sets an entry of a nested option.
        what: What it is called in errors, such as "grader 'exact'".

    Raises:
        ConfigurationError: An option is unknown, missing or invalid.
    """
    try:
        return cls.model_validate(_nested(options))
    except ValidationError as error:
        problems = "; ".join(dict.fromkeys(_problem(cls, dict(detail)) for detail in error.errors()))
        raise ConfigurationError(
            f"Options of {what}: {problems}.", next_step=f"Its options are: {', '.join(cls.model_fields) or 'none'}."
        ) from error


def sentence(what: str) -> str:
    """Return ``what`` with a capital letter in front, as a sentence begins."""
    return what[:1].upper() + what[1:]


def _nested(options: Mapping[str, object]) -> dict[str, object]:
    nested: dict[str, object] = {}
    for name, value in options.items():
        head, separator, rest = name.partition(".")
        if not separator:
            nested[name] = value
            continue
        entries = nested.setdefault(head, {})
        if isinstance(entries, dict):
            entries[rest] = value
    return nested


def _problem(cls: type[BaseModel], detail: Mapping[str, Any]) -> str:
    place, value = [str(part) for part in detail["loc"]], detail["input"]
    name = ".".join(place)
    match detail["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            near = get_close_matches(place[0], cls.model_fields, 1) if len(place) == 1 else []
            return f"there is no option {name!r} (got {value!r:.{_SHOWN}})" + (
                f"; did you mean {near[0]!r}?" if near else ""
            )
        case "missing":
            return f"option {name!r} is required"
        case _:
            expected = re.sub(r"^(?:Input|Value error,|String) ?(?:should (?:be|have) )?", "", detail["msg"])
            expected = expected.removeprefix("expected ")
            return f"option {name!r} is {value!r:.{_SHOWN}}, expected {expected[:1].lower()}{expected[1:]}"


def _option(name: str, field: FieldInfo, documented: str) -> Option:
    annotated = next((note for note in field.metadata if isinstance(note, str)), "")
    text = field.description or annotated or documented
    is_required = field.is_required()
    default = "" if is_required else _as_text(field.get_default(call_default_factory=True, validated_data={}))
    return Option(name, _type_name(field.annotation), default, is_required, " ".join(text.split()))


def _nested_options(name: str, field: FieldInfo) -> list[Option]:
    default: object = None if field.is_required() else field.get_default(call_default_factory=True, validated_data={})
    if not is_dataclass(default):
        return []
    docs = dict(_docs_in_source(cast("type", type(default))))
    return [
        Option(
            f"{name}.{each.name}",
            _type_name(each.type),
            _as_text(getattr(default, each.name)),
            is_required=False,
            help=" ".join(docs.get(each.name, "").split()),
        )
        for each in fields(default)
    ]


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is None and isinstance(annotation, type):
        return annotation.__name__
    return re.sub(r"(?:\b\w+\.)+(?=\w)", "", str(annotation))


def _docs_of_fields(cls: type[BaseModel]) -> dict[str, str]:
    """Return the docstring below each field of the class and of its bases; classes without source have none."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            docs.update(_docs_in_source(base))
    return docs


def _docs_in_source(cls: type) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return
    for node in tree.body:
        for statement, following in pairwise(node.body if isinstance(node, ast.ClassDef) else ()):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    yield name, inspect.cleandoc(text)
                case _:
                    pass
