"""Actions of operators: the one place where a page changes something.

Invariant: an action runs only for an operator, and is in the audit log before it begins and when it ends. A viewer sees
no button of an action.
"""
# pyright: reportUnknownMemberType=false

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

import streamlit as st

from spanloop.dashboard import resources, visits
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.keys.audit import BEGUN, DENIED, FAILED, OK, AuditLog
from spanloop.foundation.keys.users import Role

_Result = TypeVar("_Result")


class Action(StrEnum):
    """What an operator can do, as the audit log names it."""

    SUBMIT_JOB = "submit job"
    EVALUATE = "evaluate version"
    CANCEL_JOB = "cancel job"
    RETRY_JOB = "retry job"
    CREATE_SCHEDULE = "create schedule"
    PAUSE_SCHEDULE = "pause schedule"
    RESUME_SCHEDULE = "resume schedule"
    DELETE_SCHEDULE = "delete schedule"
    DEPLOY_MODEL = "deploy model"
    DECIDE = "decide about version"
    ROLL_BACK = "roll back model"
    START_CANARY = "start canary"
    END_CANARY = "end canary"
    JUDGE = "judge"
    WITHDRAW_JUDGEMENT = "take back judgement"
    ADD_ALERT = "add alert rule"
    TEST_ALERT = "test alert rule"
    REMOVE_ALERT = "remove alert rule"
    ADD_TO_DATA_SET = "add to data set"
    EXPORT_DATA_SET = "export data set"
    DELETE_DATA_SET = "delete data set"


def may_act() -> bool:
    """Return whether the page's visitor is an operator."""
    return visits.visitor().role is Role.OPERATOR


def button(
    label: str,
    *,
    icon: str,
    key: str,
    hint: str | None = None,
    is_primary: bool = False,
    is_disabled: bool = False,
) -> bool:
    """Draw the button of an action, and return whether it was pressed; a viewer sees none."""
    if not may_act():
        return False
    return bool(
        st.button(
            label,
            icon=icon,
            key=key,
            help=hint,
            type="primary" if is_primary else "secondary",
            disabled=is_disabled,
        )
    )


def act(
    action: Action,
    object_: str,
    run: Callable[[], _Result],
    *,
    describe: Callable[[_Result], str] = lambda _: "",
) -> _Result:
    """Run an action for the page's visitor.

    Args:
        action: What is done.
        object_: What it is done to, such as a job's id.
        run: Does it.
        describe: What it made, for the audit log.

    Returns:
        What ``run`` returns.

    Raises:
        ConfigurationError: The visitor is no operator.
        DataDirectoryError: The audit log cannot be written; the action did not begin.
        SpanloopError: ``run`` raised it.
    """
    visitor, audit = visits.visitor(), AuditLog(resources.data_dir())
    may = visitor.role is Role.OPERATOR
    entry = audit.add(
        user=visitor.name,
        role=visitor.role.value,
        address=visitor.address,
        action=action.value,
        object_=object_,
        result=BEGUN if may else DENIED,
    )
    if not may:
        raise ConfigurationError(
            f"{visitor.name} may not {action}: expected an operator, got a {visitor.role}.",
            next_step="Log in as an operator; spanloop users create NAME --role operator makes one.",
        )
    try:
        result = run()
    except BaseException as error:
        audit.finish(entry, FAILED, f"{type(error).__name__}: {error}")
        raise
    audit.finish(entry, OK, describe(result))
    return result
