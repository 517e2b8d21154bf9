"""The scenarios of what has replicas: what a user, a scheduler and kubelets do. Each is a function of a histories.Play; its name is that of its
namespace. The others are in more_scenarios.py."""

ALL = {}


def scenario(script):
    ALL[script.__name__.replace("_", "-")] = script
    return script


def template(image="web:1", labels=None, restart=None, **spec):
    made = {"metadata": {"labels": labels or {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": image}], "terminationGracePeriodSeconds": 5, **spec}}
    if restart:
        made["spec"]["restartPolicy"] = restart
    return made


def owner(kind, name="web", replicas=None, image="web:1", **spec):
    made = {"selector": {"matchLabels": {"app": "web"}}, "template": template(image), **spec}
    if replicas is not None:
        made["replicas"] = replicas
    return {"kind": kind, "metadata": {"name": name}, "spec": made}


def job(name="work", image="work:1", restart="Never", pod=None, **spec):
    return {"kind": "Job", "metadata": {"name": name}, "spec": {"template": template(image, {"app": "work"}, restart, **(pod or {})), **spec}}


def roll(game, kind="Deployment", name="web", image="web:2"):
    game.patch(kind, name, {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})


def until_rolled(game, turns=6, **labels):
    """Lets kubelets stop and start pods until none is left to start."""
    for turn in range(1, turns + 1):
        before = len(game.steps)
        if game.pods(lambda pod: "deletionTimestamp" in pod["metadata"], **labels):
            with game.step(f"turn {turn}: pods end"):
                game.reap()
        if game.pods(lambda pod: pod["status"].get("phase") == "Pending", **labels):
            with game.step(f"turn {turn}: pods start"):
                game.run(**labels)
        if len(game.steps) == before:
            return


# Deployments


@scenario
def deployment_rolls(game):
    """A Deployment is created, becomes ready, is updated and rolls with surge and unavailability."""
    game.node("a")
    with game.step("create"):
        game.create(owner("Deployment", replicas=4, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}))
    with game.step("pods become ready"):
        game.run()
    with game.step("update"):
        roll(game)
    until_rolled(game)


@scenario
def deployment_becomes_ready_pod_by_pod(game):
    """Each pod that becomes ready is counted."""
    game.node("a")
    with game.step("create"):
        game.create(owner("Deployment", replicas=3))
    for number in range(3):
        with game.step(f"pod {number + 1} becomes ready"):
            game.run(count=1)
    with game.step("one is no longer ready"):
        game.ready(game.pods()[0], False)
    with game.step("delete"):
        game.delete("Deployment", "web")
    with game.step("pods end"):
        game.reap()


@scenario
def deployment_surges_only(game):
    """With maxUnavailable 0, an old pod goes when a new one is ready; minReadySeconds delays that."""
    game.node("a")
    with game.step("create"):
        game.create(owner("Deployment", replicas=2, minReadySeconds=15, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0}}))
    with game.step("pods become ready"):
        game.run()
    with game.step("pods become available"):
        game.wait(16)
    with game.step("update"):
        roll(game)
    with game.step("the new pod becomes ready"):
        game.run()
    with game.step("the new pod becomes available"):
        game.wait(16)
    with game.step("the old pod ends"):
        game.reap()


@scenario
def deployment_recreates(game):
    """Strategy Recreate: new pods are created when the last old one is gone."""
    game.node("a")
    with game.step("create"):
        game.create(owner("Deployment", replicas=2, strategy={"type": "Recreate"}))
    with game.step("pods become ready"):
        game.run()
    with game.step("update"):
        roll(game)
    with game.step("old pods end"):
        game.reap()
    with game.step("new pods become ready"):
        game.run()


@scenario
def deployment_scales(game):
    """Scaling up and down, to nothing and back; in the middle of a rollout in proportion."""
    game.node("a")
    with game.step("create"):
        game.create(owner("Deployment", replicas=2))
    with game.step("pods become ready"):
        game.run()
    with game.step("scale up to 4"):
        game.patch("Deployment", "web", {"spec": {"replicas": 4}}, "scale")
    with game.step("pods become ready again"):
        game.run()
    with game.step("update"):
        roll(game)
    with game.step("scale to 10 during the rollout"):
        game.patch("Deployment", "web", {"spec": {"replicas": 10}}, "scale")
    with game.step("scale to 0"):
        game.patch("Deployment", "web", {"spec": {"replicas": 0}}, "scale")
    with game.step("pods end"):
        game.reap()
    with game.step("scale to 1"):
        game.patch("Deployment", "web", {"spec": {"replicas": 1}}, "scale")


@scenario
def deployment_pauses(game):
    """Paused, changes are not rolled out, but scaling works; resumed, they are."""
    game.node("a")
    with game.step("create paused"):
        game.create(owner("Deployment", replicas=2, paused=True))
    with game.step("resume"):
        game.patch("Deployment", "web", {"spec": {"paused": None}})
    with game.step("pods become ready"):
        game.run()
    with game.step("pause"):
        game.patch("Deployment", "web", {"spec": {"paused": True}})
    with game.step("update while paused"):
        roll(game)
    with game.step("scale while paused"):
        game.patch("Deployment", "web", {"spec": {"replicas": 3}})
    with game.step("resume again"):
        game.patch("Deployment", "web", {"spec": {"paused": None}})
    until_rolled(game)


@scenario
def deployment_rolls_back(game):
    """Back to an old template: the old ReplicaSet is the new one again; a changed annotation is copied."""
    game.node("a")
    with game.step("create"):
        one = owner("Deployment", replicas=1)
        one["metadata"]["annotations"] = {"kubernetes.io/change-cause": "first"}
        game.create(one)
    with game.step("ready"):
        game.run()
    with game.step("update"):
        game.patch("Deployment", "web", {"metadata": {"annotations": {"kubernetes.io/change-cause": "second"}}, "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "web:2"}]}}}})
    until_rolled(game)
    with game.step("roll back"):
        game.patch("Deployment", "web", {"metadata": {"annotations": {"kubernetes.io/change-cause": "first"}}, "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "web:1"}]}}}})
    until_rolled(game)
    with game.step("roll back to the second"):
        roll(game)
    until_rolled(game)


@scenario
def deployment_misses_its_progress_deadline(game):
    """Pods that never become ready: ProgressDeadlineExceeded; then they do."""
    game.node("a")
    with game.step("create"):
        game.create(owner("Deployment", replicas=1, progressDeadlineSeconds=15))
    with game.step("the deadline passes"):
        game.wait(18)
    with game.step("the pod becomes ready"):
        game.run()
    with game.step("update"):
        roll(game, image="broken")
    with game.step("the deadline of the update passes"):
        game.wait(18)


@scenario
def deployment_history_is_limited(game):
    """revisionHistoryLimit: the oldest ReplicaSets go."""
    game.node("a")
    with game.step("create"):
        game.create(owner("Deployment", replicas=1, revisionHistoryLimit=1))
    with game.step("ready"):
        game.run()
    for number in (2, 3, 4):
        with game.step(f"update {number}"):
            roll(game, image=f"web:{number}")
        until_rolled(game, 3)
    with game.step("no history"):
        game.patch("Deployment", "web", {"spec": {"revisionHistoryLimit": 0}})


@scenario
def deployment_adopts_and_releases(game):
    """A ReplicaSet whose labels match is adopted; one that is relabelled is released and replaced."""
    game.node("a")
    with game.step("an orphan exists"):
        game.create({"kind": "ReplicaSet", "metadata": {"name": "orphan", "labels": {"app": "web"}},
                     "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template()}})
    with game.step("create"):
        game.create(owner("Deployment", replicas=1))
    with game.step("release"):
        game.patch("ReplicaSet", "orphan", {"metadata": {"labels": {"app": "other"}}})
    with game.step("orphan its sets"):
        game.delete("Deployment", "web", "Orphan")
    with game.step("create again"):
        game.create(owner("Deployment", replicas=1))


@scenario
def deployment_cannot_create_pods(game):
    """A quota forbids pods: ReplicaFailure on set and Deployment, until the quota is gone."""
    game.node("a")
    with game.step("create"):
        game.create({"kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
        game.wait(1)
        game.create(owner("Deployment", replicas=1))
    with game.step("the quota goes"):
        game.delete("ResourceQuota", "none")
        game.patch("Deployment", "web", {"spec": {"replicas": 2}})


@scenario
def deployment_is_deleted_in_the_foreground(game):
    """Foreground: nothing is created any more while it is being deleted."""
    game.node("a")
    with game.step("create"):
        game.create(owner("Deployment", replicas=2))
    with game.step("ready"):
        game.run()
    with game.step("delete"):
        game.delete("Deployment", "web", "Foreground")
    with game.step("pods end"):
        game.reap()


# ReplicaSets and ReplicationControllers


@scenario
def replicaset_keeps_its_number(game):
    """Deleted, failed, adopted and released pods; scaling down prefers pods that are not ready."""
    game.node("a")
    with game.step("create"):
        game.create(owner("ReplicaSet", replicas=3))
    with game.step("two become ready"):
        game.run(count=2)
    with game.step("scale down to 2"):
        game.patch("ReplicaSet", "web", {"spec": {"replicas": 2}}, "scale")
    with game.step("a pod is deleted"):
        game.delete("Pod", game.pods()[0]["metadata"]["name"])
    with game.step("it ends"):
        game.reap()
    with game.step("its replacement fails"):
        game.run(ready=False)
        game.finish(game.pods(lambda pod: pod["status"]["conditions"][1]["status"] == "False")[0], 1)
    with game.step("a pod is released"):
        name = game.pods(lambda pod: pod["status"]["phase"] == "Running")[0]["metadata"]["name"]
        game.patch("Pod", name, {"metadata": {"labels": {"app": "other"}}})
    with game.step("it is adopted again"):
        game.patch("Pod", name, {"metadata": {"labels": {"app": "web"}}})


@scenario
def replicaset_deletes_by_cost(game):
    """The annotation pod-deletion-cost decides among pods that are ready."""
    game.node("a")
    with game.step("create"):
        game.create(owner("ReplicaSet", replicas=3, minReadySeconds=15))
    with game.step("ready"):
        game.run()
        pods = game.pods()
        for cost, pod in zip(("10", "-5", "0"), pods):
            game.patch("Pod", pod["metadata"]["name"], {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}})
    with game.step("available"):
        game.wait(16)
    with game.step("scale down to 1"):
        game.patch("ReplicaSet", "web", {"spec": {"replicas": 1}})
    with game.step("pods end"):
        game.reap()


@scenario
def replicationcontroller_lives(game):
    """A ReplicationController is created, scaled, its pods become ready, and is deleted."""
    game.node("a")
    with game.step("create"):
        game.create({"kind": "ReplicationController", "metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": {"app": "web"}, "template": template()}})
    with game.step("ready"):
        game.run()
    with game.step("scale"):
        game.patch("ReplicationController", "web", {"spec": {"replicas": 3}})
    with game.step("a pod is released"):
        game.patch("Pod", game.pods()[0]["metadata"]["name"], {"metadata": {"labels": {"app": "other"}}})
    with game.step("delete"):
        game.delete("ReplicationController", "web")
    with game.step("pods end"):
        game.reap()


# StatefulSets


def stateful(name="db", replicas=3, **spec):
    one = owner("StatefulSet", name, replicas, serviceName="db", **spec)
    return one


@scenario
def statefulset_is_ordered(game):
    """One pod after the other, up, down and updated from the last."""
    game.node("a")
    with game.step("create"):
        game.create(stateful(replicas=2))
    with game.step("db-0 becomes ready"):
        game.run()
    with game.step("db-1 becomes ready"):
        game.run()
    with game.step("update"):
        roll(game, "StatefulSet", "db")
    until_rolled(game)
    with game.step("scale down to 0"):
        game.patch("StatefulSet", "db", {"spec": {"replicas": 0}}, "scale")
    with game.step("db-1 ends"):
        game.reap()
    with game.step("db-0 ends"):
        game.reap()


@scenario
def statefulset_is_parallel(game):
    """podManagementPolicy Parallel, and a pod that fails is replaced."""
    game.node("a")
    with game.step("create"):
        game.create(stateful(podManagementPolicy="Parallel"))
    with game.step("ready"):
        game.run()
    with game.step("db-1 fails"):
        game.finish(game.get("Pod", "db-1"), 1)
    with game.step("db-1 ends"):
        game.reap()
    with game.step("scale down to 1"):
        game.patch("StatefulSet", "db", {"spec": {"replicas": 1}}, "scale")
    with game.step("pods end"):
        game.reap()


@scenario
def statefulset_is_partitioned(game):
    """A partition: only pods from that ordinal on are updated; then rolled back."""
    game.node("a")
    with game.step("create"):
        game.create(stateful(replicas=2, podManagementPolicy="Parallel", updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}))
    with game.step("ready"):
        game.run()
    with game.step("update"):
        roll(game, "StatefulSet", "db")
    until_rolled(game)
    with game.step("db-0 is deleted"):
        game.delete("Pod", "db-0")
    with game.step("db-0 ends"):
        game.reap()
    with game.step("db-0 becomes ready"):
        game.run()
    with game.step("no partition"):
        game.patch("StatefulSet", "db", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
    until_rolled(game)
    with game.step("roll back"):
        roll(game, "StatefulSet", "db", "web:1")
    until_rolled(game)


@scenario
def statefulset_updates_on_delete(game):
    """OnDelete: updated pods come only in the place of deleted ones; ordinals begin at 5."""
    game.node("a")
    with game.step("create"):
        game.create(stateful(replicas=2, podManagementPolicy="Parallel", updateStrategy={"type": "OnDelete"}, ordinals={"start": 5}))
    with game.step("ready"):
        game.run()
    with game.step("update"):
        roll(game, "StatefulSet", "db")
    with game.step("db-5 is deleted"):
        game.delete("Pod", "db-5")
    with game.step("db-5 ends"):
        game.reap()
    with game.step("db-5 becomes ready"):
        game.run()


@scenario
def statefulset_claims(game):
    """PVC templates with the retention policy Delete on scaling and deletion."""
    game.node("a")
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none-such", "resources": {"requests": {"storage": "1Gi"}}}}
    with game.step("create"):
        game.create(stateful(replicas=2, podManagementPolicy="Parallel", volumeClaimTemplates=[claim],
                             persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete", "whenScaled": "Delete"}))
    with game.step("ready"):
        game.run()
    with game.step("scale down to 1"):
        game.patch("StatefulSet", "db", {"spec": {"replicas": 1}}, "scale")
    with game.step("db-1 ends"):
        game.reap()
    with game.step("keep claims when deleted"):
        game.patch("StatefulSet", "db", {"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}}})
    with game.step("delete"):
        game.delete("StatefulSet", "db")
    with game.step("db-0 ends"):
        game.reap()


@scenario
def statefulset_limits_its_history(game):
    """revisionHistoryLimit: the oldest ControllerRevisions go."""
    game.node("a")
    with game.step("create"):
        game.create(stateful(replicas=1, revisionHistoryLimit=0))
    with game.step("ready"):
        game.run()
    for number in (2, 3):
        with game.step(f"update {number}"):
            roll(game, "StatefulSet", "db", f"web:{number}")
        until_rolled(game)


# DaemonSets


def daemon(strategy=None, **spec):
    one = owner("DaemonSet", "agent", **spec)
    if strategy:
        one["spec"]["updateStrategy"] = strategy
    return one


def selecting(game, one):
    one["spec"]["template"]["spec"]["nodeSelector"] = {"scenario": game.ns}
    return one


@scenario
def daemonset_rolls(game):
    """One pod for each node that admits it; nodes come and go; a rolling update."""
    game.node("a")
    game.node("b")
    game.node("c", taints=[{"key": "dedicated", "effect": "NoSchedule"}])
    with game.step("create"):
        game.create(selecting(game, daemon()))
    with game.step("ready"):
        game.run()
    with game.step("a node comes"):
        game.node("d")
    with game.step("ready on it"):
        game.run()
    with game.step("a node is tainted NoExecute"):
        game.patch("Node", f"{game.ns}.d", {"spec": {"taints": [{"key": "dedicated", "effect": "NoExecute"}]}})
    with game.step("its pod ends"):
        game.reap()
    with game.step("update"):
        roll(game, "DaemonSet", "agent")
    until_rolled(game)
    with game.step("a pod fails"):
        game.finish(game.pods()[0], 1)
    with game.step("it ends"):
        game.reap()


@scenario
def daemonset_surges(game):
    """maxSurge: the old pod goes when the new one is available."""
    game.node("a")
    game.node("b")
    with game.step("create"):
        game.create(selecting(game, daemon({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})))
    with game.step("ready"):
        game.run()
    with game.step("update"):
        roll(game, "DaemonSet", "agent")
    until_rolled(game)


@scenario
def daemonset_updates_on_delete(game):
    """OnDelete, tolerations of its own, host network, revisions and their limit."""
    game.node("a", taints=[{"key": "dedicated", "effect": "NoSchedule"}], unschedulable=True)
    with game.step("create"):
        one = daemon({"type": "OnDelete"}, revisionHistoryLimit=0, minReadySeconds=15)
        one["spec"]["template"]["spec"].update(hostNetwork=True, tolerations=[{"key": "dedicated", "operator": "Exists"}])
        game.create(selecting(game, one))
    with game.step("ready"):
        game.run()
    with game.step("available"):
        game.wait(16)
    with game.step("update"):
        roll(game, "DaemonSet", "agent")
    with game.step("the pod is deleted"):
        game.delete("Pod", game.pods()[0]["metadata"]["name"])
    with game.step("it ends"):
        game.reap()
    with game.step("ready again"):
        game.run()
    with game.step("available again"):
        game.wait(16)
    with game.step("orphan its pods"):
        game.delete("DaemonSet", "agent", "Orphan")


@scenario
def daemonset_adopts(game):
    """Orphaned pods and revisions are adopted by a DaemonSet of the same name."""
    game.node("a")
    with game.step("create"):
        game.create(selecting(game, daemon()))
    with game.step("ready"):
        game.run()
    with game.step("delete, and orphan its pods"):
        game.delete("DaemonSet", "agent", "Orphan")
    with game.step("create again"):
        game.create(selecting(game, daemon()))
    with game.step("a pod is released"):
        game.patch("Pod", game.pods()[0]["metadata"]["name"], {"metadata": {"labels": {"app": "other"}}})
