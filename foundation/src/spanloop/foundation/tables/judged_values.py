"""Closed vocabularies that rules and people share, stored in ClickHouse as their string values."""

from enum import StrEnum
from typing import Final


class FaultOwner(StrEnum):
    """The party that caused a failure. Only the policy's own mistakes cost the policy reward."""

    POLICY = "policy"
    TOOL = "tool"
    ENVIRONMENT = "environment"
    HARNESS = "harness"
    USER = "user"
    UNKNOWN = "unknown"
    """A fault was recorded, and nothing in the record shows whose it is."""


class Scope(StrEnum):
    """The kinds of things that a person judges."""

    EPISODE = "episode"
    STEP = "step"
    FAILURE = "failure"


class Verdict(StrEnum):
    """A person's verdict: nothing is wrong, or something is."""

    GOOD = "good"
    BAD = "bad"


PERSON_RULE: Final = "person"
"""The rule of failures that only a person sees."""
