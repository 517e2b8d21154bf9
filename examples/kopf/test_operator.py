"""The operator against an API server with every collector; see ../README.md."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

FOLDER = pathlib.Path(__file__).resolve().parent
BACKUPS = ("example.com", "v1", "default", "backups")
PATIENCE_SECONDS = 30


def until(what, condition):
    """What the operator does is known to it alone; what garbage collection does is awaited by `settle`."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def is_absent(read, *arguments):
    try:
        read(*arguments)
    except ApiException as error:
        assert error.status == 404, error
        return True
    return False


@pytest.fixture
def operator(kubegc, kubegc_client, tmp_path):
    """The operator in a process of its own, as in production."""
    definition = json.loads((FOLDER.parent / "backups.json").read_text())
    client.ApiextensionsV1Api(kubegc_client).create_custom_resource_definition(definition)
    command = [sys.executable, "-m", "kopf", "run", "--all-namespaces", "--standalone", str(FOLDER / "backups.py")]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env={**os.environ, "KUBECONFIG": kubegc.kubeconfig}, stdout=output, stderr=output)
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 0, log.read_text()


def test_a_backup_from_its_creation_to_its_deletion(operator, kubegc_client, kubegc_clock, settle):
    objects, batch, core = client.CustomObjectsApi(kubegc_client), client.BatchV1Api(kubegc_client), client.CoreV1Api(kubegc_client)

    def backup(name):
        body = {"apiVersion": "example.com/v1", "kind": "Backup", "metadata": {"name": name}, "spec": {"bucket": name, "keepSeconds": 3600}}
        until("the definition is served", lambda: objects.list_namespaced_custom_object(*BACKUPS) is not None)
        objects.create_namespaced_custom_object(*BACKUPS, body)
        until("the operator has created the Job", lambda: not is_absent(batch.read_namespaced_job, name, "default"))

    backup("nightly")
    until("the Job has finished", lambda: batch.read_namespaced_job_status("nightly", "default").status.completion_time)

    # Its time passes: the Job and its pod are collected, the Backup stays.
    kubegc_clock.advance("2h")
    settle()
    assert is_absent(batch.read_namespaced_job, "nightly", "default")
    assert core.list_namespaced_pod("default").items == []
    assert not is_absent(objects.get_namespaced_custom_object, *BACKUPS, "nightly")

    # The Backup is deleted: the operator releases the bucket, and the Job of another day goes with it.
    backup("weekly")
    objects.delete_namespaced_custom_object(*BACKUPS, "weekly")
    until("the finalizer is removed", lambda: is_absent(objects.get_namespaced_custom_object, *BACKUPS, "weekly"))
    settle()
    assert not is_absent(core.read_namespaced_config_map, "released-weekly", "default")
    assert is_absent(batch.read_namespaced_job, "weekly", "default")
    assert core.list_namespaced_pod("default").items == []
