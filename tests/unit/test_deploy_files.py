"""The files in deploy/: right in form, and their nodes' settings are ones that a node takes.

Nothing is built or started here, since that needs an engine; `docs/deploy.md` says how it is done.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from penstock.config.broker_config import BrokerConfig, broker_config
from penstock.config.load import load_settings

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = "1.28"
"""The oldest that the manifests are for."""
PORT = 9092


def manifests() -> dict[str, Any]:
    text = (ROOT / "deploy/kubernetes/penstock.yaml").read_text()
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(text)}


def compose() -> Any:
    return yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())


def settings_of(arguments: list[str]) -> BrokerConfig:
    """What `penstock serve` makes of its arguments."""
    assert arguments[0] == "serve"
    options = dict(argument.removeprefix("--").split("=", 1) for argument in arguments[1:]
                   if not argument.startswith("--set="))  # fmt: skip
    assert set(options) == {"data-dir", "http"}
    settings = [a.removeprefix("--set=") for a in arguments if a.startswith("--set=")]
    settings += [f"log.dirs={options['data-dir']}", f"penstock.http.listen={options['http']}"]
    return broker_config(load_settings(None, settings))


def in_pod(arguments: list[str], index: int) -> list[str]:
    """The arguments as Kubernetes hands them to the node of a pod."""
    values = {
        "POD_INDEX": str(index),
        "POD_NAME": f"penstock-{index}",
        "POD_NAMESPACE": "default",
        "NODE_NAME": f"machine-{index}",
    }
    return [re.sub(r"\$\((\w+)\)", lambda m: values[m[1]], argument) for argument in arguments]


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "StatefulSet"])
def test_manifests_have_the_form_that_kubernetes_asks_for(kind: str) -> None:
    kubernetes_validate.validate(manifests()[kind], KUBERNETES, strict=True)


def test_a_manifest_with_a_misspelt_field_is_found() -> None:
    manifest = manifests()["StatefulSet"]
    manifest["spec"]["replica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_the_pods_are_the_voters_of_one_cluster() -> None:
    spec = manifests()["StatefulSet"]["spec"]
    container = spec["template"]["spec"]["containers"][0]
    named = {variable["name"] for variable in container["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) == named
    nodes = [settings_of(in_pod(container["args"], i)) for i in range(spec["replicas"])]
    assert [node.node_id for node in nodes] == [0, 1, 2]
    for index, node in enumerate(nodes):
        voters = {int(v.split("@")[0]): v.split("@")[1] for v in node.controller_quorum_voters}
        assert set(voters) == {0, 1, 2}
        assert voters[index] == f"penstock-{index}.{spec['serviceName']}:{PORT}"
        (advertised,) = node.advertised
        assert advertised.host == f"penstock-{index}.penstock.default.svc.cluster.local"
        assert node.data_dir == container["volumeMounts"][0]["mountPath"]


def test_the_nodes_of_the_compose_file_form_one_cluster() -> None:
    services = compose()["services"]
    nodes = {name: settings_of(service["command"]) for name, service in services.items()}
    assert [node.node_id for node in nodes.values()] == [1, 2, 3]
    for name, node in nodes.items():
        service = services[name]
        assert f"{node.node_id}@{name}:{PORT}" in node.controller_quorum_voters
        assert service["hostname"] == name
        outside = {listener.name: listener for listener in node.advertised}["OUTSIDE"]
        bound = {listener.name: listener for listener in node.listen}["OUTSIDE"]
        assert service["ports"] == [f"{outside.port}:{bound.port}"]
        (volume,) = service["volumes"]
        assert volume == f"data-{node.node_id}:{node.data_dir}"
        assert volume.split(":")[0] in compose()["volumes"]


def test_the_image_has_what_its_build_copies() -> None:
    text = (ROOT / "Containerfile").read_text()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
