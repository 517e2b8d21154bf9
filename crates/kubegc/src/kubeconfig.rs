//! Kubeconfig files: where they are by default, and how a cluster is added to one that is there.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gc_apiserver::ClientCredentials;
use serde_json::{Value, json};

use crate::UsageError;

/// The administrator's kubeconfig in a data directory.
pub(crate) const FILE_NAME: &str = "admin.kubeconfig";
/// What the cluster, the user and the context are called.
const CLUSTER: &str = "kubegc";
const USER: &str = "kubegc-admin";
/// Largest kubeconfig that is read.
const MAXIMUM_BYTES: u64 = 8 << 20;

/// Where `kubegc up` and `kubegc apiserver` keep data unless they are given a place.
pub(crate) fn default_data_dir() -> anyhow::Result<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("XDG_DATA_HOME")
        .or_else(|| from("HOME").map(|home| home.join(".local/share")))
        .map(|folder| folder.join("kubegc"))
        .context("neither $XDG_DATA_HOME nor $HOME is set: say --data-dir DIR or --ephemeral")
}

/// The kubeconfig of the server that `kubegc up` runs on this machine, where no other says which cluster is meant:
/// `$KUBECONFIG` and `~/.kube/config` are asked first, by everybody who asks this.
pub(crate) fn of_local_server() -> Option<PathBuf> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let home_has_one =
        std::env::var_os("HOME").is_some_and(|home| Path::new(&home).join(".kube/config").exists());
    if is_set("KUBECONFIG") || home_has_one || is_set("KUBERNETES_SERVICE_HOST") {
        return None;
    }
    crate::up::detach::kubeconfig().or_else(|| {
        let file = default_data_dir().ok()?.join(FILE_NAME);
        file.exists().then_some(file)
    })
}

/// What is in a kubeconfig file; `None` if there is no such file. A file that is no kubeconfig is refused.
pub(crate) fn read(path: &Path) -> anyhow::Result<Option<Value>> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let foreign = |why: &str| {
        UsageError::new(format!(
            "--write-kubeconfig {}: the file is not a kubeconfig ({why}) and is not changed; name another file",
            path.display()
        ))
    };
    if !metadata.is_file() || metadata.len() > MAXIMUM_BYTES {
        return Err(foreign("not a file of at most 8 MiB").into());
    }
    let text = std::fs::read_to_string(path).map_err(|error| foreign(&error.to_string()))?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    let options = serde_saphyr::options! { with_snippet: false };
    let document: Value =
        serde_saphyr::from_str_with_options(&text, options).map_err(|error| foreign(&error.to_string()))?;
    let is_kubeconfig = document["kind"] == "Config" && document["apiVersion"] == "v1";
    let is_list = |name: &str| document[name].is_null() || document[name].is_array();
    if !is_kubeconfig || !["clusters", "users", "contexts"].into_iter().all(is_list) {
        return Err(foreign("it is not of kind Config in version v1").into());
    }
    Ok(Some(document))
}

/// Adds the cluster to a kubeconfig file as the context `kubegc`, and makes it the current one where none is. All other
/// contexts stay as they are.
pub(crate) fn merge(path: &Path, credentials: &ClientCredentials) -> anyhow::Result<()> {
    let Some(present) = read(path)? else {
        return Ok(credentials.write_kubeconfig(path)?);
    };
    let ours: Value = serde_saphyr::from_str(&credentials.kubeconfig()).context("our own kubeconfig")?;
    let text = crate::yaml::to_string(&merged(present, &ours)).context("the merged kubeconfig")?;
    // A link stays a link.
    let path = path.canonicalize().with_context(|| format!("cannot write {}", path.display()))?;
    gc_apiserver::write_private(&path, text)?;
    Ok(())
}

/// `present` with our cluster, user and context in place of those of the same names.
fn merged(mut present: Value, ours: &Value) -> Value {
    for (list, name) in [("clusters", CLUSTER), ("users", USER), ("contexts", CLUSTER)] {
        let entries = ours[list].as_array().cloned().unwrap_or_default();
        if !present[list].is_array() {
            present[list] = json!([]);
        }
        if let Some(all) = present[list].as_array_mut() {
            all.retain(|entry| entry["name"] != name);
            all.extend(entries);
        }
    }
    if present["current-context"].as_str().unwrap_or_default().is_empty() {
        present["current-context"] = CLUSTER.into();
    }
    present
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn credentials(server: &str) -> ClientCredentials {
        let text = |text: &str| text.to_owned();
        ClientCredentials {
            server: server.to_owned(),
            ca_pem: text("ca"),
            certificate_pem: text("certificate"),
            key_pem: text("key"),
        }
    }

    #[test]
    fn a_cluster_is_added_and_nothing_else_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let foreign = "apiVersion: v1\nkind: Config\nclusters:\n- name: prod\n  cluster: {server: 'https://prod', extra: 1}\n\
            users:\n- {name: me, user: {token: secret}}\ncontexts:\n- {name: prod, context: {cluster: prod, user: me}}\n\
            current-context: prod\npreferences: {colors: true}\n";
        std::fs::write(&file, foreign).unwrap();
        for port in ["6443", "6444"] {
            merge(&file, &credentials(&format!("https://127.0.0.1:{port}"))).unwrap();
        }
        let written: Value = serde_saphyr::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let ours: Value =
            serde_saphyr::from_str(&credentials("https://127.0.0.1:6444").kubeconfig()).unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "prod", "preferences": {"colors": true},
            "clusters": [{"name": "prod", "cluster": {"server": "https://prod", "extra": 1}}, ours["clusters"][0]],
            "users": [{"name": "me", "user": {"token": "secret"}}, ours["users"][0]],
            "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "me"}}, ours["contexts"][0]],
        });
        assert_eq!(written, expected);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_is_no_kubeconfig_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes");
        for content in [
            "Dear diary",
            "kind: Pod\napiVersion: v1",
            "kind: Config\napiVersion: v1\nclusters: 7",
            "\u{0}: [",
        ] {
            std::fs::write(&file, content).unwrap();
            let error = merge(&file, &credentials("https://127.0.0.1:6443")).unwrap_err();
            assert!(error.is::<UsageError>(), "{content}: {error}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
        }
        assert!(merge(folder.path(), &credentials("https://127.0.0.1:6443")).is_err(), "a folder");
    }

    #[test]
    fn a_missing_or_empty_file_becomes_ours() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["missing", "empty"] {
            let file = folder.path().join(name);
            if name == "empty" {
                std::fs::write(&file, "\n").unwrap();
            }
            let credentials = credentials("https://127.0.0.1:6443");
            merge(&file, &credentials).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), credentials.kubeconfig(), "{name}");
        }
    }
}
