"""The base class of recipes.

Invariant: an instance holds the values of the recipe's own settings; what every instance of the recipe has in common
is a class variable. A recipe changes defaults of a job's settings in ``defaults`` only.
"""

from collections.abc import Mapping
from copy import copy
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, computed_field


class LearnsFrom(StrEnum):
    """The data of a recipe."""

    ROWS = "rows"
    """Sampled tokens with the sampler's log-probabilities and an advantage each; a batch is prompt groups."""
    PAIRS = "pairs"
    """A better and a worse attempt at one task; a batch is pairs."""
    TEXT = "text"
    """Tokens to imitate, captured or rendered; a batch is rows."""


class Default(NamedTuple):
    """The default of a setting with one recipe."""

    value: Any
    source: str
    """The paper or the measurement that it comes from."""


class Recipe(BaseModel):
    """One way to learn; its fields are its settings.

    Derive from :class:`~spanloop.training.recipes.policy_gradient.GroupRelative` or another class of this package,
    not from this one. The class docstring is the recipe's help.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: ClassVar[str] = ""
    """The value of ``kind``: lower case letters, digits and ``_``."""
    title: ClassVar[str] = ""
    """The name that papers use."""
    learns_from: ClassVar[LearnsFrom]
    defaults: ClassVar[Mapping[str, Default]] = {}
    """Defaults by setting, of the recipe's or of the job's, where they differ from those of the class it derives
    from."""
    unused_settings: ClassVar[frozenset[str]] = frozenset()
    """Settings of the job that have no effect with this recipe."""
    needs_critic: ClassVar[bool] = False
    """Whether a value model is trained beside the policy."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Give the fields the defaults of ``defaults``."""
        super().__pydantic_init_subclass__(**kwargs)
        changed = [name for name in vars(cls).get("defaults", {}) if name in cls.model_fields]
        for name in changed:
            field = copy(cls.model_fields[name])
            field.default = cls.defaults[name].value
            cls.__pydantic_fields__[name] = field
        if changed:
            cls.model_rebuild(force=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def kind(self) -> str:
        """The recipe's name; the key by which a stored recipe is read."""
        return self.name

    @classmethod
    def default(cls, setting: str, otherwise: Any = None) -> Any:
        """Return the default of a setting with this recipe."""
        return next((base.defaults[setting].value for base in cls._bases() if setting in base.defaults), otherwise)

    @classmethod
    def default_sources(cls) -> dict[str, Default]:
        """Return the defaults that the recipe and its bases state, by setting."""
        return {name: default for base in reversed(cls._bases()) for name, default in base.defaults.items()}

    @classmethod
    def _bases(cls) -> list["type[Recipe]"]:
        return [base for base in cls.__mro__ if issubclass(base, Recipe)]

    @property
    def needs_reference(self) -> bool:
        """Whether a second copy of the weights is kept, which the policy is held near."""
        return False

    @property
    def validation_steps(self) -> int:
        """Steps between computations of the loss of held-out rows; 0 for none."""
        return 0

    @property
    def batch_unit(self) -> str:
        """What its batches are made of."""
        return {LearnsFrom.ROWS: "groups", LearnsFrom.PAIRS: "pairs", LearnsFrom.TEXT: "rows"}[self.learns_from]

    @property
    def has_groups(self) -> bool:
        """Whether it compares the episodes of a group."""
        return self.learns_from is not LearnsFrom.TEXT
