//! Kubeconfig files: their default locations, and how a cluster is added to an existing file.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gc_apiserver::ClientCredentials;
use serde_json::{Value, json};

use crate::UsageError;

/// Name of the administrator's kubeconfig in a data directory.
pub const FILE_NAME: &str = "admin.kubeconfig";
/// Name of the cluster, the user and the context.
const CLUSTER: &str = "kubegc";
const USER: &str = "kubegc-admin";
const ENTRIES: [(&str, &str); 3] = [("clusters", CLUSTER), ("users", USER), ("contexts", CLUSTER)];
/// Largest kubeconfig that is read.
const MAXIMUM_BYTES: u64 = 8 << 20;

/// Returns the directory in which `kubegc up` and `kubegc apiserver` keep data unless another one is given.
pub fn default_data_dir() -> anyhow::Result<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("XDG_DATA_HOME")
        .or_else(|| gc_host::home().map(|home| PathBuf::from(home).join(".local/share")))
        .map(|folder| folder.join("kubegc"))
        .context("neither $XDG_DATA_HOME nor $HOME is set: say --data-dir DIR or --ephemeral")
}

/// Token of a pod's service account.
const TOKEN_OF_POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Kind of command that needs a cluster which no flag selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caller {
    /// A user, as with kubectl: `~/.kube/config` comes before the service account of a pod.
    #[default]
    Person,
    /// A controller, as with client-go's `BuildConfigFromFlags`: the service account of its pod comes first.
    Controller,
}

/// Location of a cluster that no flag selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// In `$KUBECONFIG`.
    Environment,
    /// By the service account of this pod.
    Account,
    /// In `~/.kube/config`.
    Home,
    /// In the kubeconfig of the server that `kubegc up` runs on this machine.
    Local(PathBuf),
    /// Nowhere.
    Nowhere,
}

/// Locations of kubeconfig files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KubeconfigLocations {
    environment: bool,
    account: bool,
    home: bool,
}

impl Caller {
    /// Returns the location of the cluster.
    pub fn find(self) -> Found {
        let home = gc_host::home();
        let places = KubeconfigLocations {
            environment: is_set("KUBECONFIG"),
            account: is_in_pod(),
            home: home.is_some_and(|home| Path::new(&home).join(".kube/config").exists()),
        };
        self.found(places, of_local_server)
    }

    fn found(self, places: KubeconfigLocations, local: impl FnOnce() -> Option<PathBuf>) -> Found {
        match (places, self) {
            (KubeconfigLocations { environment: true, .. }, _) => Found::Environment,
            (KubeconfigLocations { account: true, .. }, Self::Controller) => Found::Account,
            (KubeconfigLocations { home: true, .. }, _) => Found::Home,
            (KubeconfigLocations { account: true, .. }, Self::Person) => Found::Account,
            _ => local().map_or(Found::Nowhere, Found::Local),
        }
    }
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// Reports whether this process is in a pod that has a service account.
#[must_use]
pub fn is_in_pod() -> bool {
    is_set("KUBERNETES_SERVICE_HOST")
        && is_set("KUBERNETES_SERVICE_PORT")
        && Path::new(TOKEN_OF_POD).is_file()
}

/// Returns the kubeconfig of the server that `kubegc up` runs on this machine.
fn of_local_server() -> Option<PathBuf> {
    crate::background::kubeconfig().or_else(|| {
        let file = default_data_dir().ok()?.join(FILE_NAME);
        file.exists().then_some(file)
    })
}

/// Reads a kubeconfig file; `None` if it does not exist. A file that is not a kubeconfig is refused.
pub fn read(path: &Path) -> anyhow::Result<Option<Value>> {
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

/// Adds the cluster to a kubeconfig file as the context `kubegc`, and makes it the current context if there is none. All other
/// contexts stay as they are.
pub fn merge(path: &Path, credentials: &ClientCredentials) -> anyhow::Result<()> {
    let Some(present) = read(path)? else {
        return Ok(credentials.write_kubeconfig(path)?);
    };
    let ours: Value = serde_saphyr::from_str(&credentials.kubeconfig()).context("our own kubeconfig")?;
    write(path, &merged(present, &ours))
}

fn write(path: &Path, document: &Value) -> anyhow::Result<()> {
    let text = crate::yaml::to_string(document).context("the merged kubeconfig")?;
    // A symbolic link remains one.
    let path = path.canonicalize().with_context(|| format!("cannot write {}", path.display()))?;
    gc_apiserver::write_private(&path, text)?;
    Ok(())
}

/// Removes the entries that [`merge`] has added for the server at this address; does nothing if another cluster has our name by
/// now.
pub fn remove(path: &Path, server: &str) -> anyhow::Result<()> {
    match read(path)?.and_then(|present| without(present, server)) {
        Some(rest) => write(path, &rest),
        None => Ok(()),
    }
}

/// Returns `present` without our cluster, user and context, and without ours as the current context; `None` if it does not have the
/// cluster.
fn without(mut present: Value, server: &str) -> Option<Value> {
    let mut clusters = present["clusters"].as_array().into_iter().flatten();
    if !clusters.any(|entry| entry["name"] == CLUSTER && entry["cluster"]["server"] == server) {
        return None;
    }
    for (list, name) in ENTRIES {
        if let Some(all) = present[list].as_array_mut() {
            all.retain(|entry| entry["name"] != name);
        }
    }
    if present["current-context"] == CLUSTER {
        present["current-context"] = "".into();
    }
    Some(present)
}

/// Returns `present` with our cluster, user and context in place of any of the same names.
fn merged(mut present: Value, ours: &Value) -> Value {
    for (list, name) in ENTRIES {
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
    fn clusters_are_found_as_by_client_go() {
        use Caller::{Controller, Person};
        let of = |present: &str| KubeconfigLocations {
            environment: present.contains("environment"),
            account: present.contains("account"),
            home: present.contains("home"),
        };
        let local = || Some(PathBuf::from("local"));
        for (present, caller, expected) in [
            ("environment account home", Person, Found::Environment),
            ("environment account home", Controller, Found::Environment),
            ("account home", Person, Found::Home),
            ("account home", Controller, Found::Account),
            ("account", Person, Found::Account),
            ("account", Controller, Found::Account),
            ("home", Person, Found::Home),
            ("home", Controller, Found::Home),
            ("", Person, Found::Local("local".into())),
            ("", Controller, Found::Local("local".into())),
        ] {
            assert_eq!(caller.found(of(present), local), expected, "{present} {caller:?}");
        }
        assert_eq!(Person.found(KubeconfigLocations::default(), || None), Found::Nowhere);
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

    /// `kubegc down` once left its context behind, even as the current one.
    #[test]
    fn what_was_added_is_taken_out_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        for current in ["prod", ""] {
            let foreign = json!({"apiVersion": "v1", "kind": "Config", "current-context": current,
                "clusters": [{"name": "prod", "cluster": {"server": "https://prod"}}], "users": [],
                "contexts": [{"name": "prod", "context": {"cluster": "prod"}}]});
            std::fs::write(&file, foreign.to_string()).unwrap();
            let present = || read(&file).unwrap().unwrap();
            merge(&file, &credentials("https://127.0.0.1:6443")).unwrap();
            let merged = present();
            remove(&file, "https://127.0.0.1:6444").unwrap();
            assert_eq!(present(), merged, "another server has the name");
            remove(&file, "https://127.0.0.1:6443").unwrap();
            assert_eq!(present(), foreign, "{current}");
        }
        remove(&folder.path().join("missing"), "https://127.0.0.1:6443").unwrap();
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
