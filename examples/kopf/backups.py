"""An operator in Kopf: for each Backup a Job, and a bucket that is released when the Backup is deleted."""
import kopf
from kubernetes import client, config

GROUP, VERSION, PLURAL = "example.com", "v1", "backups"


@kopf.on.startup()
def configure(settings, **_):
    config.load_kube_config()
    settings.persistence.finalizer = f"{GROUP}/bucket"
    settings.posting.enabled = False


@kopf.on.create(GROUP, VERSION, PLURAL)
def create(spec, name, namespace, **_):
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "ttlSecondsAfterFinished": spec["keepSeconds"],
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "backup", "image": "example.com/backup:1"}]}},
        },
    }
    # The owner reference: garbage collection deletes the Job when the Backup is gone.
    kopf.adopt(job)
    client.BatchV1Api().create_namespaced_job(namespace, job)
    return {"job": name}


@kopf.on.delete(GROUP, VERSION, PLURAL)
def release(spec, namespace, **_):
    # What is outside of Kubernetes needs a finalizer; here a ConfigMap stands for it.
    core = client.CoreV1Api()
    core.create_namespaced_config_map(namespace, {"metadata": {"name": f"released-{spec['bucket']}"}})
