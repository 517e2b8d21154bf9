//! Command lines for users to copy. Names come from the cluster, so everything is quoted for a shell.

/// Quotes a word for a POSIX shell.
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = !word.is_empty()
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._/=:@,+".contains(&byte));
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// Formats a `kubectl` command with these words, in a namespace unless it is empty.
#[must_use]
pub fn kubectl(namespace: &str, words: &[&str]) -> String {
    let mut line = String::from("kubectl");
    if !namespace.is_empty() {
        line.push_str(" -n ");
        line.push_str(&quoted(namespace));
    }
    for word in words {
        line.push(' ');
        line.push_str(&quoted(word));
    }
    line
}

/// Returns the command that removes the finalizer at this index, provided that the object and the finalizer are still the same.
#[must_use]
pub fn remove_finalizer(
    namespace: &str,
    object: &str,
    uid: &str,
    (place, finalizer): (usize, &str),
) -> String {
    let path = format!("/metadata/finalizers/{place}");
    let patch = serde_json::json!([
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": path, "value": finalizer},
        {"op": "remove", "path": path},
    ]);
    kubectl(namespace, &["patch", object, "--type=json", "-p", &patch.to_string()])
}

/// Returns the command that shows what depends on a finalizer and removes it after confirmation.
#[must_use]
pub fn release(namespace: &str, object: &str, finalizer: &str) -> String {
    let place = if namespace.is_empty() { String::new() } else { format!(" -n {}", quoted(namespace)) };
    format!("kubegc release {}{place} --finalizer {}", quoted(object), quoted(finalizer))
}

/// Returns the command that deletes a pod without waiting for its kubelet, provided that it is still the same pod.
#[must_use]
pub fn delete_pod_now(namespace: &str, name: &str, uid: &str) -> String {
    let options = serde_json::json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
    });
    let raw = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    format!("echo {} | {}", quoted(&options.to_string()), kubectl("", &["delete", "--raw", &raw, "-f", "-"]))
}

/// Returns the command that sets the finalizers in the specification of a namespace, provided that it is still the same one.
#[must_use]
pub fn finalize_namespace(name: &str, uid: &str, remaining: &[&str]) -> String {
    let document = serde_json::json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": uid},
        "spec": {"finalizers": remaining},
    });
    let raw = format!("/api/v1/namespaces/{name}/finalize");
    format!(
        "echo {} | {}",
        quoted(&document.to_string()),
        kubectl("", &["replace", "--raw", &raw, "-f", "-"])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_word() {
        assert_eq!(
            kubectl("a b", &["get", "pod/$(x)", "it's"]),
            r"kubectl -n 'a b' get 'pod/$(x)' 'it'\''s'"
        );
        assert_eq!(
            remove_finalizer("shop", "cm/a", "u", (1, "x/y")),
            r#"kubectl -n shop patch cm/a --type=json -p '[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/metadata/finalizers/1","value":"x/y"},{"op":"remove","path":"/metadata/finalizers/1"}]'"#
        );
        assert_eq!(
            delete_pod_now("shop", "web-1", "u"),
            r#"echo '{"apiVersion":"v1","gracePeriodSeconds":0,"kind":"DeleteOptions","preconditions":{"uid":"u"}}' | kubectl delete --raw /api/v1/namespaces/shop/pods/web-1 -f -"#
        );
        assert_eq!(release("shop", "cm/a", "x/y"), "kubegc release cm/a -n shop --finalizer x/y");
        assert_eq!(
            finalize_namespace("shop", "u", &[]),
            r#"echo '{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","uid":"u"},"spec":{"finalizers":[]}}' | kubectl replace --raw /api/v1/namespaces/shop/finalize -f -"#
        );
    }
}
