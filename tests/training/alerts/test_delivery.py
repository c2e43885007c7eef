"""Messages are sent until they are received, each attempt is recorded, and no channel waits for another one."""

import threading
from typing import TYPE_CHECKING

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings import AlertChannel
from spanloop.training.alerts.alert_api import AlertApi
from spanloop.training.alerts.channels import DeliveryError
from spanloop.training.alerts.delivery import FIRST_PAUSE, GIVE_UP, LONGEST_PAUSE, Sender, Targets
from spanloop.training.alerts.entities import Delivery
from spanloop.training.alerts.evaluation import look_at_thresholds, readable_rules
from spanloop.training.alerts.measurements import Measurement
from spanloop.training.alerts.messages import Message
from spanloop.training.jobs.database.control_database import ControlDatabase

from ..jobs.support import FakeClock

if TYPE_CHECKING:
    from datetime import timedelta

CHANNEL = AlertChannel(kind="webhook", url="http://127.0.0.1:1/hook")
TARGETS = Targets({"ops": CHANNEL, "mail": CHANNEL}, "https://dash.test")


class Receiver:
    """Takes messages, unless it is away."""

    def __init__(self) -> None:
        self.is_away = False
        self.messages: list[Message] = []

    def __call__(self, channel: AlertChannel, message: Message) -> None:
        assert channel is CHANNEL
        self.messages.append(message)
        if self.is_away:
            raise DeliveryError("status 503, expected 200 to 299")


def fire(api: AlertApi, database: ControlDatabase, clock: FakeClock, *channels: str) -> None:
    api.add("bad", "failures above 50%", channels)
    measured = Measurement(holds=True, detail="failures 60.0% of 10 episodes", link="episodes?outcome=failure")
    look_at_thresholds(database, readable_rules(database), lambda _: measured, now=clock.now)


def look(sender: Sender) -> None:
    sender.send_waiting(lambda: TARGETS)
    sender.wait()


def only_message(api: AlertApi) -> Delivery:
    (alert,) = api.history()
    (delivery,) = alert.deliveries
    return delivery


def test_a_message_is_received_once_and_links_to_the_dashboard(
    api: AlertApi, database: ControlDatabase, clock: FakeClock
) -> None:
    receiver = Receiver()
    sender = Sender(database, send_message=receiver, clock=clock)
    fire(api, database, clock, "ops")
    for _ in range(3):
        look(sender)
    (message,) = receiver.messages
    assert message.link == "https://dash.test/episodes?outcome=failure"
    assert (message.status, message.condition) == ("firing", "failures above 50% over 1h")
    delivery = only_message(api)
    assert (delivery.attempts, delivery.received_at, delivery.is_open) == (1, clock.now, False)


def test_a_message_that_is_not_taken_is_sent_again_with_the_same_id_until_it_is(
    api: AlertApi, database: ControlDatabase, clock: FakeClock
) -> None:
    receiver = Receiver()
    receiver.is_away = True
    fire(api, database, clock, "ops")
    pauses: list[timedelta] = []
    for _ in range(12):
        # Each look is of another scheduler: what is known is in the database.
        look(Sender(database, send_message=receiver, clock=clock))
        delivery = only_message(api)
        assert delivery.next_at is not None
        pauses.append(delivery.next_at - clock.now)
        clock.now = delivery.next_at
    assert (pauses[0], pauses[1], pauses[-1]) == (FIRST_PAUSE, 2 * FIRST_PAUSE, LONGEST_PAUSE)
    assert "12 attempts, status 503" in str(only_message(api))
    receiver.is_away = False
    look(Sender(database, send_message=receiver, clock=clock))
    assert str(only_message(api)) == "firing received by ops"
    assert only_message(api).error == ""
    assert len({message.id for message in receiver.messages}) == 1


def test_a_message_that_nobody_takes_for_a_day_is_given_up_and_says_why(
    api: AlertApi, database: ControlDatabase, clock: FakeClock
) -> None:
    receiver = Receiver()
    receiver.is_away = True
    fire(api, database, clock, "ops")
    clock.now += GIVE_UP
    sender = Sender(database, send_message=receiver, clock=clock)
    look(sender)
    look(sender)
    assert len(receiver.messages) == 1
    assert str(only_message(api)) == "firing to ops given up after 1 attempt: status 503, expected 200 to 299"


def test_a_test_is_tried_once_and_says_what_went_wrong(
    api: AlertApi, database: ControlDatabase, clock: FakeClock
) -> None:
    receiver = Receiver()
    receiver.is_away = True
    api.add("bad", "job failed", ["ops"])
    alert = api.test("bad")
    sender = Sender(database, send_message=receiver, clock=clock)
    look(sender)
    (delivery,) = api.get(alert.id).deliveries
    assert (delivery.is_open, delivery.error) == (False, "status 503, expected 200 to 299")
    assert receiver.messages[0].link == "https://dash.test/alerts"
    receiver.is_away = False
    alert = api.test("bad")
    look(sender)
    assert [str(each) for each in api.get(alert.id).deliveries] == ["test received by ops"]


def test_a_channel_that_is_slow_delays_no_other_one(api: AlertApi, database: ControlDatabase, clock: FakeClock) -> None:
    release, received = threading.Event(), threading.Event()

    def send(channel: AlertChannel, message: Message) -> None:
        del channel
        if message.id.endswith("-1"):
            release.wait(30)
        else:
            received.set()

    fire(api, database, clock, "ops", "mail")
    sender = Sender(database, send_message=send, clock=clock)
    sender.send_waiting(lambda: TARGETS)
    sender.send_waiting(lambda: TARGETS)
    assert received.wait(30)
    release.set()
    sender.wait()
    assert [each.attempts for each in api.history()[0].deliveries] == [1, 1]


def test_a_message_to_a_channel_that_was_removed_waits_for_it(
    api: AlertApi, database: ControlDatabase, clock: FakeClock
) -> None:
    receiver = Receiver()
    fire(api, database, clock, "ops")
    sender = Sender(database, send_message=receiver, clock=clock)
    sender.send_waiting(lambda: TARGETS._replace(channels={}))
    sender.wait()
    assert "there is no channel 'ops' in [alerts.channels]" in only_message(api).error
    clock.now += FIRST_PAUSE
    look(sender)
    assert str(only_message(api)) == "firing received by ops"


def test_a_configuration_that_cannot_be_read_loses_no_message(
    api: AlertApi, database: ControlDatabase, clock: FakeClock
) -> None:
    receiver = Receiver()
    fire(api, database, clock, "ops")
    sender = Sender(database, send_message=receiver, clock=clock)

    def broken() -> Targets:
        raise ConfigurationError("spanloop.toml cannot be read")

    with pytest.raises(ConfigurationError):
        sender.send_waiting(broken)
    look(sender)
    assert len(receiver.messages) == 1


def test_a_defect_is_an_attempt_that_failed_and_its_text_is_not_shown(
    api: AlertApi, database: ControlDatabase, clock: FakeClock
) -> None:
    def send(channel: AlertChannel, message: Message) -> None:
        raise RuntimeError(f"{channel.url} {message.id}")

    fire(api, database, clock, "ops")
    look(Sender(database, send_message=send, clock=clock))
    delivery = only_message(api)
    assert (delivery.attempts, delivery.error) == (1, "it could not be sent: RuntimeError")
    assert delivery.next_at == clock.now + FIRST_PAUSE
