//! Actions of clients: they create objects, change owners, finalize and delete, under every policy and in every order.

use gc_collectors::volumes::{CLAIM_FINALIZER, VOLUME_FINALIZER};
use gc_registry::api::DeleteOptions;
use gc_types::{ObservedObject, Scope};
use serde_json::{Value, json};

use crate::kinds::{KINDS, ORDINARY_KINDS, UNKNOWN_KIND};
use crate::random::Random;
use crate::server::Server;
use crate::truth::{TrueObject, Truth, show};

/// Names of objects, few enough to be used again.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Weight of each of [`KINDS`] in creations. Kinds without contents are cheap, and as useful as the others.
const OFTEN: [u32; ORDINARY_KINDS] = [4, 3, 2, 1, 1, 2, 3, 4, 4];
/// Number of objects above which clients stop creating.
const OBJECTS: usize = 14;
/// A finalizer that is not the collector's.
const FINALIZER: &str = "example.com/hold";

/// Performs one action of a client, and returns its description.
pub fn act(server: &Server, truth: &Truth, salt: u64, protected: bool) -> String {
    let mut random = Random::new(salt);
    let objects: Vec<&TrueObject> = truth.objects().collect();
    let action = if objects.len() >= OBJECTS { 1 } else { random.weighted(&[34, 24, 12, 8, 8, 6, 10]) };
    if action == 0 || objects.is_empty() {
        let kind = random.weighted(&OFTEN);
        return create(server, truth, &mut random, kind, None);
    }
    let target = objects[random.below(objects.len())];
    match action {
        2 => set_owners(server, truth, &mut random, target),
        3 => release(server, target, protected),
        4 => touch(server, target, random.next()),
        5 => recreate(server, truth, &mut random, target),
        6 => leave_behind(server, &mut random, target),
        _ => delete(server, &mut random, target),
    }
}

fn create(
    server: &Server,
    truth: &Truth,
    random: &mut Random,
    kind: usize,
    place: Option<(&str, &str)>,
) -> String {
    let row = &KINDS[kind];
    let namespaced = row.scope == Scope::Namespaced;
    let (namespace, name) = place.unwrap_or_else(|| {
        let namespace = if namespaced { Truth::namespace(random.below(4).min(1)) } else { "" };
        (namespace, random.pick(&NAMES))
    });
    let owners = references(truth, random, None);
    let mut metadata = json!({"name": name, "ownerReferences": owners});
    if random.chance(150) {
        metadata["finalizers"] = json!([FINALIZER]);
    }
    let manifest = row.manifest(metadata, random.chance(500));
    let result = server.create(row, namespace, manifest);
    format!(
        "create {} owned by {}: {}",
        show(kind, namespace, name),
        shown(&owners),
        shown_result(result.as_ref())
    )
}

/// Returns references to existing objects, and now and then to objects that do not exist.
fn references(truth: &Truth, random: &mut Random, own: Option<&ObservedObject>) -> Vec<Value> {
    let objects: Vec<&TrueObject> = truth.objects().collect();
    let count = random.pick(&[0, 1, 1, 1, 2, 3]);
    let mut references: Vec<Value> = Vec::new();
    for _ in 0..count {
        let ghost = format!("00000000-0000-4000-8000-00000000000{}", random.below(4));
        let mut reference = if objects.is_empty() || random.chance(60) {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": random.pick(&NAMES), "uid": ghost})
        } else {
            let target = objects[random.below(objects.len())];
            let version = random.pick(target.kind().versions);
            json!({
                "apiVersion": target.kind().api_version(version), "kind": target.kind().kind,
                "name": &*target.object.key.name, "uid": target.object.uid.to_string(),
            })
        };
        match random.below(30) {
            0 => reference["name"] = random.pick(&NAMES).into(),
            1 => {
                (reference["apiVersion"], reference["kind"]) = (UNKNOWN_KIND.0.into(), UNKNOWN_KIND.1.into());
            }
            2 => (reference["apiVersion"], reference["kind"]) = ("v1".into(), "Secret".into()),
            3 => {
                if let Some(own) = own {
                    reference["uid"] = own.uid.to_string().into();
                    reference["name"] = (*own.key.name).into();
                }
            }
            _ => {}
        }
        if random.chance(500) {
            reference["blockOwnerDeletion"] = true.into();
        }
        let known = references.iter().any(|other| other["uid"] == reference["uid"]);
        if !known || random.chance(50) {
            references.push(reference);
        }
    }
    references
}

fn shown(owners: &[Value]) -> String {
    let names = owners.iter().map(|owner| {
        let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        let block = if owner["blockOwnerDeletion"] == true { "!" } else { "" };
        format!("{}/{}={}{block}", text("kind"), text("name"), &text("uid")[..8])
    });
    format!("[{}]", names.collect::<Vec<_>>().join(" "))
}

pub(crate) fn shown_result<T>(result: Option<&Result<T, gc_registry::error::ApiError>>) -> String {
    match result {
        None => "not served".to_owned(),
        Some(Ok(_)) => "done".to_owned(),
        Some(Err(error)) => format!("{} {}", error.code, error.message),
    }
}

fn delete(server: &Server, random: &mut Random, target: &TrueObject) -> String {
    let policy = random.pick(&[None, Some("Background"), Some("Foreground"), Some("Orphan")]);
    if target.object.deletion.deleting && !random.chance(150) {
        return format!("leave {} alone", target.show());
    }
    let options = DeleteOptions { propagation_policy: policy.map(str::to_owned), ..DeleteOptions::default() };
    let key = &target.object.key;
    let result = server.delete(target.kind(), &key.namespace, &key.name, options);
    format!("delete {} {}: {}", target.show(), policy.unwrap_or("by default"), shown_result(result.as_ref()))
}

/// Gives an object a dependent and deletes the object right after, by a policy that must wait for the dependent.
fn leave_behind(server: &Server, random: &mut Random, owner: &TrueObject) -> String {
    let namespace = &*owner.object.key.namespace;
    let kinds: Vec<usize> = (0..ORDINARY_KINDS)
        .filter(|&kind| namespace.is_empty() || KINDS[kind].scope == Scope::Namespaced)
        .collect();
    let kind = random.pick(&kinds);
    let row = &KINDS[kind];
    let namespace = match row.scope {
        Scope::Cluster => "",
        Scope::Namespaced if namespace.is_empty() => Truth::namespace(random.below(2)),
        Scope::Namespaced => namespace,
    };
    let name = random.pick(&NAMES);
    let owners = json!([{
        "apiVersion": owner.kind().api_version(owner.kind().versions[0]), "kind": owner.kind().kind,
        "name": &*owner.object.key.name, "uid": owner.object.uid.to_string(), "blockOwnerDeletion": true,
    }]);
    let manifest = row.manifest(json!({"name": name, "ownerReferences": owners}), false);
    let result = server.create(row, namespace, manifest);
    let created = shown_result(result.as_ref());
    let policy = random.pick(&["Foreground", "Orphan"]);
    let options = DeleteOptions { propagation_policy: Some(policy.to_owned()), ..DeleteOptions::default() };
    let key = &owner.object.key;
    let deleted = if owner.object.deletion.deleting {
        "not needed".to_owned()
    } else {
        shown_result(server.delete(owner.kind(), &key.namespace, &key.name, options).as_ref())
    };
    let dependent = show(kind, namespace, name);
    format!(
        "create {dependent} owned by {}: {created}; delete {} {policy}: {deleted}",
        owner.show(),
        owner.show()
    )
}

fn set_owners(server: &Server, truth: &Truth, random: &mut Random, target: &TrueObject) -> String {
    let owners = references(truth, random, Some(&target.object));
    let key = &target.object.key;
    let patch = json!({"metadata": {"ownerReferences": owners}});
    let result = server.merge(target.kind(), &key.namespace, &key.name, patch);
    format!("own {} by {}: {}", target.show(), shown(&owners), shown_result(result.as_ref()))
}

/// Removes every finalizer that is not a collector's; `protected` tells whether volumes are protected.
pub fn release(server: &Server, target: &TrueObject, protected: bool) -> String {
    let deletion = target.object.deletion;
    let mut left = Vec::new();
    if deletion.foreground {
        left.push("foregroundDeletion");
    }
    if deletion.orphan {
        left.push("orphan");
    }
    let value = target.value();
    let carried = value["metadata"]["finalizers"].as_array().into_iter().flatten();
    let protection = [VOLUME_FINALIZER, CLAIM_FINALIZER];
    left.extend(carried.filter_map(Value::as_str).filter(|name| protected && protection.contains(name)));
    let key = &target.object.key;
    let patch = json!({"metadata": {"finalizers": left}});
    let result = server.merge(target.kind(), &key.namespace, &key.name, patch);
    format!("release {}: {}", target.show(), shown_result(result.as_ref()))
}

/// Makes an irrelevant change.
pub fn touch(server: &Server, target: &TrueObject, number: u64) -> String {
    let key = &target.object.key;
    let patch = json!({"metadata": {"labels": {"touched": (number % 1_000_000).to_string()}}});
    let result = server.merge(target.kind(), &key.namespace, &key.name, patch);
    format!("touch {}: {}", target.show(), shown_result(result.as_ref()))
}

fn recreate(server: &Server, truth: &Truth, random: &mut Random, target: &TrueObject) -> String {
    let key = &target.object.key;
    let options =
        DeleteOptions { propagation_policy: Some("Background".to_owned()), ..DeleteOptions::default() };
    // An object that does not end at once keeps its name.
    let _ = server.delete(target.kind(), &key.namespace, &key.name, options);
    format!("re{}", create(server, truth, random, target.kind, Some((&key.namespace, &key.name))))
}

/// Acts as the nodes: ends pods whose deletion waits for their processes.
pub fn end_pods(server: &Server, truth: &Truth) {
    for pod in truth.objects().filter(|object| object.object.deletion.deleting && object.graceful) {
        let key = &pod.object.key;
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        // If the pod is already gone, that is fine too.
        let _ = server.delete(pod.kind(), &key.namespace, &key.name, options);
    }
}
