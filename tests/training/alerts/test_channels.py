"""Send messages to a web server and a mail server on this machine; no error or log record holds a secret."""

import email
import email.policy
import logging

import pytest
from pydantic import ValidationError

from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import AlertChannel, load_configuration
from spanloop.training.alerts.channels import DeliveryError, send
from spanloop.training.alerts.messages import Message

from .receivers import Mails, Posts

MESSAGE = Message(
    id="7-9",
    alert=7,
    rule="bad",
    status="firing",
    condition="failures above 20% over 1h",
    detail="failures 60.0% of 10 <episodes> & more\nof them",
    at="2026-11-20T12:00:00.000+00:00",
    link="https://dash.test/episodes?outcome=failure&agent=a%7Cb",
)


def smtp(port: int, **options: object) -> AlertChannel:
    fields: dict[str, object] = {
        "kind": "smtp",
        "host": "127.0.0.1",
        "port": port,
        "security": "none",
        "sender": "Spanloop <alerts@a.test>",
        "recipients": ("ann@b.test", "bob@c.test"),
    }
    return AlertChannel.model_validate(fields | options)


def test_a_webhook_gets_json_with_a_link_and_a_token(web: Posts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "a-token")
    send(AlertChannel(kind="webhook", url=web.url, token_env="HOOK_TOKEN"), MESSAGE)
    (document,) = web.documents
    assert web.authorizations == ["Bearer a-token"]
    assert {name: document[name] for name in ("id", "alert", "rule", "status", "link")} == {
        "id": "7-9",
        "alert": 7,
        "rule": "bad",
        "status": "firing",
        "link": MESSAGE.link,
    }
    assert document["text"].startswith("spanloop: bad fires: failures 60.0% of 10")


def test_slack_gets_text_in_its_markup(web: Posts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_URL", web.url)
    send(AlertChannel(kind="slack", url_env="SLACK_URL"), MESSAGE)
    (document,) = web.documents
    assert document == {
        "text": "spanloop: bad fires: failures 60.0% of 10 &lt;episodes&gt; &amp; more\nof them\n"
        f"failures above 20% over 1h\n<{MESSAGE.link}|What caused it>"
    }


def test_mail_is_sent_with_a_login_and_an_id_that_stays(mail: Mails, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", "a-password")
    for _ in range(2):
        send(smtp(mail.port, user="alerts", password_env="MAIL_PASSWORD"), MESSAGE)
    first, second = (email.message_from_string(text, policy=email.policy.default) for text in mail.mails)
    assert first["Message-ID"] == second["Message-ID"] == "<spanloop-alert-7-9@a.test>"
    assert first["Subject"] == "spanloop: bad fires: failures 60.0% of 10 <episodes> & more of them"
    assert (first["From"], first["To"]) == ("Spanloop <alerts@a.test>", "ann@b.test, bob@c.test")
    assert MESSAGE.link in first.get_content()
    assert any(command.startswith("AUTH PLAIN ") for command in mail.commands)


def test_a_receiver_that_refuses_has_not_received_it(web: Posts, mail: Mails) -> None:
    web.status = 404
    with pytest.raises(DeliveryError, match="status 404, expected 200 to 299"):
        send(AlertChannel(kind="webhook", url=web.url), MESSAGE)
    mail.recipient_code = 550
    with pytest.raises(DeliveryError, match="refused all recipients with code 550"):
        send(smtp(mail.port), MESSAGE)
    assert mail.mails == []
    # A server without STARTTLS gets neither the password nor the mail.
    mail.recipient_code = 250
    with pytest.raises(DeliveryError, match="no mail server: SMTPNotSupportedError"):
        send(smtp(mail.port, security="starttls"), MESSAGE)
    assert mail.mails == []


@pytest.mark.parametrize("kind", ["webhook", "slack"])
def test_no_error_and_no_log_record_holds_an_address_or_a_token(
    kind: str, web: Posts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("HOOK_TOKEN", "a-token\nof two lines")
    closed = "http://127.0.0.1:1/hook/of-a-secret-address"
    errors: list[SpanloopError] = []
    channels = [
        AlertChannel.model_validate({"kind": kind, "url": closed}),
        AlertChannel.model_validate({"kind": kind, "url": web.url, "token_env": "HOOK_TOKEN"}),
    ]
    for channel in channels:
        with pytest.raises(SpanloopError) as caught:
            send(channel, MESSAGE)
        errors.append(caught.value)
    monkeypatch.setenv("HOOK_URL", "no-address/of-a-secret-address")
    with pytest.raises(ConfigurationError, match="The variable HOOK_URL holds no address") as refused:
        send(AlertChannel.model_validate({"kind": kind, "url_env": "HOOK_URL"}), MESSAGE)
    send(AlertChannel.model_validate({"kind": kind, "url": web.url}), MESSAGE)
    written = "".join(map(str, [*errors, refused.value])) + caplog.text + repr(channels)
    assert "secret-address" not in written
    assert "a-token" not in written


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(ConfigurationError, match="HOOK_URL is not set in the scheduler's process"):
        send(AlertChannel(kind="webhook", url_env="HOOK_URL"), MESSAGE)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"kind": "webhook"}, "needs either url or url_env"),
        ({"kind": "slack", "url": "http://a.test", "url_env": "A"}, "needs either url or url_env"),
        ({"kind": "webhook", "url": "ftp://a.test/secret"}, "begins with http:// or https://"),
        ({"kind": "smtp", "host": "a.test"}, "needs sender, recipients"),
        ({"kind": "smtp", "host": "a", "sender": "a@b", "recipients": ["c@d"], "user": "u"}, "go together"),
        ({"kind": "smtp", "host": "a", "sender": "a@b", "recipients": ["c@d\nBcc: x"]}, "addresses of one line"),
    ],
)
def test_a_channel_that_cannot_be_used_is_refused(fields: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        AlertChannel.model_validate(fields)


def test_an_error_in_the_file_does_not_repeat_the_address(data_dir: DataDir) -> None:
    (data_dir.path / "spanloop.toml").write_text(
        '[alerts.channels.ops]\nkind = "webhook"\nurl = "htp://a.test/of-a-secret-address"\n'
    )
    with pytest.raises(ConfigurationError, match=r"alerts.channels.ops: expected an address") as caught:
        load_configuration(data_dir.path)
    assert "secret" not in str(caught.value)
