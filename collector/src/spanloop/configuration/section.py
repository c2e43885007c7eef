"""The base of a section of ``spanloop.toml``: frozen, and without a key that is not known."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """One section."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
