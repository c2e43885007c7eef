"""All the cases, by whose failure they show."""

from . import (
    answers,
    calls,
    code,
    harness,
    machines,
    model_requests,
    model_service,
    network,
    no_failure,
    recovered,
    services,
    streams,
    tools,
    unattributed,
    users,
)
from .model import Case

CASES: tuple[Case, ...] = (
    *network.CASES,
    *services.CASES,
    *machines.CASES,
    *model_service.CASES,
    *streams.CASES,
    *model_requests.CASES,
    *harness.CASES,
    *tools.CASES,
    *users.CASES,
    *calls.CASES,
    *code.CASES,
    *answers.CASES,
    *unattributed.CASES,
    *no_failure.CASES,
    *recovered.CASES,
)
