//! Command lines for people to copy. Names come from the cluster, so everything is quoted for a shell.

/// A word for a POSIX shell.
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = !word.is_empty()
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._/=:@,+".contains(&byte));
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// `kubectl`, in a namespace (none if it is empty), with these words.
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

/// Sets the finalizers of an object to those that remain.
#[must_use]
pub fn set_finalizers(namespace: &str, object: &str, remaining: &[&str]) -> String {
    let patch = serde_json::json!({"metadata": {"finalizers": remaining}}).to_string();
    kubectl(namespace, &["patch", object, "--type=merge", "-p", &patch])
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
            set_finalizers("shop", "cm/a", &["x/y"]),
            r#"kubectl -n shop patch cm/a --type=merge -p '{"metadata":{"finalizers":["x/y"]}}'"#
        );
    }
}
