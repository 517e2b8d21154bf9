"""The scenarios of Jobs, CronJobs, Services, budgets, quotas, storage and namespaces, as in scenarios.py."""

from scenarios import job, owner, scenario, stateful, template


# Jobs


@scenario
def job_completes(game):
    """Three completions, two at a time."""
    game.node("a")
    with game.step("create"):
        game.create(job(completions=3, parallelism=2))
    with game.step("running"):
        game.run()
    with game.step("one succeeds"):
        game.finish(game.pods()[0])
    with game.step("the others run"):
        game.run()
    with game.step("the others succeed"):
        for pod in game.pods(lambda pod: pod["status"]["phase"] == "Running"):
            game.finish(pod)


@scenario
def job_without_completions(game):
    """A work queue: after the first success no pods are created."""
    game.node("a")
    with game.step("create"):
        game.create(job(parallelism=2))
    with game.step("running"):
        game.run()
    with game.step("one succeeds"):
        game.finish(game.pods()[0])
    with game.step("the other succeeds"):
        game.finish(game.pods(lambda pod: pod["status"]["phase"] == "Running")[0])


@scenario
def job_is_indexed(game):
    """Indexed completion; a failure is retried after its backoff."""
    game.node("a")
    with game.step("create"):
        game.create(job(completions=3, parallelism=2, completionMode="Indexed"))
    with game.step("running"):
        game.run()
    with game.step("index 1 succeeds"):
        game.finish(game.index(1))
    with game.step("index 0 fails"):
        game.finish(game.index(0), 1)
    with game.step("its backoff ends"):
        game.wait(10)
    with game.step("they run"):
        game.run()
    with game.step("they succeed"):
        for pod in game.pods(lambda pod: pod["status"]["phase"] == "Running"):
            game.finish(pod)


@scenario
def job_reaches_its_backoff_limit(game):
    """One failure too many ends the Job and its other pods."""
    game.node("a")
    with game.step("create"):
        game.create(job(parallelism=2, completions=2, backoffLimit=0))
    with game.step("running"):
        game.run()
    with game.step("one fails"):
        game.finish(game.pods()[0], 1)
    with game.step("the other ends"):
        game.reap()


@scenario
def job_retries_with_backoff(game):
    """The first retry comes after ten seconds, the second after twenty."""
    game.node("a")
    with game.step("create"):
        game.create(job(backoffLimit=2))
    with game.step("running"):
        game.run()
    with game.step("it fails"):
        game.finish(game.pods()[0], 1)
    with game.step("ten seconds later"):
        game.wait(10)
    with game.step("it runs again"):
        game.run()
    with game.step("it fails again"):
        game.finish(game.pods(lambda pod: pod["status"]["phase"] == "Running")[0], 1)
    with game.step("ten more seconds later"):
        game.wait(8)
    with game.step("twenty seconds later"):
        game.wait(10)


@scenario
def job_limits_failures_per_index(game):
    """backoffLimitPerIndex and maxFailedIndexes."""
    game.node("a")
    with game.step("create"):
        game.create(job(completions=3, parallelism=3, completionMode="Indexed", backoffLimitPerIndex=0, maxFailedIndexes=1))
    with game.step("running"):
        game.run()
    with game.step("index 0 fails"):
        game.finish(game.index(0), 1)
    with game.step("index 1 fails"):
        game.finish(game.index(1), 1)
    with game.step("pods end"):
        game.reap()


@scenario
def job_fails_with_failed_indexes(game):
    """An index has failed, the others succeed: the Job fails at the end."""
    game.node("a")
    with game.step("create"):
        game.create(job(completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=1))
    with game.step("running"):
        game.run()
    with game.step("index 0 fails"):
        game.finish(game.index(0), 1)
    with game.step("its backoff ends"):
        game.wait(10)
    with game.step("it runs again"):
        game.run()
    with game.step("index 1 succeeds"):
        game.finish(game.index(1))
    with game.step("index 0 fails again"):
        game.finish(game.index(0, lambda pod: pod["status"]["phase"] == "Running"), 1)


@scenario
def job_has_a_failure_policy(game):
    """podFailurePolicy: disruptions are ignored, exit code 42 fails the Job, 7 the index."""
    game.node("a")
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
             {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [7]}},
             {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}}]
    with game.step("create"):
        game.create(job(completions=3, parallelism=3, completionMode="Indexed", backoffLimitPerIndex=2, podFailurePolicy={"rules": rules}))
    with game.step("running"):
        game.run()
    with game.step("index 0 is disrupted"):
        pod = game.index(0)
        game.finish(pod, 137, [game.condition("DisruptionTarget", "PreemptionByScheduler")])
    with game.step("its replacement runs"):
        game.wait(10)
        game.run()
    with game.step("index 1 fails with 7"):
        game.finish(game.index(1), 7)
    with game.step("index 2 fails with 42"):
        game.finish(game.index(2), 42)
    with game.step("pods end"):
        game.reap()


@scenario
def job_has_a_success_policy(game):
    """successPolicy: index 1 alone is enough."""
    game.node("a")
    with game.step("create"):
        game.create(job(completions=3, parallelism=3, completionMode="Indexed", successPolicy={"rules": [{"succeededIndexes": "1"}]}))
    with game.step("running"):
        game.run()
    with game.step("index 1 succeeds"):
        game.finish(game.index(1))
    with game.step("the others end"):
        game.reap()


@scenario
def job_is_suspended(game):
    """Created suspended, resumed, suspended again."""
    game.node("a")
    with game.step("create suspended"):
        game.create(job(suspend=True))
    with game.step("resume"):
        game.patch("Job", "work", {"spec": {"suspend": False}})
    with game.step("running"):
        game.run()
    with game.step("suspend"):
        game.patch("Job", "work", {"spec": {"suspend": True}})
    with game.step("the pod ends"):
        game.reap()
    with game.step("resume again"):
        game.patch("Job", "work", {"spec": {"suspend": False}})


@scenario
def job_misses_its_deadline(game):
    """activeDeadlineSeconds; then the Job is collected by its TTL."""
    game.node("a")
    with game.step("create"):
        game.create(job(activeDeadlineSeconds=20, ttlSecondsAfterFinished=15))
    with game.step("running"):
        game.run()
    with game.step("the deadline passes"):
        game.wait(20)
    with game.step("the pod ends"):
        game.reap()
    with game.step("the time to live passes"):
        game.wait(16)


@scenario
def job_replaces_failed_pods_only(game):
    """podReplacementPolicy Failed: a pod that is being deleted is not replaced before it has ended."""
    game.node("a")
    with game.step("create"):
        game.create(job(podReplacementPolicy="Failed"))
    with game.step("running"):
        game.run()
    with game.step("the pod is deleted"):
        game.delete("Pod", game.pods()[0]["metadata"]["name"])
    with game.step("the pod ends"):
        game.reap()
    with game.step("the backoff ends"):
        game.wait(10)
    with game.step("parallelism 0"):
        game.patch("Job", "work", {"spec": {"parallelism": 0}})


@scenario
def job_replaces_deleted_pods(game):
    """By default a pod that is being deleted is replaced at once, and counts as failed."""
    game.node("a")
    with game.step("create"):
        game.create(job())
    with game.step("running"):
        game.run()
    with game.step("the pod is deleted"):
        game.delete("Pod", game.pods()[0]["metadata"]["name"])
    with game.step("the backoff ends"):
        game.wait(10)
    with game.step("the pod ends"):
        game.reap()


@scenario
def job_orphans_its_pods(game):
    """Deleted with its pods orphaned: the tracking finalizer goes all the same."""
    game.node("a")
    with game.step("create"):
        game.create(job(parallelism=2))
    with game.step("running"):
        game.run()
    with game.step("delete"):
        game.delete("Job", "work", "Orphan")


@scenario
def job_is_deleted(game):
    """Deleted in the background while its pods run."""
    game.node("a")
    with game.step("create"):
        game.create(job())
    with game.step("running"):
        game.run()
    with game.step("delete"):
        game.delete("Job", "work")
    with game.step("the pod ends"):
        game.reap()


# CronJobs


def cron(**spec):
    work = job()["spec"]
    return {"kind": "CronJob", "metadata": {"name": "tick"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"metadata": {"labels": {"of": "tick"}}, "spec": work}, **spec}}


def finish_jobs(game, code=0):
    game.run()
    for pod in game.pods(lambda pod: pod["status"]["phase"] == "Running"):
        game.finish(pod, code)


@scenario
def cronjob_keeps_its_history(game):
    """A Job per minute; successes and failures are kept as far as the limits say."""
    game.node("a")
    game.begin_in_minute()
    with game.step("create"):
        game.create(cron(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0))
    for minute in (1, 2):
        with game.step(f"minute {minute}"):
            game.until_minute()
        with game.step(f"Job {minute} succeeds"):
            finish_jobs(game)
    with game.step("suspend"):
        game.patch("CronJob", "tick", {"spec": {"suspend": True}})
    with game.step("a minute passes"):
        game.until_minute()
    with game.step("delete"):
        game.delete("CronJob", "tick")


@scenario
def cronjob_forbids_concurrency(game):
    """concurrencyPolicy Forbid, in a time zone."""
    game.node("a")
    game.begin_in_minute()
    with game.step("create"):
        game.create(cron(concurrencyPolicy="Forbid", timeZone="Asia/Kathmandu"))
    with game.step("minute 1"):
        game.until_minute()
    with game.step("minute 2"):
        game.until_minute()
    with game.step("the Job succeeds"):
        finish_jobs(game)


@scenario
def cronjob_replaces(game):
    """concurrencyPolicy Replace deletes the Job that still runs."""
    game.node("a")
    game.begin_in_minute()
    with game.step("create"):
        game.create(cron(concurrencyPolicy="Replace"))
    with game.step("minute 1"):
        game.until_minute()
    with game.step("running"):
        game.run()
    with game.step("minute 2"):
        game.until_minute()


@scenario
def cronjob_misses_a_job(game):
    """The Job that it started is deleted by somebody else."""
    game.node("a")
    game.begin_in_minute()
    with game.step("create"):
        game.create(cron(startingDeadlineSeconds=100))
    with game.step("minute 1"):
        game.until_minute()
    with game.step("its Job is deleted"):
        for one in game.list("Job"):
            game.delete("Job", one["metadata"]["name"])


# Services


@scenario
def service_gets_endpoints(game):
    """EndpointSlices and Endpoints follow pods and the Service."""
    game.node("a")
    with game.step("create"):
        game.create({"kind": "Service", "metadata": {"name": "web", "labels": {"tier": "front"}}, "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}})
    with game.step("pods exist"):
        game.create(owner("ReplicaSet", replicas=2))
    with game.step("one runs, one is ready"):
        game.run(count=1)
        game.run(ready=False)
    with game.step("both are ready"):
        game.ready(game.pods(lambda pod: pod["status"]["conditions"][1]["status"] == "False")[0], True)
    with game.step("another port"):
        game.patch("Service", "web", {"spec": {"ports": [{"name": "http", "port": 80, "targetPort": 9090}, {"name": "metrics", "port": 91, "targetPort": 91}]}})
    with game.step("a pod is deleted"):
        game.delete("Pod", game.pods()[0]["metadata"]["name"])
    with game.step("it ends"):
        game.reap()
    with game.step("nothing is selected"):
        game.patch("Service", "web", {"spec": {"selector": {"app": "none"}}})
    with game.step("no selector"):
        game.patch("Service", "web", {"spec": {"selector": None}})
    with game.step("delete"):
        game.delete("Service", "web")


@scenario
def service_is_headless(game):
    """A headless Service that publishes pods that are not ready; a StatefulSet's pods have host names."""
    game.node("a")
    with game.step("create"):
        game.create({"kind": "Service", "metadata": {"name": "db"}, "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "web"}}})
        game.create(stateful(replicas=1))
    with game.step("it runs"):
        game.run(ready=False)
    with game.step("it is ready"):
        game.ready(game.get("Pod", "db-0"), True)


@scenario
def endpoints_are_mirrored(game):
    """Endpoints that somebody writes for a Service without a selector."""
    with game.step("create"):
        game.create({"kind": "Service", "metadata": {"name": "ext"}, "spec": {"ports": [{"port": 80}]}})
        game.create({"kind": "Endpoints", "metadata": {"name": "ext", "labels": {"by": "hand"}}, "subsets": [{"addresses": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}], "ports": [{"port": 8080}]}]})
    with game.step("change"):
        game.patch("Endpoints", "ext", {"subsets": [{"addresses": [{"ip": "192.0.2.2", "hostname": "two"}], "notReadyAddresses": [{"ip": "192.0.2.3"}], "ports": [{"port": 8080}]}]})
    with game.step("delete"):
        game.delete("Endpoints", "ext")


# PodDisruptionBudgets, quotas, storage, namespaces


@scenario
def budget_counts_pods(game):
    """Status of a PodDisruptionBudget over a Deployment, with percentages and without pods."""
    game.node("a")
    with game.step("create"):
        game.create({"kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}}})
    with game.step("pods exist"):
        game.create(owner("Deployment", replicas=3))
    with game.step("ready"):
        game.run()
    with game.step("one is not ready"):
        game.ready(game.pods()[0], False)
    with game.step("maxUnavailable"):
        game.patch("PodDisruptionBudget", "web", {"spec": {"minAvailable": None, "maxUnavailable": 2}})
    with game.step("an eviction"):
        name = game.pods(lambda pod: pod["status"]["conditions"][1]["status"] == "True")[0]["metadata"]["name"]
        game.server.ask("POST", f"/api/v1/namespaces/{game.ns}/pods/{name}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}})
    with game.step("it ends"):
        game.reap()


@scenario
def budget_of_bare_pods(game):
    """Pods without a controller: percentages cannot be computed."""
    game.node("a")
    with game.step("pods exist"):
        for name in ("one", "two"):
            game.create({"kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": template()["spec"]})
        game.run()
    with game.step("minAvailable 1"):
        game.create({"kind": "PodDisruptionBudget", "metadata": {"name": "count"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}})
    with game.step("maxUnavailable 50%"):
        game.create({"kind": "PodDisruptionBudget", "metadata": {"name": "share"}, "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "web"}}}})


@scenario
def quota_counts(game):
    """Usage of a ResourceQuota follows what exists."""
    with game.step("create"):
        game.create({"kind": "ResourceQuota", "metadata": {"name": "all"}, "spec": {"hard": {"pods": "5", "requests.cpu": "4", "services": "2", "count/deployments.apps": "3"}}})
    with game.step("a Service and a pod"):
        game.create({"kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})
        game.create({"kind": "Pod", "metadata": {"name": "one"}, "spec": {"containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": "500m"}}}]}})
    with game.step("they go"):
        game.delete("Pod", "one")
        game.delete("Service", "web")
    with game.step("another limit"):
        game.patch("ResourceQuota", "all", {"spec": {"hard": {"pods": "1"}}})


def volume(game, name, **spec):
    return {"kind": "PersistentVolume", "metadata": {"name": f"{game.ns}.{name}"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": game.ns, "hostPath": {"path": "/tmp/none"}, **spec}}


def claim(game, name, storage="1Gi", **spec):
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": game.ns, "resources": {"requests": {"storage": storage}}, **spec}}


@scenario
def claim_is_bound(game):
    """The smallest volume that fits is bound; a claim too large stays pending; released when the claim is gone."""
    with game.step("volumes exist"):
        game.create(volume(game, "small"), volume(game, "large", capacity={"storage": "5Gi"}))
    with game.step("a claim"):
        game.create(claim(game, "data"))
    with game.step("a claim that is too large"):
        game.create(claim(game, "huge", "9Gi"))
    with game.step("the claim goes"):
        game.delete("PersistentVolumeClaim", "data")


@scenario
def claim_names_a_volume(game):
    """volumeName, claimRef, and a claim that loses its volume."""
    with game.step("volumes exist"):
        game.create(volume(game, "one"), volume(game, "two", claimRef={"namespace": game.ns, "name": "second"}))
    with game.step("claims"):
        game.create(claim(game, "first", volumeName=f"{game.ns}.one"), claim(game, "second"))
    with game.step("a third claim names the first volume"):
        game.create(claim(game, "third", volumeName=f"{game.ns}.one"))
    with game.step("a volume is deleted"):
        game.delete("PersistentVolume", f"{game.ns}.one")
        game.json_patch("PersistentVolume", f"{game.ns}.one", {"op": "remove", "path": "/metadata/finalizers"})


@scenario
def claim_waits_for_a_consumer(game):
    """WaitForFirstConsumer: the claim is bound when the scheduler has chosen a node."""
    game.node("a")
    with game.step("a volume exists"):
        game.create({"kind": "StorageClass", "metadata": {"name": game.ns}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"})
        game.create(volume(game, "one"))
    with game.step("a claim"):
        game.create(claim(game, "data"))
    with game.step("a node is selected"):
        game.patch("PersistentVolumeClaim", "data", {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": f"{game.ns}.a"}}})


@scenario
def claim_is_protected(game):
    """A claim that a pod uses stays until the pod is gone."""
    game.node("a")
    with game.step("a volume exists"):
        game.create(volume(game, "one"))
    with game.step("create"):
        game.create(claim(game, "data"))
        spec = {**template()["spec"], "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
        game.create({"kind": "Pod", "metadata": {"name": "user"}, "spec": spec})
    with game.step("it runs"):
        game.run()
    with game.step("the claim is deleted"):
        game.delete("PersistentVolumeClaim", "data")
    with game.step("the pod goes"):
        game.delete("Pod", "user", grace=0)


@scenario
def namespace_is_furnished(game):
    """Every namespace gets a ServiceAccount and the certificates of the server; again when they are deleted."""
    with game.step("it exists"):
        pass
    with game.step("both are deleted"):
        game.delete("ServiceAccount", "default")
        game.delete("ConfigMap", "kube-root-ca.crt")
