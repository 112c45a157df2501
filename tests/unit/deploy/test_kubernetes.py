"""Manifests: valid by Kubernetes' own schemas, and of one mind with the gateway's settings and HAProxy's file."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import promql_parser
import pytest
import yaml

from tests.support.programs import required
from tests.unit.deploy.test_container import ours
from tests.unit.deploy.test_monitoring import told
from voicegate import __version__
from voicegate.gateway.config import GatewayConfig, from_environment

KUBERNETES = Path(__file__).parents[3] / "deploy/kubernetes"
FILES = sorted(path for path in KUBERNETES.glob("*.yaml") if path.name != "kustomization.yaml")
VERSIONS = ("1.30", "1.37")


def documents(*paths: Path) -> list[dict[str, Any]]:
    return [document for path in paths for document in yaml.safe_load_all(path.read_text())]


def one(kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in documents(*FILES) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def gateway() -> dict[str, Any]:
    pod: dict[str, Any] = one("StatefulSet", "voicegate")["spec"]["template"]["spec"]
    return pod


def config() -> GatewayConfig:
    """As the first pod reads it."""
    found = ours("gpu")
    for variable in gateway()["containers"][0]["env"]:
        found[variable["name"]] = variable.get("value", "")
    found |= {"VOICEGATE_INSTANCE": "voicegate-0", "VOICEGATE_TOKEN_SECRET": "s" * 32}
    return from_environment(found)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_object_is_what_kubernetes_knows(path: Path, version: str) -> None:
    for document in documents(path):
        if document["apiVersion"].startswith("keda.sh/"):
            continue  # KEDA's own: below
        kubernetes_validate.validate(document, version, strict=True)


def test_a_wrong_field_would_be_seen() -> None:
    document = one("PodDisruptionBudget", "voicegate")
    document["spec"]["maxUnavailible"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


def test_one_of_the_two_autoscalers_is_applied() -> None:
    (kustomization,) = documents(KUBERNETES / "kustomization.yaml")
    assert {*kustomization["resources"], "autoscale-keda.yaml"} == {path.name for path in FILES}
    named = {image["name"] for image in kustomization["images"]}
    assert gateway()["containers"][0]["image"] in named
    (generated,) = kustomization["configMapGenerator"]
    (volume,) = one("Deployment", "voicegate-balancer")["spec"]["template"]["spec"]["volumes"]
    assert volume["configMap"]["name"] == generated["name"]
    assert all((KUBERNETES / name).is_file() for name in generated["files"])


def test_it_is_this_version_that_is_applied() -> None:
    (kustomization,) = documents(KUBERNETES / "kustomization.yaml")
    assert [image["newTag"] for image in kustomization["images"]] == [__version__]


def test_prometheus_finds_the_pods_by_the_service_that_the_manual_names() -> None:
    manual = (KUBERNETES.parents[1] / "docs/operations/scaling.md").read_text()
    (name,) = re.findall(r"names: \[([a-z-]+)\.NAMESPACE", manual)
    service = one("Service", name)["spec"]
    assert service["clusterIP"] == "None", "of others the address is one of all"
    assert service["selector"] == one("StatefulSet", "voicegate")["spec"]["selector"]["matchLabels"]
    allowed = [
        rule for rule in one("NetworkPolicy", "voicegate")["spec"]["ingress"] if {"port": "metrics"} in rule["ports"]
    ]
    (namespace,) = [each["namespaceSelector"]["matchLabels"] for rule in allowed for each in rule["from"]]
    assert f"`{namespace['kubernetes.io/metadata.name']}`" in manual


def test_ports_probes_and_times_are_the_gateways() -> None:
    container, settings = gateway()["containers"][0], config()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"gateway": settings.port, "metrics": settings.metrics_port, "agent": settings.agent_port}
    assert {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe")} == {"/readyz"}
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz", "a full gateway is not to be killed"
    (_, seconds) = container["lifecycle"]["preStop"]["exec"]["command"]
    assert gateway()["terminationGracePeriodSeconds"] > float(seconds) + settings.drain_s
    assert settings.agent_host == settings.metrics_host == settings.host == "0.0.0.0"
    assert settings.require_key
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert mounts[str(settings.model_dir)]
    assert mounts[str(settings.api_keys_file.parent)] if settings.api_keys_file else False
    assert not mounts["/cache"], "where Triton keeps its kernels"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_nothing_runs_as_root_or_writes_into_its_image() -> None:
    for pod in (gateway(), one("Deployment", "voicegate-balancer")["spec"]["template"]["spec"]):
        assert pod["securityContext"]["runAsNonRoot"]
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]


def test_selectors_find_their_pods() -> None:
    labels = [one(kind, name)["spec"]["template"]["metadata"]["labels"] for kind, name in (
        ("StatefulSet", "voicegate"), ("Deployment", "voicegate-balancer"))]  # fmt: skip
    selectors = [each["spec"]["selector"] for each in documents(*FILES) if "selector" in each["spec"]]
    assert len(selectors) == 6
    for selector in selectors:
        assert selector.get("matchLabels", selector) in labels
    assert (
        one("StatefulSet", "voicegate")["spec"]["serviceName"] == one("Service", "voicegate-pods")["metadata"]["name"]
    )


def test_both_autoscalers_want_the_same() -> None:
    hpa = one("HorizontalPodAutoscaler", "voicegate")["spec"]
    keda = one("ScaledObject", "voicegate")["spec"]
    (pods,), (trigger,) = hpa["metrics"], keda["triggers"]
    assert hpa["scaleTargetRef"] == keda["scaleTargetRef"]
    assert hpa["scaleTargetRef"]["kind"] == "StatefulSet"
    assert (hpa["minReplicas"], hpa["maxReplicas"]) == (keda["minReplicaCount"], keda["maxReplicaCount"])
    assert pods["pods"]["target"]["averageValue"] == trigger["metadata"]["threshold"]
    assert hpa["behavior"] == keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert pods["pods"]["metric"]["name"] in told()
    promql_parser.parse(trigger["metadata"]["query"])
    assert pods["pods"]["metric"]["name"] in trigger["metadata"]["query"]
    # One is drained before the next is taken away.
    (policy,) = hpa["behavior"]["scaleDown"]["policies"]
    assert (policy["value"], policy["periodSeconds"] >= gateway()["terminationGracePeriodSeconds"]) == (1, True)


def test_haproxy_names_as_many_pods_as_there_may_be(tmp_path: Path) -> None:
    text = (KUBERNETES / "haproxy.cfg").read_text()
    servers = re.findall(r"^    server (\S+) (\S+)$", text, re.MULTILINE)
    num_most = one("HorizontalPodAutoscaler", "voicegate")["spec"]["maxReplicas"]
    settings = config()
    pods, domain = one("StatefulSet", "voicegate")["spec"]["serviceName"], "${POD_NAMESPACE}.svc.${CLUSTER_DOMAIN}"
    assert servers == [
        (f"voicegate-{number}", f'"voicegate-{number}.{pods}.{domain}:{settings.port}"') for number in range(num_most)
    ]
    (container,) = one("Deployment", "voicegate-balancer")["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value", "default") for variable in container["env"]}
    assert f"agent-port {settings.agent_port}" in text
    shutil.copy(KUBERNETES / "haproxy.cfg", tmp_path)
    done = subprocess.run(
        [required("haproxy"), "-c", "-f", tmp_path / "haproxy.cfg"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | variables,
    )
    assert done.returncode == 0, done.stderr


def test_a_pod_is_not_told_of_services_as_if_they_were_settings() -> None:
    for pod in (gateway(), one("Deployment", "voicegate-balancer")["spec"]["template"]["spec"]):
        assert pod["enableServiceLinks"] is False


def test_it_balances_as_the_file_that_is_tested_before_gateways() -> None:
    """But for how gateways are found."""

    def rules(path: Path) -> set[str]:
        lines = {line.split("#")[0].strip() for line in path.read_text().splitlines()}
        return {line for line in lines if line and not line.startswith(("server ", "default-server", "hard-stop"))}

    here = rules(KUBERNETES / "haproxy.cfg")
    assert rules(KUBERNETES.parent / "haproxy/haproxy.cfg") <= here


def test_nothing_is_published_in_the_clear() -> None:
    services = [each for each in documents(*sorted(KUBERNETES.glob("*.yaml"))) if each["kind"] == "Service"]
    assert services
    assert {service["spec"].get("type", "ClusterIP") for service in services} == {"ClusterIP"}
