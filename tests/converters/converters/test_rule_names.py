from types import SimpleNamespace
from typing import Any, cast

import pytest

from spanloop.converters.attribution import Failure, Finding, attribution_rules
from spanloop.converters.attribution.former_names import FORMER_NAMES
from spanloop.converters.attribution.loading import BUILT_IN
from spanloop.converters.enums import FaultOwner


@pytest.mark.parametrize(("former", "name"), FORMER_NAMES.items())
def test_settings_may_hold_the_former_name_of_a_rule(former: str, name: str) -> None:
    assert former not in BUILT_IN
    assert [rule.name for rule in attribution_rules([former, "loop"]).tool_calls] == [name]
    first, *others = attribution_rules([former, "default"]).tool_calls
    assert first.name == name
    assert name not in {rule.name for rule in others}


@pytest.mark.parametrize(("former", "name"), FORMER_NAMES.items())
def test_a_renamed_rule_keeps_the_fingerprint_of_its_failures(former: str, name: str) -> None:
    finding = Finding("tool_error", FaultOwner.TOOL, 0.8, "It cannot be cancelled.", {})
    step = cast("Any", SimpleNamespace())
    stored, converted = (
        Failure(step, "t", "s", "cancel", rule, finding, is_recovered=False, occurred_ns=0) for rule in (former, name)
    )
    assert stored.fingerprint == converted.fingerprint
    assert (
        Failure(step, "t", "s", "cancel", "loop", finding, is_recovered=False, occurred_ns=0).fingerprint
        != stored.fingerprint
    )
