"""``spanloop.toml``: what a user configures once for the service and the command line.

Invariant: a key that is not known is refused with its place in the file, before anything starts.
"""

import tomllib
from pathlib import Path

from pydantic import Field, ValidationError

from spanloop.foundation.errors import ConfigurationError
from spanloop.semconv.environment import find_configuration

from .alerts import AlertChannel, Alerts
from .dashboard import Dashboard, TrustedProxy
from .environment import with_variables
from .evaluation import EnvironmentSettings, Evaluation
from .invalid_keys import problems_of_file
from .limits import KeyLimits, Limits
from .log_settings import Logging
from .prices import Price, Prices
from .promotion import Guard, Promotion
from .roles import Serve
from .section import Section, VariableSection
from .services import Services, Storage, export_settings
from .tls import Tls

__all__ = [
    "AlertChannel", "Alerts", "Attribution", "Configuration", "Dashboard", "EnvironmentSettings", "Evaluation", "Guard",
    "KeyLimits", "Limits", "Logging", "Model", "Price", "Prices", "Promotion", "Rewards", "Serve", "Services",
    "Storage", "Tls", "Training", "TrustedProxy", "find_configuration", "load_configuration", "use_settings",
]  # fmt: skip


class Attribution(Section):
    """``[attribution]``: how failures are attributed."""

    rules: tuple[str, ...] = ("default",)
    """Rules in order of precedence: ``default`` for the built-in ones that are not named, names (``spanloop extensions
    rules``), or ``module:rule``; with options as ``:key=value``."""
    judge: str = ""
    """A model of ``[models]``, an entry point in the group ``spanloop.judges``, or ``module:name``; asked about a
    failed episode before the built-in rules of its end. Empty asks nobody."""


class Model(Section):
    """``[models.NAME]``: a language model behind an OpenAI-compatible URL."""

    url: str
    """The base URL, such as ``http://127.0.0.1:8000/v1``."""
    model: str
    """The model's name at that URL."""
    api_key_env: str = ""
    """The environment variable that holds the API key; empty sends none."""
    prompt_price: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Price of 1,000,000 prompt tokens, in any currency."""
    completion_price: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Price of 1,000,000 completion tokens, in the same currency."""
    max_calls: int = Field(default=1_000, ge=0)
    """Calls that may be made from this data directory in all; cached answers are free."""
    max_cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Money that the calls from this data directory may cost in all; None sets no limit."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Seconds until a call is given up."""


class Rewards(Section):
    """``[rewards]``: which reward functions every conversion asks."""

    functions: tuple[str, ...] = ()
    """Names (``spanloop extensions rewards``) or ``module:name``, with options as ``:key=value``; ``SPANLOOP_REWARDS``
    replaces them."""


class Training(Section):
    """``[training]``: which steps may be trained on."""

    abandoned_attempts: bool = False
    """Whether an answer that the program threw away, to ask the same again, is trained with the episode's reward."""


class Configuration(Section):
    """The whole file."""

    attribution: Attribution = Attribution()
    models: dict[str, Model] = Field(default_factory=dict[str, Model])
    rewards: Rewards = Rewards()
    training: Training = Training()
    evaluation: Evaluation = Evaluation()
    logging: Logging = Logging()
    promotion: Promotion = Promotion()
    services: Services = Services()
    storage: Storage = Storage()
    serve: Serve = Serve()
    limits: Limits = Limits()
    tls: Tls = Tls()
    dashboard: Dashboard = Dashboard()
    alerts: Alerts = Alerts()
    prices: Prices = Prices()


def use_settings(data_dir: Path, file: Path | None = None) -> Configuration:
    """Read the configuration and set the variables of `export_settings`; it raises as `load_configuration`."""
    configuration = load_configuration(data_dir, file)
    export_settings(configuration.services, configuration.storage)
    return configuration


def load_configuration(data_dir: Path, file: Path | None = None) -> Configuration:
    """Read the configuration; the defaults where there is no file. Variables of the environment win over the file.

    Args:
        data_dir: Where a file is looked for last.
        file: The file to read; None looks for one.

    Raises:
        ConfigurationError: The file cannot be read, or holds what is not known, or a variable has an invalid value.
    """
    path = file or find_configuration(data_dir)
    if path is None:
        return _with_variables(Configuration())
    try:
        context = {"folder": path.absolute().parent}
        return _with_variables(Configuration.model_validate(tomllib.loads(path.read_text("utf-8")), context=context))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error}.", next_step="Correct the file, or name another with --config."
        ) from error
    except ValidationError as error:
        raise ConfigurationError(
            f"{path}: {problems_of_file(Configuration, error)}",
            next_step="See docs/reference/configuration.md for all sections and keys.",
        ) from error


def _with_variables(configuration: Configuration) -> Configuration:
    sections = ((name, section) for name, section in configuration if isinstance(section, VariableSection))
    changed = {name: new for name, section in sections if (new := with_variables(section)) is not section}
    return configuration.model_copy(update=changed)
