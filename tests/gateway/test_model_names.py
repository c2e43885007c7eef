"""Further names of a served model, by which unchanged apps call it."""

import httpx
import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.gateway.model_names import ModelNames

from .support import RunningGateway


def test_the_served_version_answers_to_further_names(gateway: RunningGateway) -> None:
    label = gateway.chat().json()["model"]
    name = label.partition("@")[0]
    assert gateway.chat(model="gpt-4o-mini").status_code == 404
    assert gateway.admin("names", model=name, names=["gpt-4o-mini"]).status_code == 200
    answer = gateway.chat(model="gpt-4o-mini")
    assert (answer.status_code, answer.json()["model"]) == (200, label)
    cards = httpx.get(f"{gateway.url}/v1/models").json()["data"]
    assert "gpt-4o-mini" in [card["id"] for card in cards]
    assert gateway.chat(model="gpt-4o").status_code == 404
    assert gateway.admin("names", model=name, names=[]).status_code == 200
    assert gateway.chat(model="gpt-4o-mini").status_code == 404


def test_the_name_of_a_deployed_model_stays_its_own(gateway: RunningGateway) -> None:
    label = gateway.chat().json()["model"]
    assert gateway.admin("names", model="another", names=[label.partition("@")[0]]).status_code == 200
    assert gateway.chat(model=label.partition("@")[0]).json()["model"] == label


@pytest.mark.parametrize(
    ("model", "names"),
    [("", []), ("m@v1", []), ("m", "gpt"), ("m", [""]), ("m", ["m@v2"]), ("m", ["n" * 129]), ("m", [1])],
)
def test_what_is_no_name_is_refused(gateway: RunningGateway, model: str, names: object) -> None:
    refused = gateway.admin("names", model=model, names=names)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")


def test_names_survive_a_restart_and_belong_to_one_model(data_dir: DataDir) -> None:
    names = ModelNames(data_dir)
    names.set("a", ["gpt-4o", "gpt-4o-mini"])
    names.set("b", ["gpt-4o"])
    again = ModelNames(data_dir)
    assert [again.resolve(name) for name in ("gpt-4o", "gpt-4o-mini", "b", "")] == ["b", "a", "b", ""]
    assert (again.of("a"), again.of("b")) == (("gpt-4o-mini",), ("gpt-4o",))
    data_dir.write(data_dir.gateway / "model_names.json", "{")
    with pytest.raises(ConfigurationError, match="is damaged"):
        ModelNames(data_dir)
