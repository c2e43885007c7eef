"""``[dashboard]``: a proxy that has authenticated the dashboard's users."""

import ipaddress
from typing import Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from .section import Section


class TrustedProxy(Section):
    """``[dashboard.trusted_proxy]``: the proxy in front of the dashboard, believed by its address."""

    addresses: tuple[str, ...] = Field(alias="from", min_length=1)
    """Its addresses or networks: ``["10.0.0.1"]``. Its ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are believed."""
    header: str = ""
    """The header with the user's name: ``X-Forwarded-User``. Empty: users log in at the dashboard."""
    role_header: str = ""
    """The header with the user's role, viewer or operator. Any other value is a viewer."""
    role: Literal["viewer", "operator"] = "viewer"
    """The role of every user, where there is no ``role_header``."""

    @field_validator("addresses")
    @classmethod
    def _are_networks(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for address in addresses:
            ipaddress.ip_network(address)
        return addresses

    @model_validator(mode="after")
    def _has_a_user_for_each_role(self) -> Self:
        if self.role_header and not self.header:
            raise ValueError(f"role_header = {self.role_header!r} needs header, which names the user")
        return self

    def contains(self, address: str) -> bool:
        """Return whether a client with this address is the proxy."""
        try:
            client = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(client in ipaddress.ip_network(network) for network in self.addresses)


class Dashboard(Section):
    """``[dashboard]``: who may see the pages."""

    trusted_proxy: TrustedProxy | None = None
    """A proxy that has authenticated the users. None: users log in at the dashboard."""
    pages: dict[str, dict[str, JsonValue]] = Field(default_factory=dict[str, dict[str, JsonValue]])
    """Options of pages by the page's name: ``[dashboard.pages.NAME]``."""
