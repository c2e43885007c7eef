"""The manifests of ``docker/kubernetes``, without a cluster: their schemas and references, and the script's output."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import kubernetes_manifests
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "docker" / "kubernetes"
VERSION = "1.34"
FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.yaml"))
MANIFESTS = [name for name in FILES if name.startswith("base/") and not name.endswith("kustomization.yaml")]


def documents(name: str) -> list[dict[str, Any]]:
    return [cast("dict[str, Any]", each) for each in yaml.safe_load_all((FOLDER / name).read_text())]


def every(value: object, key: str) -> Iterator[Any]:
    """Yield the values of a key at any depth."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        if key in fields:
            yield fields[key]
        for each in fields.values():
            yield from every(each, key)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from every(each, key)


def test_the_files_are_what_the_script_writes() -> None:
    written = {str(path.relative_to(FOLDER)): path.read_text() for path in FOLDER.rglob("*") if path.is_file()}
    assert written == kubernetes_manifests.files()


@pytest.mark.parametrize("name", MANIFESTS)
def test_each_manifest_has_the_schema_of_its_kind(name: str) -> None:
    for document in documents(name):
        kubernetes_validate.validate(document, VERSION, strict=True)


def test_what_manifests_name_is_there() -> None:
    kustomization, *_ = documents("base/kustomization.yaml")
    everything = [document for name in MANIFESTS for document in documents(name)]
    assert {*kustomization["resources"]} == {name.removeprefix("base/") for name in MANIFESTS}
    secrets = {each["name"] for each in kustomization["secretGenerator"]}
    optional = {
        f"spanloop-{name}-environment" for name, role in kubernetes_manifests.ROLES.items() if role.secret_environment
    }
    assert {*every(everything, "secretName")} == secrets
    assert {each["name"] for each in every(everything, "secretRef")} == optional
    assert {each["name"] for each in every(everything, "configMap")} == {"spanloop-settings"}
    claims = {each["metadata"]["name"] for each in everything if each["kind"] == "PersistentVolumeClaim"}
    assert {*every(everything, "claimName")} == claims
    for pod in every(everything, "template"):
        volumes = {each["name"] for each in pod["spec"]["volumes"]} | {"data"}
        assert {each["name"] for mounts in every(pod, "volumeMounts") for each in mounts} <= volumes
    keys = {Path(each["value"]).name for each in everything_in_env(everything) if each["name"].endswith("_FILE")}
    files = {Path(file).name for each in kustomization["secretGenerator"] for file in each["files"]}
    assert keys <= files


def everything_in_env(manifests: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for variables in every(manifests, "env"):
        yield from variables


def test_further_gateways_follow_the_first_one_which_the_roles_address() -> None:
    balanced, pods, stateful_set, autoscaler = documents("base/gateway.yaml")
    assert balanced["spec"]["sessionAffinity"] == "ClientIP"
    assert pods["spec"]["publishNotReadyAddresses"]
    name = f"{stateful_set['metadata']['name']}-0.{pods['metadata']['name']}"
    assert stateful_set["spec"]["serviceName"] == pods["metadata"]["name"]
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    assert container["args"][-2:] == ["--follow", f"http://{name}:8010"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert {"SPANLOOP_KEY_FILE"} <= {each["name"] for each in container["env"]}
    assert autoscaler["spec"]["maxReplicas"] > 1
    variables = [*everything_in_env([document for each in MANIFESTS for document in documents(each)])]
    addresses = {each["value"] for each in variables if each["name"] == "SPANLOOP_GATEWAY_URL"}
    assert addresses == {f"http://{name}:8010"}


def test_the_gpu_overlay_changes_roles_that_are_there() -> None:
    (overlay,) = documents("overlays/gpu/kustomization.yaml")
    patches = [document for each in overlay["patches"] for document in documents(f"overlays/gpu/{each['path']}")]
    assert {patch["metadata"]["name"] for patch in patches} == {"runner", "gateway"}
    for patch in patches:
        (container,) = patch["spec"]["template"]["spec"]["containers"]
        assert container["name"] == patch["metadata"]["name"]
        assert container["image"].endswith("-cuda")
        assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
