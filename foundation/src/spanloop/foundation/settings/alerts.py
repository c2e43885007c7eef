"""``[alerts]``: where alerts are sent.

Invariant: a secret is in an environment variable that the section names, or in the file; it is in no database, page,
log record or message of an error.
"""

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from .section import Section


class AlertChannel(Section):
    """``[alerts.channels.NAME]``: one receiver of alerts."""

    kind: Literal["webhook", "slack", "smtp"]
    """``webhook`` posts JSON, ``slack`` posts what Slack's incoming webhooks take (Mattermost and Discord's ``/slack``
    address take it, too), ``smtp`` sends mail."""
    url: str = Field(default="", repr=False)
    """The address of a webhook. One that holds a secret, as Slack's do, is better in ``url_env``."""
    url_env: str = ""
    """The environment variable of the scheduler that holds the address, in place of ``url``."""
    token_env: str = ""
    """The environment variable that holds a token for ``webhook``, sent as ``Authorization: Bearer``; empty sends
    none."""
    host: str = ""
    """The mail server."""
    port: int = Field(default=587, ge=1, le=65_535)
    """Its port."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """The encryption of the connection to the mail server; ``none`` is for a server on this machine."""
    user: str = ""
    """The user at the mail server; empty does not log in."""
    password_env: str = ""
    """The environment variable that holds the user's password."""
    sender: str = ""
    """The mail's address in ``From``."""
    recipients: tuple[str, ...] = ()
    """The mail's addresses in ``To``."""
    timeout_s: float = Field(default=10.0, gt=0, le=60)
    """Seconds until an attempt is given up."""

    @model_validator(mode="after")
    def _has_an_address(self) -> Self:
        if self.kind == "smtp":
            missing = [name for name in ("host", "sender", "recipients") if not getattr(self, name)]
            if missing:
                raise ValueError(f"a channel of the kind smtp needs {', '.join(missing)}")
            if bool(self.user) != bool(self.password_env):
                raise ValueError("user and password_env go together")
            if any("\n" in address or "\r" in address for address in (self.sender, *self.recipients)):
                raise ValueError("sender and recipients are addresses of one line")
        elif bool(self.url) == bool(self.url_env):
            raise ValueError(f"a channel of the kind {self.kind} needs either url or url_env")
        elif self.url:
            check_web_address(self.url)
        return self


class Alerts(Section):
    """``[alerts]``: the channels of alerts, and the dashboard that they link to."""

    dashboard_url: str = ""
    """The dashboard's address as the receivers reach it, such as ``https://spanloop.example.org``. Empty: the
    dashboard of the data directory."""
    channels: dict[str, AlertChannel] = Field(default_factory=dict[str, AlertChannel])
    """Receivers by name."""

    @field_validator("dashboard_url")
    @classmethod
    def _is_web_address(cls, url: str) -> str:
        if url:
            check_web_address(url)
        return url.rstrip("/")


def check_web_address(url: str) -> None:
    """Check that ``url`` is an address of HTTP or HTTPS.

    Raises:
        ValueError: It is not; the message does not repeat it, because it may hold a secret.
    """
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError("expected an address that begins with http:// or https://")
