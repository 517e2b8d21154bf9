"""What users of the official Python client do, against a running server with its collectors.

    python python_client.py KUBECONFIG [VERSION] [TEST...]

VERSION is the minor version of Kubernetes that the server has, 1.36 by default. Every function named `test_…` is one claim and runs alone, in a namespace of its own. The exit code is 0 only if
all of them hold.
"""
import base64
import datetime
import ssl
import sys
import threading
import time
import traceback
import urllib.request

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

MINOR = next((text for text in sys.argv[2:] if text.startswith("1.")), "1.36")
PATIENCE = 30.0  # seconds until a condition must hold, on a slow machine
GROUP, VERSION, PLURAL = "python.example.com", "v1", "gadgets"


def eventually(what, condition):
    end = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.02)


def refused(code, reason, call, *args, **kwargs):
    """The call is answered with this code and reason."""
    try:
        call(*args, **kwargs)
    except ApiException as error:
        assert error.status == code, (error.status, error.body)
        assert f'"reason":"{reason}"' in error.body.replace('": "', '":"'), error.body
        return error
    raise AssertionError(f"{call.__name__} was not refused")


def gone(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except ApiException as error:
        assert error.status == 404, (error.status, error.body)
        return True
    return False


def config_map(name, owner=None, labels=None, block=None, **data):
    references = None
    if owner is not None:
        references = [client.V1OwnerReference(api_version="v1", kind="ConfigMap", name=owner.metadata.name,
                                              uid=owner.metadata.uid, block_owner_deletion=block)]
    metadata = client.V1ObjectMeta(name=name, labels=labels, owner_references=references)
    return client.V1ConfigMap(metadata=metadata, data=data or None)


def pod(name, **metadata):
    spec = client.V1PodSpec(containers=[client.V1Container(name="c", image="i")], node_name=metadata.pop("node", None))
    return client.V1Pod(metadata=client.V1ObjectMeta(name=name, **metadata), spec=spec)


def names(listed):
    return [item.metadata.name for item in listed.items]


def test_the_version_and_the_groups_are_told(core, namespace):
    assert client.VersionApi().get_code().git_version.startswith(f"v{MINOR}.")
    groups = {group.name for group in client.ApisApi().get_api_versions().groups}
    assert {"apps", "batch", "rbac.authorization.k8s.io"} <= groups, groups
    assert "pods" in {resource.name for resource in core.get_api_resources().resources}


def test_objects_are_created_read_replaced_and_patched(core, namespace):
    made = core.create_namespaced_config_map(namespace, config_map("a", x="1"))
    assert made.metadata.uid and made.metadata.resource_version and made.metadata.creation_timestamp
    refused(409, "AlreadyExists", core.create_namespaced_config_map, namespace, config_map("a"))
    made.data = {"x": "2"}
    replaced = core.replace_namespaced_config_map("a", namespace, made)
    assert replaced.data == {"x": "2"} and replaced.metadata.uid == made.metadata.uid
    # `made` is of an older version by now.
    refused(409, "Conflict", core.replace_namespaced_config_map, "a", namespace, made)
    # A list is a JSON patch to this client; an object is a strategic merge patch.
    core.patch_namespaced_config_map("a", namespace, [{"op": "add", "path": "/data/y", "value": "3"}])
    core.patch_namespaced_config_map("a", namespace, {"data": {"x": None, "z": "4"}})
    assert core.read_namespaced_config_map("a", namespace).data == {"y": "3", "z": "4"}
    generated = client.V1ConfigMap(metadata=client.V1ObjectMeta(generate_name="g-"))
    assert core.create_namespaced_config_map(namespace, generated).metadata.name.startswith("g-")


def test_a_strategic_merge_patch_merges_lists_by_key(core, namespace):
    core.create_namespaced_pod(namespace, pod("p"))
    patched = core.patch_namespaced_pod("p", namespace, {"spec": {"containers": [{"name": "c", "image": "j"}]}})
    assert [(c.name, c.image) for c in patched.spec.containers] == [("c", "j")]
    status = core.patch_namespaced_pod_status("p", namespace, {"status": {"phase": "Running"}})
    assert status.status.phase == "Running"


def test_dry_run_changes_nothing(core, namespace):
    dry = core.create_namespaced_config_map(namespace, config_map("dry"), dry_run="All")
    assert dry.metadata.uid
    assert gone(core.read_namespaced_config_map, "dry", namespace)
    core.create_namespaced_config_map(namespace, config_map("kept", x="1"))
    core.patch_namespaced_config_map("kept", namespace, {"data": {"x": "2"}}, dry_run="All")
    core.delete_namespaced_config_map("kept", namespace, body=client.V1DeleteOptions(dry_run=["All"]))
    core.delete_namespaced_config_map("kept", namespace, dry_run="All")
    assert core.read_namespaced_config_map("kept", namespace).data == {"x": "1"}


def test_deletion_observes_its_preconditions(core, namespace):
    made = core.create_namespaced_config_map(namespace, config_map("a"))
    for wrong in ({"uid": "another"}, {"resource_version": "1"}):
        options = client.V1DeleteOptions(preconditions=client.V1Preconditions(**wrong))
        refused(409, "Conflict", core.delete_namespaced_config_map, "a", namespace, body=options)
    right = client.V1Preconditions(uid=made.metadata.uid, resource_version=made.metadata.resource_version)
    core.delete_namespaced_config_map("a", namespace, body=client.V1DeleteOptions(preconditions=right))
    assert gone(core.read_namespaced_config_map, "a", namespace)
    refused(404, "NotFound", core.delete_namespaced_config_map, "a", namespace)


def family(core, namespace, block=None):
    owner = core.create_namespaced_config_map(namespace, config_map("owner"))
    for number in range(3):
        child = config_map(f"child-{number}", owner=owner, block=block)
        made = core.create_namespaced_config_map(namespace, child)
        core.create_namespaced_config_map(namespace, config_map(f"grandchild-{number}", owner=made, block=block))


def test_background_deletion_takes_the_dependents_afterwards(core, namespace):
    family(core, namespace)
    core.delete_namespaced_config_map("owner", namespace, propagation_policy="Background")
    assert gone(core.read_namespaced_config_map, "owner", namespace)
    eventually("all dependents are gone", lambda: not core.list_namespaced_config_map(namespace).items)


def test_foreground_deletion_takes_the_owner_last(core, namespace):
    family(core, namespace, block=True)
    version = core.list_namespaced_config_map(namespace).metadata.resource_version
    options = client.V1DeleteOptions(propagation_policy="Foreground")
    answer = core.delete_namespaced_config_map("owner", namespace, body=options)
    assert answer is not None
    order = []
    stream = watch.Watch()
    for event in stream.stream(core.list_namespaced_config_map, namespace, resource_version=version,
                               timeout_seconds=int(PATIENCE)):
        if event["type"] == "DELETED":
            order.append(event["object"].metadata.name)
        if len(order) == 7:
            stream.stop()
    assert order[-1] == "owner" and len(order) == 7, order
    for number in range(3):
        assert order.index(f"grandchild-{number}") < order.index(f"child-{number}"), order


def test_orphaning_leaves_the_dependents_without_their_owner(core, namespace):
    family(core, namespace)
    core.delete_namespaced_config_map("owner", namespace, propagation_policy="Orphan")
    eventually("the owner is gone", lambda: gone(core.read_namespaced_config_map, "owner", namespace))
    left = core.list_namespaced_config_map(namespace).items
    assert len(left) == 6
    for item in left:
        assert bool(item.metadata.owner_references) == item.metadata.name.startswith("grandchild"), item


def test_a_finalizer_holds_the_object_until_it_is_removed(core, namespace):
    held = config_map("held")
    held.metadata.finalizers = ["example.com/hold"]
    core.create_namespaced_config_map(namespace, held)
    core.delete_namespaced_config_map("held", namespace)
    seen = core.read_namespaced_config_map("held", namespace)
    assert seen.metadata.deletion_timestamp and seen.metadata.deletion_grace_period_seconds == 0
    core.patch_namespaced_config_map("held", namespace, {"metadata": {"finalizers": None}})
    assert gone(core.read_namespaced_config_map, "held", namespace)


def test_pods_get_their_grace(core, namespace):
    core.create_namespaced_pod(namespace, pod("bound", node="n"))
    core.create_namespaced_pod(namespace, pod("pending"))
    answer = core.delete_namespaced_pod("bound", namespace, grace_period_seconds=7)
    assert answer.metadata.deletion_grace_period_seconds == 7 and answer.metadata.deletion_timestamp
    core.delete_namespaced_pod("bound", namespace, body=client.V1DeleteOptions(grace_period_seconds=0))
    assert gone(core.read_namespaced_pod, "bound", namespace)
    # A pod that is on no node does not run, so there is nothing to wait for.
    core.delete_namespaced_pod("pending", namespace)
    assert gone(core.read_namespaced_pod, "pending", namespace)


def test_collections_are_deleted_by_selector(core, namespace):
    for number in range(4):
        core.create_namespaced_config_map(namespace, config_map(f"c{number}", labels={"odd": str(number % 2)}))
    core.delete_collection_namespaced_config_map(namespace, label_selector="odd=1")
    assert names(core.list_namespaced_config_map(namespace)) == ["c0", "c2"]


def test_selectors_choose(core, namespace):
    for name, labels in (("a", {"tier": "front"}), ("b", {"tier": "back"}), ("c", None)):
        core.create_namespaced_config_map(namespace, config_map(name, labels=labels))
    chosen = lambda **how: names(core.list_namespaced_config_map(namespace, **how))
    assert chosen(label_selector="tier=front") == ["a"]
    assert chosen(label_selector="tier in (front, back)") == ["a", "b"]
    assert chosen(label_selector="tier") == ["a", "b"]
    assert chosen(label_selector="!tier") == ["c"]
    assert chosen(label_selector="tier notin (front)") == ["b", "c"]
    assert chosen(field_selector="metadata.name=b") == ["b"]
    assert chosen(field_selector="metadata.name!=b") == ["a", "c"]
    core.create_namespaced_pod(namespace, pod("here", node="n1"))
    core.create_namespaced_pod(namespace, pod("there", node="n2"))
    assert names(core.list_namespaced_pod(namespace, field_selector="spec.nodeName=n1")) == ["here"]
    assert names(core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName=n2,metadata.namespace={namespace}")) == ["there"]
    refused(400, "BadRequest", core.list_namespaced_config_map, namespace, field_selector="data.x=1")


def test_lists_come_in_pages(core, namespace):
    for number in range(25):
        core.create_namespaced_config_map(namespace, config_map(f"p{number:02}"))
    seen, sizes, token, versions = [], [], None, set()
    while True:
        page = core.list_namespaced_config_map(namespace, limit=10, _continue=token)
        seen += names(page)
        sizes.append(len(page.items))
        versions.add(page.metadata.resource_version)
        token = page.metadata._continue
        if not token:
            break
        # What is made between the pages is not part of the list.
        core.create_namespaced_config_map(namespace, config_map(f"p00-{len(sizes)}"))
        assert page.metadata.remaining_item_count == 25 - len(seen)
    assert sizes == [10, 10, 5] and seen == [f"p{number:02}" for number in range(25)] and len(versions) == 1
    refused(400, "BadRequest", core.list_namespaced_config_map, namespace, limit=10, _continue="not-a-token")


def test_watches_resume_where_they_ended(core, namespace):
    core.create_namespaced_config_map(namespace, config_map("before"))
    version = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.create_namespaced_config_map(namespace, config_map("one"))
    core.patch_namespaced_config_map("one", namespace, {"data": {"k": "v"}})
    stream = watch.Watch()
    first = []
    for event in stream.stream(core.list_namespaced_config_map, namespace, resource_version=version, timeout_seconds=20):
        first.append((event["type"], event["object"].metadata.name))
        if len(first) == 2:
            stream.stop()
    assert first == [("ADDED", "one"), ("MODIFIED", "one")]
    # The client remembers the last version; what happens meanwhile is not lost.
    core.delete_namespaced_config_map("one", namespace)
    core.create_namespaced_config_map(namespace, config_map("two"))
    again = watch.Watch()
    second = []
    for event in again.stream(core.list_namespaced_config_map, namespace, resource_version=stream.resource_version,
                              timeout_seconds=20):
        second.append((event["type"], event["object"].metadata.name))
        if len(second) == 2:
            again.stop()
    assert second == [("DELETED", "one"), ("ADDED", "two")]


def test_watches_select_and_end_in_time(core, namespace):
    begun = time.monotonic()
    seen = []
    core.create_namespaced_config_map(namespace, config_map("in", labels={"w": "1"}))
    core.create_namespaced_config_map(namespace, config_map("out"))
    writer = threading.Timer(0.3, core.patch_namespaced_config_map,
                             ("in", namespace, {"metadata": {"labels": {"w": "2"}}}))
    writer.start()
    for event in watch.Watch().stream(core.list_namespaced_config_map, namespace, label_selector="w=1", timeout_seconds=3):
        seen.append((event["type"], event["object"].metadata.name))
    writer.join()
    # Leaving the selection is a deletion to the watcher; the server ends the watch after timeoutSeconds.
    assert seen == [("ADDED", "in"), ("DELETED", "in")], seen
    assert time.monotonic() - begun < PATIENCE


def definition():
    schema = {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}, "colour": {"type": "string", "default": "red"}}},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}
    version = client.V1CustomResourceDefinitionVersion(
        name=VERSION, served=True, storage=True,
        schema=client.V1CustomResourceValidation(open_apiv3_schema=schema),
        subresources=client.V1CustomResourceSubresources(status={}))
    return client.V1CustomResourceDefinition(
        metadata=client.V1ObjectMeta(name=f"{PLURAL}.{GROUP}"),
        spec=client.V1CustomResourceDefinitionSpec(
            group=GROUP, scope="Namespaced", versions=[version],
            names=client.V1CustomResourceDefinitionNames(plural=PLURAL, singular="gadget", kind="Gadget")))


def established():
    extensions = client.ApiextensionsV1Api()
    try:
        extensions.create_custom_resource_definition(definition())
    except ApiException as error:
        assert error.status == 409, error.body

    def ready():
        conditions = extensions.read_custom_resource_definition(f"{PLURAL}.{GROUP}").status.conditions or []
        return any(c.type == "Established" and c.status == "True" for c in conditions)
    eventually("the definition is established", ready)


def gadget(name, **spec):
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Gadget", "metadata": {"name": name}, "spec": spec}


def test_custom_objects(core, namespace):
    established()
    custom = client.CustomObjectsApi()
    where = (GROUP, VERSION, namespace, PLURAL)
    made = custom.create_namespaced_custom_object(*where, gadget("g", size=2, unknown=True))
    assert made["spec"] == {"size": 2, "colour": "red"}, made
    refused(422, "Invalid", custom.create_namespaced_custom_object, *where, gadget("bad", size=0))
    refused(400, "BadRequest", custom.create_namespaced_custom_object, *where, gadget("bad", size=1, unknown=1),
            field_validation="Strict")
    # This client's patches of custom objects are JSON merge patches unless they are lists.
    patched = custom.patch_namespaced_custom_object(*where, "g", {"spec": {"size": 3}})
    assert patched["spec"]["size"] == 3 and patched["metadata"]["generation"] == 2
    status = custom.patch_namespaced_custom_object_status(*where, "g", {"status": {"ready": True}, "spec": {"size": 9}})
    assert status["status"] == {"ready": True} and status["spec"]["size"] == 3
    listed = custom.list_namespaced_custom_object(*where)
    assert listed["kind"] == "GadgetList" and len(listed["items"]) == 1
    # A dependent of a built-in kind is deleted with its custom owner.
    child = config_map("of-the-gadget")
    child.metadata.owner_references = [client.V1OwnerReference(
        api_version=f"{GROUP}/{VERSION}", kind="Gadget", name="g", uid=made["metadata"]["uid"])]
    core.create_namespaced_config_map(namespace, child)
    custom.delete_namespaced_custom_object(*where, "g", propagation_policy="Background")
    assert gone(custom.get_namespaced_custom_object, *where, "g")
    eventually("the dependent is gone", lambda: gone(core.read_namespaced_config_map, "of-the-gadget", namespace))


def test_the_dynamic_client_discovers(core, namespace):
    established()
    dynamic_client = dynamic.DynamicClient(client.ApiClient())
    maps = dynamic_client.resources.get(api_version="v1", kind="ConfigMap")
    maps.create(namespace=namespace, body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}})
    gadgets = dynamic_client.resources.get(api_version=f"{GROUP}/{VERSION}", kind="Gadget")
    assert gadgets.name == PLURAL and gadgets.namespaced
    gadgets.create(namespace=namespace, body=gadget("d", size=1))
    applied = gadgets.server_side_apply(namespace=namespace, body=gadget("d", size=4), field_manager="python",
                                        force_conflicts=True)
    assert applied.spec.size == 4
    assert [item.metadata.name for item in gadgets.get(namespace=namespace).items] == ["d"]
    seen = []
    for event in gadgets.watch(namespace=namespace, timeout=1):
        seen.append((event["type"], event["object"].metadata.name))
    assert seen == [("ADDED", "d")], seen
    gadgets.delete(name="d", namespace=namespace, body={"propagationPolicy": "Background"})
    assert gadgets.get(namespace=namespace).items == []
    scaled = dynamic_client.resources.get(api_version="apps/v1", kind="Deployment")
    assert "scale" in scaled.subresources


def test_scale_eviction_and_events(core, namespace):
    labels = {"app": "a"}
    template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels=labels), spec=pod("x").spec)
    apps = client.AppsV1Api()
    apps.create_namespaced_deployment(namespace, client.V1Deployment(
        metadata=client.V1ObjectMeta(name="d"),
        spec=client.V1DeploymentSpec(selector=client.V1LabelSelector(match_labels=labels), template=template)))
    assert apps.read_namespaced_deployment_scale("d", namespace).spec.replicas == 1
    apps.patch_namespaced_deployment_scale("d", namespace, {"spec": {"replicas": 4}})
    assert apps.read_namespaced_deployment("d", namespace).spec.replicas == 4
    core.create_namespaced_pod(namespace, pod("e"))
    core.create_namespaced_pod_eviction("e", namespace, client.V1Eviction(metadata=client.V1ObjectMeta(name="e")))
    assert gone(core.read_namespaced_pod, "e", namespace)
    core.create_namespaced_event(namespace, client.CoreV1Event(
        metadata=client.V1ObjectMeta(name="ev"), reason="Testing", message="m", type="Normal",
        involved_object=client.V1ObjectReference(kind="Pod", name="e", namespace=namespace)))
    assert names(core.list_namespaced_event(namespace, field_selector="involvedObject.name=e,reason=Testing")) == ["ev"]


def test_permissions_are_reviewed(core, namespace):
    def allowed(user, verb):
        attributes = client.V1ResourceAttributes(namespace=namespace, verb=verb, resource="configmaps")
        spec = client.V1SubjectAccessReviewSpec(user=user, resource_attributes=attributes)
        return client.AuthorizationV1Api().create_subject_access_review(client.V1SubjectAccessReview(spec=spec)).status.allowed
    rbac = client.RbacAuthorizationV1Api()
    assert not allowed("ann", "get")
    rbac.create_namespaced_role(namespace, client.V1Role(
        metadata=client.V1ObjectMeta(name="reader"),
        rules=[client.V1PolicyRule(api_groups=[""], resources=["configmaps"], verbs=["get"])]))
    rbac.create_namespaced_role_binding(namespace, client.V1RoleBinding(
        metadata=client.V1ObjectMeta(name="ann"),
        subjects=[client.RbacV1Subject(kind="User", name="ann", api_group="rbac.authorization.k8s.io")],
        role_ref=client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="reader")))
    eventually("the binding is in force", lambda: allowed("ann", "get"))
    assert not allowed("ann", "delete")


def test_a_namespace_goes_with_its_content(core, namespace):
    core.create_namespaced_config_map(namespace, config_map("a"))
    held = pod("p", node="n")
    held.spec.termination_grace_period_seconds = 2
    core.create_namespaced_pod(namespace, held)
    core.delete_namespace(namespace)
    refused(403, "Forbidden", core.create_namespaced_config_map, namespace, config_map("late"))
    # The pod's grace is for its node to end; here there is none.
    core.delete_namespaced_pod("p", namespace, grace_period_seconds=0)
    eventually("the namespace is gone", lambda: gone(core.read_namespace, namespace))


SIGNING_REQUEST = base64.b64encode(b"-----BEGIN CERTIFICATE REQUEST-----\n"
                                   b"MIHIMHECAQAwDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEH\n"
                                   b"A0IABPPYeMUKMnlPSUHnVxHu91Jf7HCl3QricQeqpQR9XXKQczXzMAM7sWRg+vdm\n"
                                   b"5sqaDAmKzptkh5X+Wo6ZwUQ17SSgADAKBggqhkjOPQQDAgNHADBEAiBReIpsyncz\n"
                                   b"2WY1K7eK+gHbuAUK7W8isOWAdF8i3IK3sAIgeJDMC5fYf8OLM0OBbvOpSZL0zqqy\n"
                                   b"uo+mtPWFRs/vmnE=\n"
                                   b"-----END CERTIFICATE REQUEST-----\n").decode()


def ahead(duration):
    """From here on, the clock of the collectors is ahead by so much."""
    settings = client.Configuration.get_default_copy()
    trusted = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if settings.cert_file:
        trusted.load_cert_chain(settings.cert_file, settings.key_file)
    headers = {"Authorization": token} if (token := settings.get_api_key_with_prefix("authorization")) else {}
    request = urllib.request.Request(f"{settings.host}/kubegc/v1/clock?ahead={duration}", method="POST", headers=headers)
    urllib.request.urlopen(request, context=trusted).close()


def finished_job(name, ttl):
    containers = [client.V1Container(name="c", image="i")]
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(restart_policy="Never", containers=containers))
    return client.V1Job(metadata=client.V1ObjectMeta(name=name),
                        spec=client.V1JobSpec(template=template, ttl_seconds_after_finished=ttl))


def test_with_time_the_collectors_clean_up(core, namespace):
    batch, certificates, coordination = client.BatchV1Api(), client.CertificatesV1Api(), client.CoordinationV1Api()
    now = datetime.datetime.now(datetime.timezone.utc)
    for name, ttl in (("soon", 3600), ("late", 30 * 24 * 3600)):
        batch.create_namespaced_job(namespace, finished_job(name, ttl))
        done = [{"type": kind, "status": "True", "lastTransitionTime": now.isoformat(), "lastProbeTime": now.isoformat()}
                for kind in ("SuccessCriteriaMet", "Complete")]
        batch.patch_namespaced_job_status(name, namespace, {"status": {
            "startTime": now.isoformat(), "completionTime": now.isoformat(), "conditions": done}})
    certificates.create_certificate_signing_request(client.V1CertificateSigningRequest(
        metadata=client.V1ObjectMeta(name=namespace), spec=client.V1CertificateSigningRequestSpec(
            signer_name="example.com/signer", usages=["client auth"], request=SIGNING_REQUEST)))
    coordination.create_namespaced_lease(namespace, client.V1Lease(
        metadata=client.V1ObjectMeta(name="leader"), spec=client.V1LeaseSpec(
            holder_identity="somebody", lease_duration_seconds=15, renew_time=now)))
    core.create_namespaced_persistent_volume_claim(namespace, client.V1PersistentVolumeClaim(
        metadata=client.V1ObjectMeta(name="data"), spec=client.V1PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"], resources=client.V1VolumeResourceRequirements(requests={"storage": "1Gi"}))))
    core.delete_namespaced_persistent_volume_claim("data", namespace)
    eventually("the claim that no pod uses is deleted", lambda: gone(
        core.read_namespaced_persistent_volume_claim, "data", namespace))
    assert names(batch.list_namespaced_job(namespace)) == ["late", "soon"]

    ahead("25h")
    eventually("the Job expires", lambda: gone(batch.read_namespaced_job, "soon", namespace))
    eventually("the request that was not answered is deleted", lambda: gone(
        certificates.read_certificate_signing_request, namespace))
    selector = "involvedObject.kind=Lease,involvedObject.name=leader,reason=StaleLease,type=Warning"
    eventually("the lease is reported", lambda: core.list_namespaced_event(namespace, field_selector=selector).items)
    assert coordination.read_namespaced_lease("leader", namespace).spec.holder_identity == "somebody"
    assert names(batch.list_namespaced_job(namespace)) == ["late"]


def main():
    config.load_kube_config(sys.argv[1])
    core = client.CoreV1Api()
    only = [name for name in sys.argv[2:] if name.startswith("test_")]
    failed = []
    for number, (name, test) in enumerate(sorted(globals().items())):
        if not name.startswith("test_") or (only and name not in only):
            continue
        namespace = f"python-{number}"
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace)))
        begun = time.monotonic()
        try:
            test(core, namespace)
            print(f"ok     {name} ({time.monotonic() - begun:.2f} s)", flush=True)
        except Exception:
            failed.append(name)
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
