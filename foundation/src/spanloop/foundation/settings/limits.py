"""``[limits]``: how much the holder of an API key may ask of collector and gateway."""

from pydantic import Field

from .section import Section


class KeyLimits(Section):
    """``[limits.keys.NAME]``: the limits of one key, by its name. What is not set is as in ``[limits]``."""

    requests_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Requests a second; as many may come at once. Above it 429 with ``Retry-After``. None: no limit."""
    concurrent_requests: int | None = Field(default=None, ge=1)
    """Requests at the same time. Above it 503 with ``Retry-After``. None: no limit."""
    tokens_per_min: int | None = Field(default=None, ge=1)
    """Tokens of prompts and responses a minute, at the gateway; a minute's may be used at once. A response is counted
    when it ends. Above it 429 with ``Retry-After``. None: no limit."""
    body_bytes: int | None = Field(default=None, ge=1)
    """Size of one request's body, decompressed. Above it 413. None: the service's own limit alone."""


class Limits(KeyLimits):
    """``[limits]``: the limits of every key; each process counts by itself."""

    keys: dict[str, KeyLimits] = Field(default_factory=dict[str, KeyLimits])
    """Other limits for single keys."""

    def of(self, name: str) -> KeyLimits:
        """Return the limits of the key with this name."""
        own = self.keys[name].model_dump(exclude_unset=True) if name in self.keys else {}
        return KeyLimits(**{**self.model_dump(exclude={"keys"}), **own})
