//! Tests refusals and their messages.

use gc_registry::api::UserInfo;
use gc_registry::kinds::{self, Context};
use serde_json::{Value, json};

use crate::{now, target};

/// Returns the errors of a create, as `field: detail`.
fn problems(resource: &str, sent: Value) -> Vec<String> {
    let object = stored(resource, sent);
    kinds::validate(target(resource), &object)
        .into_iter()
        .map(|e| format!("{}: {}", e.field, e.detail))
        .collect()
}

fn stored(resource: &str, sent: Value) -> Value {
    let user = UserInfo::default();
    let mut object = sent;
    kinds::apply_defaults(target(resource), &mut object);
    kinds::prepare_for_create(target(resource), &mut object, &Context { now: now(), user: &user });
    object
}

/// Returns the fields of the errors of an update from one spec to another, as `reason field`.
fn update(resource: &str, old: &Value, new: Value) -> Vec<String> {
    let user = UserInfo::default();
    let old = stored(resource.trim_end_matches("/status"), old.clone());
    let mut new = new;
    kinds::apply_defaults(target(resource), &mut new);
    kinds::prepare_for_update(target(resource), &mut new, &old, &Context { now: now(), user: &user });
    kinds::validate_update(target(resource), &new, &old, None)
        .into_iter()
        .map(|e| format!("{} {}", e.reason.as_str(), e.field))
        .collect()
}

fn pod() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// Returns a valid object of each kind that has rules.
fn valid(resource: &str) -> Value {
    let template = pod();
    let selector = json!({"matchLabels": {"a": "b"}});
    let meta = json!({"name": "n", "namespace": "ns", "uid": "u"});
    match resource {
        "v1/pods" => json!({"metadata": meta, "spec": template["spec"]}),
        "v1/replicationcontrollers" => json!({"metadata": meta, "spec": {"template": template}}),
        "apps/v1/deployments" | "apps/v1/replicasets" | "apps/v1/statefulsets" | "apps/v1/daemonsets" => {
            json!({"metadata": meta, "spec": {"selector": selector, "template": template}})
        }
        "batch/v1/jobs" => json!({"metadata": meta, "spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i"}]}}}}),
        "batch/v1/cronjobs" => {
            json!({"metadata": meta, "spec": {"schedule": "0 * * * *", "jobTemplate": {"spec":
            {"template": {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "i"}]}}}}}})
        }
        "v1/services" => json!({"metadata": meta, "spec": {"ports": [{"port": 80}]}}),
        "v1/persistentvolumes" => json!({"metadata": meta, "spec": {"capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}}),
        "v1/persistentvolumeclaims" => json!({"metadata": meta, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}),
        "discovery.k8s.io/v1/endpointslices" => json!({"metadata": meta, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": [{"name": "http", "port": 80}]}),
        "v1/events" => {
            json!({"metadata": meta, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "ns"}})
        }
        "coordination.k8s.io/v1/leases" => json!({"metadata": meta, "spec": {"leaseDurationSeconds": 15}}),
        "rbac.authorization.k8s.io/v1/roles" => {
            json!({"metadata": meta, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})
        }
        "rbac.authorization.k8s.io/v1/rolebindings" => {
            json!({"metadata": meta, "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "u"}]})
        }
        "networking.k8s.io/v1/ingresses" => {
            json!({"metadata": meta, "spec": {"rules": [{"host": "a.example.com", "http": {"paths":
            [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}})
        }
        "networking.k8s.io/v1/networkpolicies" => json!({"metadata": meta, "spec": {"podSelector": {}}}),
        "policy/v1/poddisruptionbudgets" => {
            json!({"metadata": meta, "spec": {"minAvailable": 1, "selector": {}}})
        }
        "autoscaling/v1/horizontalpodautoscalers" | "autoscaling/v2/horizontalpodautoscalers" => {
            json!({"metadata": meta,
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}})
        }
        "storage.k8s.io/v1/storageclasses" => json!({"metadata": meta, "provisioner": "example.com/p"}),
        "scheduling.k8s.io/v1/priorityclasses" => json!({"metadata": meta, "value": 5}),
        "v1/configmaps" => json!({"metadata": meta, "data": {"k": "v"}}),
        "v1/secrets" => json!({"metadata": meta, "stringData": {"k": "v"}}),
        "v1/namespaces" | "v1/nodes" | "v1/serviceaccounts" | "v1/resourcequotas" | "v1/limitranges" => {
            json!({"metadata": meta})
        }
        other => panic!("no valid object of {other}"),
    }
}

const KINDS: [&str; 29] = [
    "v1/pods",
    "v1/replicationcontrollers",
    "apps/v1/deployments",
    "apps/v1/replicasets",
    "apps/v1/statefulsets",
    "apps/v1/daemonsets",
    "batch/v1/jobs",
    "batch/v1/cronjobs",
    "v1/services",
    "v1/persistentvolumes",
    "v1/persistentvolumeclaims",
    "discovery.k8s.io/v1/endpointslices",
    "v1/events",
    "coordination.k8s.io/v1/leases",
    "rbac.authorization.k8s.io/v1/roles",
    "rbac.authorization.k8s.io/v1/rolebindings",
    "networking.k8s.io/v1/ingresses",
    "networking.k8s.io/v1/networkpolicies",
    "policy/v1/poddisruptionbudgets",
    "autoscaling/v1/horizontalpodautoscalers",
    "autoscaling/v2/horizontalpodautoscalers",
    "storage.k8s.io/v1/storageclasses",
    "scheduling.k8s.io/v1/priorityclasses",
    "v1/configmaps",
    "v1/secrets",
    "v1/namespaces",
    "v1/nodes",
    "v1/serviceaccounts",
    "v1/resourcequotas",
];

#[test]
fn valid_objects_are_accepted_and_may_be_written_again() {
    for resource in KINDS {
        assert_eq!(problems(resource, valid(resource)), Vec::<String>::new(), "{resource}");
        let old = valid(resource);
        assert_eq!(update(resource, &old, stored(resource, old.clone())), Vec::<String>::new(), "{resource}");
        // A client sends its manifest again, without the fields that the server filled in.
        assert_eq!(
            update(resource, &old, old.clone()).iter().filter(|text| !text.contains("spec")).count(),
            0,
            "{resource}"
        );
    }
}

#[test]
fn invalid_objects_are_refused_in_upstreams_words() {
    let (mut found, mut wanted) = (Vec::new(), Vec::new());
    let dns = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    for (resource, pointer, value, expected) in [
        ("v1/pods", "/spec/containers", json!([]), vec!["spec.containers: Required value".to_owned()]),
        ("v1/pods", "/spec/containers/0/name", json!("C!"), vec![format!("spec.containers[0].name: Invalid value: \"C!\": {dns}")]),
        ("v1/pods", "/spec/containers/0/image", json!(""), vec!["spec.containers[0].image: Required value".into()]),
        ("v1/pods", "/spec/restartPolicy", json!("Sometimes"),
            vec!["spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"".into()]),
        ("v1/pods", "/spec/containers/0/ports", json!([{"containerPort": 70000}]),
            vec!["spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive".into()]),
        ("v1/pods", "/spec/containers/0/volumeMounts", json!([{"name": "v", "mountPath": "/v"}]),
            vec!["spec.containers[0].volumeMounts[0].name: Not found: \"v\"".into()]),
        ("apps/v1/deployments", "/spec/selector", json!({"matchLabels": {"a": "c"}}),
            vec!["spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`".into()]),
        ("apps/v1/deployments", "/spec/selector", json!(null), vec!["spec.selector: Required value".into(),
            "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`".into()]),
        ("apps/v1/deployments", "/spec/selector", json!({}),
            vec!["spec.selector: Invalid value: {}: empty selector is invalid for deployment".into()]),
        ("apps/v1/daemonsets", "/spec/selector", json!(null), vec![
            "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`".into()]),
        ("apps/v1/deployments", "/spec/replicas", json!(-1),
            vec!["spec.replicas: Invalid value: -1: must be greater than or equal to 0".into()]),
        ("apps/v1/deployments", "/spec/template/spec/restartPolicy", json!("Never"),
            vec!["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"".into()]),
        ("batch/v1/jobs", "/spec/ttlSecondsAfterFinished", json!(-1),
            vec!["spec.ttlSecondsAfterFinished: Invalid value: -1: must be greater than or equal to 0".into()]),
        ("batch/v1/jobs", "/spec/template/spec/restartPolicy", json!("Always"),
            vec!["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"".into()]),
        ("batch/v1/jobs", "/spec/completionMode", json!("Sometimes"),
            vec!["spec.completionMode: Unsupported value: \"Sometimes\": supported values: \"NonIndexed\", \"Indexed\"".into()]),
        ("batch/v1/cronjobs", "/spec/schedule", json!("often"),
            vec!["spec.schedule: Invalid value: \"often\": expected exactly 5 fields, found 1: [often]".into()]),
        ("batch/v1/cronjobs", "/spec/concurrencyPolicy", json!("Maybe"),
            vec!["spec.concurrencyPolicy: Unsupported value: \"Maybe\": supported values: \"Allow\", \"Forbid\", \"Replace\"".into()]),
        ("v1/services", "/spec/ports", json!([]), vec!["spec.ports: Required value".into()]),
        ("v1/services", "/spec/ports/0/port", json!(0),
            vec!["spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive".into(),
                "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive".into()]),
        ("v1/persistentvolumes", "/spec/accessModes", json!([]), vec!["spec.accessModes: Required value".into()]),
        ("v1/persistentvolumeclaims", "/spec/resources", json!({}), vec!["spec.resources[storage]: Required value".into()]),
        ("discovery.k8s.io/v1/endpointslices", "/addressType", json!("DNS"),
            vec!["addressType: Unsupported value: \"DNS\": supported values: \"FQDN\", \"IPv4\", \"IPv6\"".into()]),
        ("v1/events", "/involvedObject/namespace", json!("elsewhere"),
            vec!["involvedObject.namespace: Invalid value: \"elsewhere\": does not match event.namespace".into()]),
        ("coordination.k8s.io/v1/leases", "/spec/leaseDurationSeconds", json!(-1),
            vec!["spec.leaseDurationSeconds: Invalid value: -1: must be greater than 0".into()]),
        ("rbac.authorization.k8s.io/v1/roles", "/rules/0/verbs", json!([]),
            vec!["rules[0].verbs: Required value: verbs must contain at least one value".into()]),
        ("rbac.authorization.k8s.io/v1/rolebindings", "/roleRef/kind", json!("Thing"),
            vec!["roleRef.kind: Unsupported value: \"Thing\": supported values: \"Role\", \"ClusterRole\"".into()]),
        ("policy/v1/poddisruptionbudgets", "/spec/maxUnavailable", json!("x"), vec![
            "spec: Invalid value: {\"maxUnavailable\":\"x\",\"minAvailable\":1,\"selector\":{}}: minAvailable and maxUnavailable cannot be both set".into(),
            "spec.maxUnavailable: Invalid value: \"x\": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')".into()]),
        ("scheduling.k8s.io/v1/priorityclasses", "/value", json!(2_000_000_000),
            vec!["value: Forbidden: maximum allowed value of a user defined priority is 1000000000".into()]),
        ("networking.k8s.io/v1/ingresses", "/spec/rules", json!([]),
            vec!["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified".into()]),
        ("storage.k8s.io/v1/storageclasses", "/provisioner", json!(""), vec!["provisioner: Required value".into()]),
        ("v1/secrets", "/type", json!("kubernetes.io/tls"),
            vec!["data[tls.crt]: Required value".into(), "data[tls.key]: Required value".into()]),
    ] {
        let place = format!("{resource} {pointer} {value}");
        found.push((place.clone(), problems(resource, with(resource, pointer, value))));
        wanted.push((place, expected));
    }
    assert_eq!(found, wanted);
}

/// Rules that involve more than one field, with the answers of kube-apiserver 1.36.2.
#[test]
fn parts_of_an_object_must_suit_each_other() {
    let image = json!([{"name": "v", "image": {}}]);
    let percent = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
    let average = json!([{"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "-1"}}}]);
    let asking = json!({"resources": {"requests": {"cpu": "10m"}},
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}]});
    let windows = json!({"os": {"name": "windows"}, "resources": {"limits": {"pods": "1"}}, "containers": [{"name": "c", "image": "i"}]});
    let mut found = Vec::new();
    let mut wanted = Vec::new();
    for (resource, pointer, value, expected) in [
        ("v1/pods", "/spec/resources", json!({"claims": [{"name": "a"}]}), vec![
            "spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level".to_owned(),
            "spec.resources.claims[0]: Not found: \"a\": must be one of the names in pod.spec.resourceClaims which is empty".into()]),
        // Resources without any container's request are compared with nothing.
        ("v1/pods", "/spec/resources", json!({"limits": {"cpu": "-1"}}), vec![
            "spec.resources.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0".into(),
            "spec.resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0".into()]),
        ("v1/pods", "/spec", asking, vec![
            "spec.resources.requests[cpu]: Invalid value: \"10m\": must be greater than or equal to aggregate container requests of 100m".into()]),
        ("v1/pods", "/spec", windows, vec!["spec.resources: Forbidden: may not be set for a windows pod".into()]),
        ("v1/pods", "/spec/volumes", image.clone(), vec!["spec.volumes[0].image.reference: Required value".into()]),
        ("apps/v1/deployments", "/spec/template/spec/volumes", image, vec![]),
        ("apps/v1/statefulsets", "/spec/volumeClaimTemplates", json!([{}]), vec![
            "spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required".into(),
            "spec.volumeClaimTemplates[0].spec.resources[storage]: Required value".into(),
            "spec.template.spec.volumes[0].persistentVolumeClaim.claimName: Required value".into(),
            "spec.template.spec.volumes[0].name: Required value".into()]),
        ("apps/v1/statefulsets", "/spec/template/spec/hostname", json!("No Host"), vec![]),
        ("apps/v1/deployments", "/spec/template/spec/initContainers", json!([{"name": "d", "image": "i", "restartPolicyRules": [{}]}]),
            vec!["spec.template.spec.initContainers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used".into()]),
        ("batch/v1/jobs", "/spec/template/spec/containers/0/resizePolicy", json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]), vec![
            "spec.template.spec.containers[0].resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` is 'Never'".into()]),
        ("apps/v1/daemonsets", "/spec/updateStrategy", json!({"rollingUpdate": {"maxUnavailable": "80"}}), vec![
            format!("spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: \"80\": {percent}")]),
        ("apps/v1/daemonsets", "/spec/updateStrategy", json!({"rollingUpdate": {"maxUnavailable": "-1%"}}), vec![
            format!("spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: \"-1%\": {percent}"),
            "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0".into()]),
        ("autoscaling/v1/horizontalpodautoscalers", "/spec/minReplicas", json!(0), vec![
            "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1".into(),
            "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas".into()]),
        ("autoscaling/v2/horizontalpodautoscalers", "/spec/metrics", average, vec![
            "spec.metrics[0].pods.target.averageValue: Invalid value: \"-1\": must be positive".into()]),
    ] {
        let place = format!("{resource} {pointer} {value}");
        found.push((place.clone(), problems(resource, with(resource, pointer, value))));
        wanted.push((place, expected));
    }
    assert_eq!(found, wanted);
}

#[test]
fn empty_lists_count_in_ephemeral_containers() {
    let ephemeral = json!([{"name": "e", "image": "i", "ports": []}]);
    let mut deployment = with("apps/v1/deployments", "/spec/template/spec/ephemeralContainers", ephemeral);
    deployment["apiVersion"] = "apps/v1".into();
    deployment["kind"] = "Deployment".into();
    let place = "spec.template.spec.ephemeralContainers";
    assert_eq!(
        problems("apps/v1/deployments", deployment),
        [
            format!("{place}[0].ports: Forbidden: cannot be set for an Ephemeral Container"),
            format!("{place}: Forbidden: ephemeral containers not allowed in pod template"),
        ]
    );
}

#[test]
fn volumes_inside_attachments_are_not_volumes_of_their_own() {
    let mut found = Vec::new();
    let mut wanted = Vec::new();
    for (member, value, expected) in [
        ("volumeAttributesClassName", json!(""), vec![]),
        (
            "claimRef",
            json!({}),
            vec![
                "spec.source.inlineVolumeSpec.claimRef: Forbidden: may not be specified in the context of inline volumes",
            ],
        ),
        (
            "azureDisk",
            json!({"diskName": "d"}),
            vec![
                "spec.source.inlineVolumeSpec.azureDisk.diskURI: Required value",
                "spec.source.inlineVolumeSpec.azureDisk.diskURI: Unsupported value: \"\": supported values: \
             \"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd\"",
                "spec.source.inlineVolumeSpec.csi: Forbidden: may not specify more than 1 volume type",
            ],
        ),
    ] {
        let mut inline = json!({"accessModes": ["ReadWriteOnce"], "csi": {"driver": "d.example.com", "volumeHandle": "h"}});
        inline[member] = value;
        let attachment = json!({"metadata": {"name": "a"},
            "spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"inlineVolumeSpec": inline}}});
        found.push((member, problems("storage.k8s.io/v1/volumeattachments", attachment)));
        wanted.push((member, expected.into_iter().map(str::to_owned).collect()));
    }
    assert_eq!(found, wanted);
}

#[test]
fn expressions_of_policies_have_types() {
    const EXPRESSION: &str = "spec.validations[0].expression: Invalid value";
    let undeclared = |name: &str, at: usize, text: &str| {
        let marker = ".".repeat(at - 1) + "^";
        format!(
            "compilation failed: ERROR: <input>:1:{at}: undeclared reference to '{name}' (in container '')\n | {text}\n | {marker}"
        )
    };
    let mut found = Vec::new();
    let mut wanted = Vec::new();
    for (member, value, expected) in [
        ("validations", json!([{"expression": "variables.flag"}]), vec![]),
        ("validations", json!([{"expression": "variables.other"}]), vec![format!(
            "{EXPRESSION}: \"variables.other\": compilation failed: ERROR: <input>:1:10: undefined field 'other'\n | variables.other\n | .........^")]),
        ("validations", json!([{"expression": "object.spec.flag"}]),
            vec![format!("{EXPRESSION}: \"object.spec.flag\": must evaluate to bool but got dyn")]),
        ("validations", json!([{"expression": "[null]"}]),
            vec![format!("{EXPRESSION}: \"[null]\": must evaluate to bool but got list(null_type)")]),
        ("validations", json!([{"expression": "true", "messageExpression": "authorizer"}]), vec![format!(
            "spec.validations[0].messageExpression: Invalid value: \"authorizer\": {}", undeclared("authorizer", 1, "authorizer"))]),
        ("validations", json!([{"expression": "Object{}"}]),
            vec![format!("{EXPRESSION}: \"Object{{}}\": {}", undeclared("Object", 7, "Object{}"))]),
        ("auditAnnotations", json!([{"key": "k", "valueExpression": " 1"}]), vec![
            "spec.auditAnnotations[0].valueExpression: Invalid value: \" 1\": must evaluate to one of [string null_type] but got int".into()]),
        ("matchConditions", json!([{"name": "n", "expression": " a"}]), vec![format!(
            "spec.matchConditions[0].expression: Invalid value: \"a\": {}", undeclared("a", 1, "a"))]),
    ] {
        let mut spec = json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["pods"]}]}, "validations": [{"expression": "true"}],
            "variables": [{"name": "flag", "expression": "1 > 0"}]});
        let place = format!("{member} {value}");
        spec[member] = value;
        let policy = json!({"metadata": {"name": "p"}, "spec": spec});
        found.push((place.clone(), problems("admissionregistration.k8s.io/v1/validatingadmissionpolicies", policy)));
        wanted.push((place, expected));
    }
    assert_eq!(found, wanted);
}

#[test]
fn mutations_are_made_of_what_is_patched() {
    let mut found = Vec::new();
    let mut wanted = Vec::new();
    for (kind, member, expression, expected) in [
        ("ApplyConfiguration", "applyConfiguration", "Object{spec: Object.spec{replicas: 1}}", vec![]),
        ("ApplyConfiguration", "applyConfiguration", "1", vec!["must evaluate to Object but got int"]),
        (
            "ApplyConfiguration",
            "applyConfiguration",
            "Object.spec{}",
            vec!["must evaluate to Object but got Object.spec"],
        ),
        ("JSONPatch", "jsonPatch", "[JSONPatch{op: 'remove', path: '/x'}] + [JSONPatch{}]", vec![]),
        (
            "JSONPatch",
            "jsonPatch",
            "[JSONPatch{}][0].op",
            vec!["must evaluate to list(JSONPatch) but got string"],
        ),
        (
            "JSONPatch",
            "jsonPatch",
            "[Object{}.spec]",
            vec!["must evaluate to list(JSONPatch) but got list(dyn)"],
        ),
    ] {
        let policy = json!({"metadata": {"name": "p"}, "spec": {"reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["pods"]}]},
            "mutations": [{"patchType": kind, member: {"expression": expression}}]}});
        found.push((
            expression,
            problems("admissionregistration.k8s.io/v1/mutatingadmissionpolicies", policy),
        ));
        let path = format!("spec.mutations[0].{member}.expression");
        let said = |why: &str| format!("{path}: Invalid value: {expression:?}: {why}");
        wanted.push((expression, expected.into_iter().map(said).collect()));
    }
    assert_eq!(found, wanted);
}

#[test]
fn webhooks_are_called_at_addresses() {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut found = Vec::new();
    let mut wanted = Vec::new();
    for (client, expected) in [
        (json!({"service": {"name": "s", "namespace": ""}}), vec!["service.name: Required value".to_owned()]),
        (
            json!({"url": "a\n"}),
            vec![format!(
                "url: Required value: url must be a valid URL: parse \"a\\n\": net/url: invalid control character in URL{FORM}"
            )],
        ),
        (
            json!({"url": "a:b:c"}),
            vec![
                format!("url: Invalid value: \"a\": 'https' is the only allowed URL scheme{FORM}"),
                format!("url: Invalid value: \"\": host must be specified{FORM}"),
            ],
        ),
        (
            json!({"url": "1:b"}),
            vec![format!(
                "url: Required value: url must be a valid URL: parse \"1:b\": first path segment in URL cannot contain colon{FORM}"
            )],
        ),
    ] {
        let webhook = json!({"name": "h.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": client});
        let configuration = json!({"metadata": {"name": "w"}, "webhooks": [webhook]});
        found
            .push(problems("admissionregistration.k8s.io/v1/validatingwebhookconfigurations", configuration));
        let said = |what: String| format!("webhooks[0].clientConfig.{what}");
        wanted.push(expected.into_iter().map(said).collect::<Vec<_>>());
    }
    assert_eq!(found, wanted);
}

#[test]
fn what_is_settled_cannot_be_changed() {
    let change = |resource: &str, pointer: &str, value: Value| {
        let old = valid(resource);
        let mut new = stored(resource, old.clone());
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match new.pointer_mut(parent).unwrap() {
            Value::Object(members) => drop(members.insert(key.to_owned(), value)),
            other => panic!("{parent} is {other}"),
        }
        update(resource, &old, new)
    };
    let none: [&str; 0] = [];
    assert_eq!(change("v1/pods", "/spec/containers/0/image", json!("j")), none);
    assert_eq!(change("v1/pods", "/spec/activeDeadlineSeconds", json!(100)), none);
    assert_eq!(change("v1/pods", "/spec/nodeName", json!("far-away")), ["FieldValueForbidden spec"]);
    assert_eq!(
        change("v1/pods", "/spec/containers", json!([])),
        ["FieldValueRequired spec.containers", "FieldValueForbidden spec.containers"]
    );
    assert_eq!(change("apps/v1/deployments", "/spec/replicas", json!(5)), none);
    assert_eq!(
        change(
            "apps/v1/deployments",
            "/spec/selector",
            json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]})
        ),
        ["FieldValueInvalid spec.selector"]
    );
    assert_eq!(change("apps/v1/statefulsets", "/spec/serviceName", json!("s")), ["FieldValueForbidden spec"]);
    assert_eq!(change("batch/v1/jobs", "/spec/ttlSecondsAfterFinished", json!(5)), none);
    assert_eq!(change("batch/v1/jobs", "/spec/parallelism", json!(5)), none);
    assert_eq!(
        change("batch/v1/jobs", "/spec/completions", json!(5)),
        ["FieldValueInvalid spec.completions"]
    );
    assert_eq!(
        change("batch/v1/jobs", "/spec/template/spec/containers/0/image", json!("j")),
        ["FieldValueInvalid spec.template"]
    );
    assert_eq!(change("v1/secrets", "/type", json!("example.com/x")), ["FieldValueInvalid type"]);
    assert_eq!(change("v1/persistentvolumes", "/spec/claimRef", json!({"name": "c"})), none);
    assert_eq!(
        change("v1/persistentvolumes", "/spec/hostPath", json!({"path": "/y", "type": ""})),
        ["FieldValueForbidden spec.persistentvolumesource"]
    );
    assert_eq!(change("v1/persistentvolumeclaims", "/spec/volumeName", json!("pv")), none);
    assert_eq!(
        change("v1/persistentvolumeclaims", "/spec/accessModes", json!(["ReadWriteMany"])),
        ["FieldValueForbidden spec"]
    );
    assert_eq!(change("discovery.k8s.io/v1/endpointslices", "/endpoints", json!([])), none);
    assert_eq!(
        change("discovery.k8s.io/v1/endpointslices", "/addressType", json!("IPv6")),
        ["FieldValueInvalid addressType"],
        "not also the addresses of the old type"
    );
    assert_eq!(
        change(
            "rbac.authorization.k8s.io/v1/rolebindings",
            "/roleRef",
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"})
        ),
        ["FieldValueInvalid roleRef"]
    );
    assert_eq!(
        change("storage.k8s.io/v1/storageclasses", "/provisioner", json!("x")),
        ["FieldValueInvalid provisioner"]
    );
    assert_eq!(
        change("scheduling.k8s.io/v1/priorityclasses", "/value", json!(9)),
        ["FieldValueForbidden value"]
    );
}

#[test]
fn sealed_data_stays() {
    let sealed = json!({"metadata": {"name": "n"}, "immutable": true, "data": {"k": "v"}});
    let new = |immutable: bool, value: &str| json!({"metadata": {"name": "n"}, "immutable": immutable, "data": {"k": value}});
    assert_eq!(update("v1/configmaps", &sealed, new(true, "v")), Vec::<String>::new());
    assert_eq!(update("v1/configmaps", &sealed, new(true, "w")), ["FieldValueForbidden data"]);
    assert_eq!(update("v1/configmaps", &sealed, new(false, "v")), ["FieldValueForbidden immutable"]);
}

#[test]
fn the_phase_of_a_namespace_follows_its_deletion() {
    let old = json!({"metadata": {"name": "n"}});
    let new = |phase: &str| json!({"metadata": {"name": "n"}, "status": {"phase": phase}});
    assert_eq!(update("v1/namespaces/status", &old, new("Active")), Vec::<String>::new());
    assert_eq!(update("v1/namespaces/status", &old, new("Terminating")), ["FieldValueInvalid status.Phase"]);
}

#[test]
fn what_one_validator_refuses_it_refuses_in_every_kind() {
    let container = json!([{"name": "c", "image": "i", "env": [{"name": "", "value": "x"}]}]);
    let cases = [
        ("v1/pods", "/spec/containers", "spec.containers[0].env[0].name"),
        (
            "apps/v1/deployments",
            "/spec/template/spec/containers",
            "spec.template.spec.containers[0].env[0].name",
        ),
        ("batch/v1/jobs", "/spec/template/spec/containers", "spec.template.spec.containers[0].env[0].name"),
    ];
    let found: Vec<Vec<String>> = cases
        .iter()
        .map(|(resource, pointer, _)| problems(resource, with(resource, pointer, container.clone())))
        .collect();
    let wanted: Vec<Vec<String>> =
        cases.iter().map(|(_, _, field)| vec![format!("{field}: Required value")]).collect();
    assert_eq!(found, wanted);
}

#[test]
fn fields_of_features_that_are_off_are_dropped() {
    let bundle = json!([{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "p"}}]}}]);
    let pod = stored("v1/pods", with("v1/pods", "/spec/volumes", bundle));
    assert_eq!(pod["spec"]["volumes"][0]["projected"]["sources"], json!([{}]));
    let lease = json!({"metadata": {"name": "a"}, "spec": {"preferredHolder": "b", "strategy": "x"}});
    assert_eq!(stored("coordination.k8s.io/v1/leases", lease)["spec"], json!({}));
}

/// Returns the errors of a create of an object of `resource.k8s.io`, without the explanation of what a name must look like.
fn device_problems(resource: &str, spec: &Value) -> Vec<String> {
    let all = problems(resource, json!({"metadata": {"name": "a"}, "spec": spec}));
    all.iter().map(|problem| problem.split(": a ").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn devices_are_refused_where_upstream_says() {
    let slice = |device: Value| {
        json!({"driver": "d.example.com", "nodeName": "n", "devices": [device],
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}})
    };
    let devices = "spec.devices[0]";
    for (device, wanted) in [
        (
            json!({"name": "d", "attributes": {"Bad Key!": {"int": 1}}}),
            "attributes: Invalid value: \"Bad Key!\"",
        ),
        (
            json!({"name": "d", "capacity": {"Bad Key!": {"value": "1"}}}),
            "capacity: Invalid value: \"Bad Key!\"",
        ),
        (
            json!({"name": "d", "consumesCounters": [{"counterSet": "c", "counters": {"Bad Key!": {"value": "1"}}}]}),
            "consumesCounters[0].counters: Invalid value: \"Bad Key!\"",
        ),
        // Lists are dropped because their feature is off.
        (
            json!({"name": "d", "attributes": {"k": {"bools": [true]}}}),
            "attributes[k]: Invalid value: \"\": exactly one value must be specified",
        ),
    ] {
        let found = device_problems("resource.k8s.io/v1/resourceslices", &slice(device));
        assert_eq!(found, [format!("{devices}.{wanted}")]);
    }
    let claim = json!({"devices": {
        "requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}],
        "constraints": [{"matchAttribute": "example.com/a", "distinctAttribute": ""}]}});
    assert_eq!(device_problems("resource.k8s.io/v1/resourceclaims", &claim), Vec::<String>::new());
}

#[test]
fn values_are_shown_as_upstream_shows_them() {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {
        "hard": {"pods": "5"}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "VolumeAttributesClass", "operator": "Exists"}]}}});
    let selector =
        r#"{"MatchExpressions":[{"ScopeName":"VolumeAttributesClass","Operator":"Exists","Values":null}]}"#;
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "r"}, "spec": {"signerName": "a.b/c", "usages": ["client auth"]}});
    for (resource, object, wanted) in [
        (
            "v1/resourcequotas",
            quota,
            format!(
                "spec.scopeSelector.matchExpressions: Invalid value: {selector}: unsupported scope applied to resource"
            ),
        ),
        (
            "certificates.k8s.io/v1/certificatesigningrequests",
            request,
            "spec.request: Invalid value: null: PEM block type must be CERTIFICATE REQUEST".into(),
        ),
    ] {
        assert_eq!(problems(resource, object), [wanted]);
    }
}

#[test]
fn statuses_are_refused_in_the_order_of_upstream() {
    let old = json!({"metadata": {"name": "v1.a.b"}, "spec": {"group": "a.b", "version": "v1"}});
    let new =
        json!({"metadata": {"name": "v1.a.b"}, "status": {"conditions": [{"type": "A", "status": "x"}]}});
    let found =
        kinds::validate_update(target("apiregistration.k8s.io/v1/apiservices/status"), &new, &old, None);
    let details: Vec<&str> = found.iter().map(|problem| problem.detail.as_str()).collect();
    assert_eq!(details, ["Unsupported value: \"x\": supported values: \"True\", \"False\", \"Unknown\""]);

    let old = json!({"metadata": {"name": "c"}, "spec": {"devices": {}}});
    let device = json!({"driver": "a", "pool": "a", "device": "a", "networkData": {"ips": ["a", "a"]}});
    let new = json!({"metadata": {"name": "c"}, "spec": {"devices": {}}, "status": {"devices": [device]}});
    let found = kinds::validate_update(target("resource.k8s.io/v1/resourceclaims/status"), &new, &old, None);
    let addresses = found.iter().filter(|problem| problem.field.contains(".ips["));
    let reasons: Vec<String> = addresses.map(|e| format!("{} {}", e.reason.as_str(), e.field)).collect();
    let place = "status.devices[0].networkData.ips";
    assert_eq!(
        reasons,
        [
            format!("FieldValueInvalid {place}[0]"),
            format!("FieldValueInvalid {place}[1]"),
            format!("FieldValueDuplicate {place}[1]"),
        ]
    );
}

fn with(resource: &str, pointer: &str, value: Value) -> Value {
    let mut object = valid(resource);
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match object.pointer_mut(parent).unwrap() {
        Value::Object(members) => drop(members.insert(key.to_owned(), value)),
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
        other => panic!("{parent} is {other}"),
    }
    object
}
