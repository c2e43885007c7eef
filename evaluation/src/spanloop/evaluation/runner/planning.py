"""Turn what a user asks for into the plan of a run: check everything before the first attempt.

Invariant: what makes two runs the same run is stated here, once: source, agent, model, grader, seed and what is graded.
How many attempts are made, how many at a time and for how long may change when a run continues.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

from spanloop.evaluation.environments.pool import EnvironmentPool, PoolSettings
from spanloop.evaluation.graders import GraderContext, load_grader
from spanloop.evaluation.graders.loading import LoadedGrader
from spanloop.evaluation.tasks import PassRates, Rejected, Task, TaskReading, TaskSelection
from spanloop.evaluation.tasks.readers import find_reader
from spanloop.foundation.errors import ConfigurationError, NotRunningError
from spanloop.foundation.keys.api_keys import KeyRing
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Evaluation
from spanloop.semconv.environment import (
    CLICKHOUSE_URL_ENV,
    CONTROL_URL_ENV,
    DATA_DIR_ENV,
    EXIT_TIMEOUT_ENV,
    FILE_SUFFIX,
    RUN_ID_ENV,
)
from spanloop.store import Store

from .agent import Agent, AgentSettings, activated, is_callable_target
from .answers import Output, RecordedAttempts
from .callable_agent import CallableAgent
from .command_agent import CommandAgent, required_fields
from .making import AttemptPlan
from .run import RunPlan, mark_prefix
from .served_model import ServedModel, gateway_key, resolve_model
from .stored_attempts import AttemptMaker

BASE_URL_ENV: Final = "OPENAI_BASE_URL"
MODEL_ENV: Final = "OPENAI_MODEL"
_EXIT_TIMEOUT_S: Final = "10"
"""An attempt's spans are worth a longer wait at its exit than an app's."""
_COLLECTOR_ENV: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_RUN_ID: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
API_KEY_ENV: Final = "OPENAI_API_KEY"
_NO_KEY: Final = "not-needed"
"""OpenAI's clients refuse to start without a key."""
_BY_ENVIRONMENT: Final = "environment"
"""The name of the grader where the environment judges."""
_SELECTION: Final = {
    "split", "splits", "split_field", "type_weights", "type_field", "pass_rate_of", "min_pass_rate", "max_pass_rate",
}  # fmt: skip
_DATABASES: Final = frozenset(
    name + suffix for name in (CLICKHOUSE_URL_ENV, CONTROL_URL_ENV) for suffix in ("", FILE_SUFFIX)
)
"""Not for agents: they hold passwords, and an agent sends its spans to the collector."""


class RunRequest(Evaluation):
    """What a user asks for; `spanloop run` has an option for each field."""

    run_id: str
    model: str = ""
    """Empty is what the gateway serves."""
    base_url: str = ""
    """Empty is the gateway's."""
    is_instrumented: bool = True


class CheckedRequest(NamedTuple):
    """What a request means."""

    grader: LoadedGrader | None
    required: tuple[str, ...]
    """Fields that the command or the grader needs of each task."""


def plan_run(
    data_dir: DataDir,
    request: RunRequest,
    store: Store,
    *,
    on_reject: Callable[[Rejected], None],
) -> RunPlan:
    """Check the request and return the plan; the runners of a pool check for themselves that they can make attempts.

    Args:
        data_dir: An opened data directory.
        request: What to run.
        store: Its store.
        on_reject: Called with each record of the source that is no task.

    Raises:
        ConfigurationError: A setting cannot be used.
        NotRunningError: No gateway or collector runs.
        ServiceError: The gateway does not serve the model.
    """
    checked = check_request(data_dir, request)
    request = _with_model(data_dir, request)
    folder = data_dir.runs / request.run_id
    grader = checked.grader
    judged_by = grader.name if grader else _BY_ENVIRONMENT if request.environment_settings else ""
    making = _plan_attempts(data_dir, request, store, grader, mark_prefix(folder))
    if not request.pool:
        _check_start(data_dir, request, making)
    return RunPlan(
        folder=folder,
        identity=_identity(request, request.model),
        tasks=requested_tasks(request, store, required=checked.required, on_reject=on_reject),
        attempts=request.attempts,
        maker=AttemptMaker(request.run_id, request.model, judged_by, grader.version if grader else ""),
        making=making,
    )


def plan_attempts(data_dir: DataDir, request: RunRequest, store: Store, *, mark: str) -> AttemptPlan:
    """Check that this host can make attempts of a run that another process began, and return how.

    Args:
        data_dir: An opened data directory.
        request: Of the run, with the model that it found.
        store: The store.
        mark: Begins the mark of each process of the attempts.

    Raises:
        ConfigurationError: The agent, its folder, the grader or the environment cannot be used here.
        NotRunningError: No gateway or collector is known here.
    """
    making = _plan_attempts(data_dir, request, store, _making_grader(data_dir, request), mark)
    _check_start(data_dir, request, making)
    check_agent(data_dir, request)
    return making


def _with_model(data_dir: DataDir, request: RunRequest) -> RunRequest:
    """Return the request with the ``name@version`` that the gateway serves; unchanged for another endpoint.

    Raises:
        NotRunningError: No gateway runs.
        ServiceError: It does not serve the model.
    """
    if request.base_url:
        return request
    return request.model_copy(update={"model": resolve_model(data_dir, request.model)[1]})


def _plan_attempts(
    data_dir: DataDir, request: RunRequest, store: Store, grader: LoadedGrader | None, mark: str
) -> AttemptPlan:
    model, output = request.model, _output(request.answer)
    settings = _agent_settings(request, _environment(data_dir, request, _endpoint(data_dir, request), model), mark)
    is_callable = is_callable_target(request.agent)
    needs_spans = output is Output.MESSAGE or (grader is not None and grader.grade_attempt is not None)

    def make_agent() -> Agent:
        if is_callable:
            return CallableAgent(settings, output=output)
        return CommandAgent(settings, model=model, output=output)

    return AttemptPlan(
        parallel=request.parallel,
        seed=request.seed,
        make_agent=make_agent,
        grader=grader,
        recorded=RecordedAttempts(data_dir, store) if needs_spans else None,
        answers_from_spans=output is Output.MESSAGE,
        served=None if request.base_url else ServedModel(data_dir, model),
        environments=_pool_settings(data_dir, request, mark),
    )


def _endpoint(data_dir: DataDir, request: RunRequest) -> str:
    """Return the base URL of the model's API."""
    gateway = None if request.base_url else data_dir.find("gateway")
    return request.base_url if gateway is None else f"{gateway.url}/v1"


def _check_start(data_dir: DataDir, request: RunRequest, making: AttemptPlan) -> None:
    """Check, before anything is read, that the command can be run and that its spans reach a collector."""
    if not request.base_url and data_dir.find("gateway") is None:
        raise NotRunningError(
            f"No gateway runs on the data directory {data_dir.path}.",
            next_step="spanloop up; or name it in [services] of spanloop.toml.",
        )
    if data_dir.find("collector") is None and not os.environ.get(_COLLECTOR_ENV):
        raise NotRunningError(f"No collector runs on the data directory {data_dir.path}.", next_step="spanloop up")
    if not is_callable_target(request.agent):
        making.make_agent().close()


def check_request(data_dir: DataDir, request: RunRequest) -> CheckedRequest:
    """Check what can be checked before a model is served, without starting the agent.

    Raises:
        ConfigurationError: A setting cannot be used.
    """
    _check_run_id(request.run_id)
    grader = _making_grader(data_dir, request)
    find_reader(request.tasks, request.reader, request.reader_options)
    of_command = () if is_callable_target(request.agent) else required_fields(request.agent)
    required = (*of_command, *(grader.required_fields if grader else ()))
    return CheckedRequest(grader, tuple(dict.fromkeys(required)))


def _making_grader(data_dir: DataDir, request: RunRequest) -> LoadedGrader | None:
    """Check what each host needs that makes attempts, and return the grader.

    Raises:
        ConfigurationError: The answer, the folder or the grader cannot be used.
    """
    _output(request.answer)
    if request.cwd is not None and not request.cwd.is_dir():
        raise ConfigurationError(
            f"The agent's working directory {request.cwd} is not a directory.", next_step="Give another --cwd."
        )
    if not request.grader:
        return None
    return load_grader(request.grader, request.grader_options, GraderContext(data_dir.path))


def requested_tasks(
    request: RunRequest, store: Store, *, required: Sequence[str], on_reject: Callable[[Rejected], None]
) -> TaskReading:
    """Return the tasks of a request, which are read when they are iterated over.

    Raises:
        ConfigurationError: A share or a weight cannot be used, or nothing is known of the version's pass rates.
    """
    return TaskReading(
        source=request.tasks,
        reader=request.reader,
        options=request.reader_options,
        id_field=request.id_field,
        required=required,
        on_reject=on_reject,
        store=store,
        selection=_selection(request, store),
    )


def check_agent(data_dir: DataDir, request: RunRequest) -> None:
    """Check that the agent can be started: its command exists, or its function can be imported, which it does.

    Raises:
        ConfigurationError: It cannot be started.
    """
    mark = mark_prefix(data_dir.runs / request.run_id)
    settings = _agent_settings(request, _environment(data_dir, request, "", request.model), mark)
    if is_callable_target(request.agent):
        CallableAgent(settings, output=_output(request.answer)).check()
    else:
        CommandAgent(settings, model=request.model, output=_output(request.answer)).check()


def check_environment(data_dir: DataDir, request: RunRequest, tasks: Sequence[Task] = ()) -> None:
    """Check that the environment can be used, if there is one: it starts an episode of a task, in its own process.

    Args:
        data_dir: An opened data directory.
        request: What would be run.
        tasks: Some of its tasks; without any the environment is imported only.

    Raises:
        ConfigurationError: It cannot be used.
    """
    settings = _pool_settings(data_dir, request, mark_prefix(data_dir.runs / request.run_id))
    if settings is not None:
        with EnvironmentPool(settings) as pool:
            pool.check([{**task.fields, "task_id": task.id} for task in tasks], request.seed)


def _pool_settings(data_dir: DataDir, request: RunRequest, mark: str) -> PoolSettings | None:
    if request.environment_settings is None:
        return None
    variables = _environment_variables(data_dir, request)
    return PoolSettings(request.environment_settings, variables, mark, request.cwd)


def _agent_settings(request: RunRequest, environment: dict[str, str], mark: str) -> AgentSettings:
    return AgentSettings(
        agent=request.agent,
        environment=activated(environment) if request.is_instrumented else environment,
        mark_prefix=mark,
        cwd=request.cwd,
        timeout_s=request.timeout_s,
        is_instrumented=request.is_instrumented,
    )


def _check_run_id(run_id: str) -> None:
    if re.fullmatch(_RUN_ID, run_id) is None:
        raise ConfigurationError(f"{run_id!r} is not a run's id: expected {_RUN_ID}.", next_step="Give another --run.")


def _output(text: str) -> Output:
    try:
        return Output(text)
    except ValueError as error:
        raise ConfigurationError(
            f"The answer cannot be {text!r}; expected {', '.join(Output)}.", next_step="Give another --answer."
        ) from error


def _environment(data_dir: DataDir, request: RunRequest, base_url: str, model: str) -> dict[str, str]:
    defaults = {EXIT_TIMEOUT_ENV: _EXIT_TIMEOUT_S, API_KEY_ENV: _NO_KEY, MODEL_ENV: model}
    fixed = {DATA_DIR_ENV: str(data_dir.path), BASE_URL_ENV: base_url, RUN_ID_ENV: request.run_id}
    gateway = None if request.base_url else data_dir.find("gateway")
    if gateway is not None and (gateway.is_configured or KeyRing(data_dir).is_required):
        # a key of another service in the environment is of no use there
        fixed[API_KEY_ENV] = gateway_key(data_dir, gateway) or _NO_KEY
    inherited = {name: value for name, value in os.environ.items() if name not in _DATABASES}
    return {**defaults, **inherited, **fixed, **({MODEL_ENV: model} if model else {}), **request.environment}


def _selection(request: RunRequest, store: Store) -> TaskSelection:
    """Return which tasks are taken.

    Raises:
        ConfigurationError: A share or a weight cannot be used, or nothing is known of the version's pass rates.
    """
    rates: PassRates | None = None
    if request.pass_rate_of:
        rows = store.query("task_pass_rates", model=request.pass_rate_of)
        if rows.is_empty():
            raise ConfigurationError(
                f"No graded attempt of {request.pass_rate_of!r} is stored, so its pass rates are not known.",
                next_step="Name a NAME@VERSION of spanloop runs list as pass_rate_of, or leave it out.",
            )
        by_task = dict(cast("list[tuple[str, float]]", rows.rows()))
        rates = PassRates(by_task, request.min_pass_rate, request.max_pass_rate)
    return TaskSelection(
        split=request.split,
        shares=request.splits,
        split_field=request.split_field,
        weights=request.type_weights,
        type_field=request.type_field,
        pass_rates=rates,
        limit=request.limit,
        seed=request.seed,
    )


def _environment_variables(data_dir: DataDir, request: RunRequest) -> dict[str, str]:
    """Return the variables of an environment's processes: no key of the gateway, and no passwords of databases."""
    inherited = {name: value for name, value in os.environ.items() if name not in _DATABASES}
    return {**inherited, DATA_DIR_ENV: str(data_dir.path), **request.environment}


def _identity(request: RunRequest, model: str) -> dict[str, str]:
    """What makes the run this run, in words for an error message."""
    environments = request.environment_settings
    return {
        "tasks": json.dumps([request.tasks, request.reader, dict(request.reader_options), request.id_field]),
        "limit": str(request.limit or "none"),
        "selection": request.model_dump_json(include=_SELECTION),
        "agent": request.agent,
        "model": model,
        "endpoint": request.base_url or "gateway",
        "grader": json.dumps([request.grader, dict(request.grader_options)]),
        "answer": request.answer,
        "seed": str(request.seed),
        "environment": "none" if environments is None else environments.model_dump_json(include={"name", "options"}),
    }
