"""What the fixtures promise, run by `scripts/dist test` where the wheel is installed."""
import datetime
import pathlib
import time

import kubegc as package
import pytest
from kubernetes import client


def config_map(name, **metadata):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, **metadata))


def reference(owner):
    return client.V1OwnerReference(api_version="v1", kind="ConfigMap", name=owner.metadata.name, uid=owner.metadata.uid)


def names(core):
    return sorted(one.metadata.name for one in core.list_namespaced_config_map("default").items)


def test_dependents_are_gone_when_everything_has_settled(kubegc_client, settle):
    core = client.CoreV1Api(kubegc_client)
    settle()
    before = names(core)
    owner = core.create_namespaced_config_map("default", config_map("owner"))
    for number in range(20):
        core.create_namespaced_config_map("default", config_map(f"dependent-{number}", owner_references=[reference(owner)]))
    core.delete_namespaced_config_map("owner", "default")
    settle()
    assert names(core) == before


def test_the_clock_makes_time_pass(kubegc_client, kubegc_clock, settle):
    batch = client.BatchV1Api(kubegc_client)
    container = client.V1Container(name="main", image="busybox:1.37")
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(restart_policy="Never", containers=[container]))
    spec = client.V1JobSpec(template=template, ttl_seconds_after_finished=3600)
    job = client.V1Job(metadata=client.V1ObjectMeta(name="report"), spec=spec)
    batch.create_namespaced_job("default", job)
    end = time.monotonic() + 30
    while not batch.read_namespaced_job("report", "default").status.completion_time:
        assert time.monotonic() < end, "the simulated nodes finish it"
        time.sleep(0.02)
    settle()
    assert [one.metadata.name for one in batch.list_namespaced_job("default").items] == ["report"]
    begun = kubegc_clock.now()
    kubegc_clock.advance(datetime.timedelta(hours=2))
    assert kubegc_clock.ahead() == "2h0m0s"
    assert kubegc_clock.now() - begun >= datetime.timedelta(hours=2)
    settle()
    assert batch.list_namespaced_job("default").items == []


def test_a_reset_puts_objects_and_clock_back(kubegc, kubegc_client, kubegc_clock, settle):
    core = client.CoreV1Api(kubegc_client)
    settle()
    before = names(core)
    core.create_namespaced_config_map("default", config_map("later"))
    kubegc_clock.advance("1h")
    kubegc.reset()
    # The controllers start again, too: one of them writes kube-root-ca.crt.
    settle()
    assert (names(core), kubegc_clock.ahead()) == (before, "0s")


def test_each_test_has_a_server_of_its_own(kubegc, kubegc_client):
    assert "report" not in [one.metadata.name for one in client.BatchV1Api(kubegc_client).list_namespaced_job("default").items]
    assert pathlib.Path(kubegc.kubeconfig).stat().st_mode & 0o077 == 0


def test_a_refused_request_says_why(kubegc):
    with pytest.raises(package.KubegcError, match="is not a duration"):
        kubegc.advance("soon")


def test_timeouts_are_durations_of_every_kind(kubegc):
    for timeout in (10, "10s", datetime.timedelta(seconds=10)):
        assert kubegc.settle(timeout)["settled"] is True


def test_a_server_that_does_not_run_says_so():
    server = package.Server()
    assert server.output() == ""
    with pytest.raises(package.KubegcError, match="does not run"):
        server.settle()


def test_nothing_is_left_behind():
    with package.Server(["--workloads=off"]) as server:
        folder = pathlib.Path(server.kubeconfig).parent
        assert folder.is_dir()
    assert not folder.exists()
    with pytest.raises(package.KubegcError, match="--no-such-flag"):
        package.Server(["--no-such-flag"]).start()
