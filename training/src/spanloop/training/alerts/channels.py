"""Send a message to a channel: as JSON to a webhook, to Slack's kind of webhook, or as mail.

Invariant: an error names the channel and what went wrong, never an address, a token or a password. A receiver that does
not say that it took the message has not received it.
"""

import logging
import os
import smtplib
import ssl
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr
from typing import Any, Final

import httpx

from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.foundation.settings import AlertChannel
from spanloop.foundation.settings.alerts import check_web_address

from .messages import Message

_MOST_SUBJECT: Final = 200

# httpx logs the address of each request, and a webhook's address may be its secret.
logging.getLogger("httpx").setLevel(logging.WARNING)


class DeliveryError(SpanloopError):
    """Raised when a channel has not taken a message; it may be tried again."""


def send(channel: AlertChannel, message: Message) -> None:
    """Send a message; return when its receiver has taken it.

    Raises:
        ConfigurationError: An environment variable that the channel names is not set, or holds no address.
        DeliveryError: The receiver is away, or refused the message.
    """
    if channel.kind == "smtp":
        _mail(channel, message)
    elif channel.kind == "slack":
        _post(channel, {"text": _slack_text(message)})
    else:
        _post(channel, message.document)


def _post(channel: AlertChannel, document: dict[str, Any]) -> None:
    url = channel.url or _variable(channel.url_env)
    try:
        check_web_address(url)
    except ValueError as error:
        raise ConfigurationError(f"The variable {channel.url_env} holds no address: {error}.") from None
    headers = {"Authorization": f"Bearer {_variable(channel.token_env)}"} if channel.token_env else {}
    try:
        response = httpx.post(url, json=document, headers=headers, timeout=channel.timeout_s)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        # The text of an error may repeat the address or the header.
        raise DeliveryError(f"no answer: {type(error).__name__}") from None
    if not response.is_success:
        raise DeliveryError(f"status {response.status_code}, expected 200 to 299")


def _slack_text(message: Message) -> str:
    """Return the text in Slack's markup, in which three characters are escaped."""
    text = f"{message.headline}\n{message.condition}"
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    link = message.link.replace("|", "%7C").replace(">", "%3E").replace("<", "%3C")
    return f"{escaped}\n<{link}|What caused it>"


def _mail(channel: AlertChannel, message: Message) -> None:
    password = _variable(channel.password_env) if channel.user else ""
    mail = EmailMessage()
    mail["Subject"] = " ".join(message.headline.split())[:_MOST_SUBJECT]
    mail["From"] = channel.sender
    mail["To"] = ", ".join(channel.recipients)
    mail["Date"] = format_datetime(datetime.fromisoformat(message.at))
    # A message that is sent again has the same id, so that a mailbox shows it once.
    mail["Message-ID"] = f"<spanloop-alert-{message.id}@{parseaddr(channel.sender)[1].rpartition('@')[2]}>"
    mail.set_content(f"{message.headline}\n\nRule: {message.condition}\nWhat caused it: {message.link}\n")
    try:
        with _server(channel) as server:
            if channel.user:
                server.login(channel.user, password)
            server.send_message(mail)
    except smtplib.SMTPResponseException as error:
        raise DeliveryError(f"the mail server refused it with code {error.smtp_code}") from None
    except smtplib.SMTPRecipientsRefused as error:
        codes = ", ".join(sorted({str(code) for code, _ in error.recipients.values()}))
        raise DeliveryError(f"the mail server refused all recipients with code {codes}") from None
    except (smtplib.SMTPException, OSError) as error:
        raise DeliveryError(f"no mail server: {type(error).__name__}") from None


def _server(channel: AlertChannel) -> smtplib.SMTP:
    context = ssl.create_default_context()
    if channel.security == "tls":
        return smtplib.SMTP_SSL(channel.host, channel.port, timeout=channel.timeout_s, context=context)
    server = smtplib.SMTP(channel.host, channel.port, timeout=channel.timeout_s)
    if channel.security == "starttls":
        try:
            server.starttls(context=context)
        except BaseException:
            server.close()
            raise
    return server


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise ConfigurationError(
            f"The environment variable {name} is not set in the scheduler's process.",
            next_step=f"Set {name}, then restart the scheduler.",
        )
    return value
