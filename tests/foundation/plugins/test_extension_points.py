"""One lookup finds built-ins, entry points and objects of modules, and checks their options."""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from pydantic import Field

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.plugins import Extension, ExtensionPoint, adapt_callable, split_reference
from spanloop.foundation.plugins.extension import help_of


class Greeting(Extension):
    """Greets."""

    def greet(self, name: str) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class Marks:
    """Marks."""

    before: str = ""
    after: str = "!"
    """Behind the greeting."""


class Hello(Greeting):
    """Say hello.

    In any language.
    """

    polite: bool = False
    """Whether it is formal."""
    times: int = Field(default=1, ge=1, le=3)
    """How often."""
    marks: Marks = Marks()

    def greet(self, name: str) -> str:
        return f"{'Good day' if self.polite else 'Hello'} {name}{self.marks.after}" * self.times


def shout(name: str, word: Annotated[str, "What is shouted."] = "HEY", *, count: int) -> str:
    """Shout."""
    return f"{word} {name}" * count


def anything(name: str, **words: str) -> str:
    return f"{name} {sorted(words.items())}"


def plain() -> str:
    return ""


def reserved(name: str, model_fields: str = "") -> str:
    return name + model_fields


def unresolved(name: str, least: "Missing" = 1) -> str:  # type: ignore[name-defined] # noqa: F821
    return f"{name}{least}"


HELLO = Hello(times=2)

POINT = ExtensionPoint[Greeting](
    what="greeting",
    group="spanloop.test_greetings",
    base=Greeting,
    built_in={"hello": f"{__name__}:Hello", "shout": f"{__name__}:shout"},
    adapt=lambda function, what: adapt_callable(function, Greeting, method="greet", arguments=("name",), what=what),
)

MODULE = '''
from spanloop.foundation.plugins import Extension

class Hola:
    pass

def hola(name, mark="!"):
    """Say hola."""
    return f"hola {name}{mark}"
'''
ENTRY_POINTS = """
[spanloop.test_greetings]
hola = tiny_greetings:hola
hello = tiny_greetings:hola
wrong = tiny_greetings:Hola
gone = tiny_greetings:nothing
raising = tiny_raising:nothing
"""


def install(folder: Path, name: str, modules: dict[str, str], entry_points: str) -> None:
    """Leave a distribution in ``folder`` as an installer does."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    (info / "RECORD").write_text("")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    modules = {"tiny_greetings": MODULE, "tiny_raising": "raise RuntimeError('no licence')"}
    install(tmp_path, "tiny_greetings", modules, ENTRY_POINTS)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    yield tmp_path
    for module in modules:
        sys.modules.pop(module, None)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("reference", "options", "greeting"),
    [
        ("hello", {}, "Hello Ann!"),
        ("hello:polite=true:times=2", {}, "Good day Ann!Good day Ann!"),
        ("hello:marks.after=.", {"polite": True}, "Good day Ann."),
        ("shout:count=2", {}, "HEY AnnHEY Ann"),
        ("shout", {"count": "1", "word": "a:b=c"}, "a:b=c Ann"),
        ("hola", {}, "hola Ann!"),
        ("hola:mark=: ok", {}, "hola Ann: ok"),
        ("tiny_greetings:hola:mark=?", {}, "hola Ann?"),
        (f"{__name__}:HELLO", {}, "Hello Ann!Hello Ann!"),
        (f"{__name__}:anything:x=1:y=2", {}, "Ann [('x', '1'), ('y', '2')]"),
    ],
)
def test_built_ins_packages_and_modules_pass_through_one_class(
    reference: str, options: dict[str, object], greeting: str
) -> None:
    found = POINT.find(reference, options)
    assert isinstance(found, Greeting)
    assert found.greet("Ann") == greeting


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nobody", "No greeting is called 'nobody'.*Known: gone, hello, hola, raising, shout, wrong; or install"),
        (
            "hello:polte=1",
            "there is no option 'polte' .got '1'.; did you mean 'polite'.*options are: polite, times",
        ),
        ("hello:times=4", "option 'times' is '4', expected less than or equal to 3"),
        ("hello:polite=perhaps", "option 'polite' is 'perhaps', expected a valid boolean"),
        ("hello:marks.aftr=1", "there is no option 'marks.aftr'"),
        ("shout", "option 'count' is required"),
        ("wrong", "Greeting 'wrong' is Hola, expected a callable or a subclass of Greeting"),
        (
            "gone",
            "Entry point 'gone' of group spanloop.test_greetings in tiny-greetings 1.0 cannot.*nothing",
        ),
        ("raising", "in tiny-greetings 1.0 cannot be loaded: RuntimeError: no licence"),
        ("tiny_raising:x", "Greeting 'tiny_raising:x' cannot be imported: RuntimeError: no licence"),
        (f"{__name__}:HELLO:times=1", "is an object with its options, got: times"),
        (f"{__name__}:plain", "takes .., expected .name., then options by name"),
        (f"{__name__}:reserved", "cannot have an option called 'model_fields'"),
        (f"{__name__}:unresolved", "annotation 'Missing' of option 'least' cannot be resolved"),
    ],
)
def test_what_cannot_be_used_is_one_error_that_names_it(reference: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){message}"):
        POINT.find(reference)


def test_a_broken_package_costs_one_line_of_the_list(installed: Path) -> None:
    lines = {(line.name, line.source): line for line in POINT.listed()}
    assert [name for name, _ in lines] == ["hello", "shout", "gone", "hello", "hola", "raising", "wrong"]
    assert lines["hola", "tiny-greetings 1.0"].help == "Say hola."
    assert [(option.name, option.type, option.default, option.is_required, option.help) for option in
            lines["hello", "built-in"].options] == [
        ("polite", "bool", "false", False, "Whether it is formal."),
        ("times", "int", "1", False, "How often."),
        ("marks.before", "str", "", False, ""),
        ("marks.after", "str", "!", False, "Behind the greeting."),
    ]  # fmt: skip
    assert lines["hello", "built-in"].help == "Say hello."
    assert [(option.name, option.is_required, option.help) for option in lines["shout", "built-in"].options] == [
        ("word", False, "What is shouted."),
        ("count", True, ""),
    ]
    problems = {name: line.problem for (name, source), line in lines.items() if source != "built-in"}
    assert problems["hola"] == ""
    assert "no licence" in problems["raising"]
    assert "expected a callable" in problems["wrong"]
    assert problems["hello"] == "a built-in has the same name, and is used"
    assert all("\n" not in problem for problem in problems.values())
    install(installed, "other_greetings", {}, "[spanloop.test_greetings]\nhola = tiny_greetings:hola\n")
    importlib.invalidate_caches()
    assert [line.problem for line in POINT.listed() if line.name == "hola"] == [
        "another package offers the same name"
    ] * 2
    with pytest.raises(ConfigurationError, match=r"Several packages offer a greeting 'hola': .*other-greetings 1\.0"):
        POINT.find("hola")


def test_a_kind_may_take_classes_only() -> None:
    point = replace(POINT, adapt=None)
    assert point.find("hello").greet("Ann") == "Hello Ann!"
    with pytest.raises(ConfigurationError, match="is function, expected a subclass of Greeting"):
        point.find("shout:count=1")


def test_names_are_known_without_an_import(installed: Path) -> None:
    assert installed.exists()
    assert POINT.names == ("hello", "shout", "gone", "hola", "raising", "wrong")
    assert "tiny_greetings" not in sys.modules


def test_the_name_of_an_object_is_the_one_it_was_found_by() -> None:
    assert POINT.find("hello").name == "hello"
    assert POINT.find(f"{__name__}:Hello").name == Hello().name == "hello"
    assert POINT.find(f"{__name__}:shout:count=1").name == "shout"
    assert HELLO.name == "hello"


class Summarised(Greeting):
    """Not this."""

    summary: ClassVar[str] = "This one."


def test_a_summary_takes_the_place_of_the_docstring() -> None:
    assert help_of(Summarised) == "This one."


@pytest.mark.parametrize(
    ("reference", "target", "options"),
    [
        ("exact", "exact", {}),
        ("my.module:thing", "my.module:thing", {}),
        ("a:b=1", "a", {"b": "1"}),
        ("m:f:path=C:/x:y:z=2", "m:f", {"path": "C:/x:y", "z": "2"}),
        ("a:b=", "a", {"b": ""}),
        ("a:b.c-d=1=2", "a", {"b.c-d": "1=2"}),
    ],
)
def test_a_reference_is_a_target_and_options(reference: str, target: str, options: dict[str, str]) -> None:
    assert split_reference(reference) == (target, options)
