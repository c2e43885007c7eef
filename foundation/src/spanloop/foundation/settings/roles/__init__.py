"""The settings of every role: ``[serve.ROLE]`` of ``spanloop.toml``, options and variables of the environment."""

from collections.abc import Mapping
from typing import Any, Final

from ..section import Section
from .base import ListeningSettings, ProcessOptions, RoleSettings, StatusSettings
from .clickhouse import ClickhouseSettings
from .collector import CollectorSettings
from .dashboard import DashboardSettings
from .gateway import EngineSettings, GatewaySettings
from .jobs import JobSettings, RunnerSettings, SchedulerSettings
from .mcp import McpSettings
from .pipeline import PipelineSettings

__all__ = [
    "ROLES", "ClickhouseSettings", "CollectorSettings", "DashboardSettings", "EngineSettings", "GatewaySettings",
    "JobSettings", "ListeningSettings", "McpSettings", "PipelineSettings", "ProcessOptions", "RoleSettings",
    "RunnerSettings", "SchedulerSettings", "Serve", "StatusSettings",
]  # fmt: skip


class Serve(Section):
    """``[serve]``: a section for each role."""

    collector: CollectorSettings = CollectorSettings()
    gateway: GatewaySettings = GatewaySettings()
    dashboard: DashboardSettings = DashboardSettings()
    pipeline: PipelineSettings = PipelineSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    runner: RunnerSettings = RunnerSettings()
    clickhouse: ClickhouseSettings = ClickhouseSettings()
    mcp: McpSettings = McpSettings()


def _classes() -> dict[str, Any]:
    return {name: field.annotation for name, field in Serve.model_fields.items()}


ROLES: Final[Mapping[str, type[RoleSettings]]] = _classes()
"""The settings class of each role."""
