//! The kubeconfig that makes kubectl and any other client an administrator of the embedded server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The contents of a kubeconfig.
#[derive(Clone, Debug)]
pub struct ClientCredentials {
    /// URL, such as `https://127.0.0.1:6443`.
    pub server: String,
    /// The authority's certificate.
    pub ca_pem: String,
    /// The administrator's certificate.
    pub certificate_pem: String,
    /// The administrator's key.
    pub key_pem: String,
}

impl ClientCredentials {
    /// Returns the kubeconfig as YAML.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let encode = |text: &str| STANDARD.encode(text);
        format!(
            "apiVersion: v1
kind: Config
clusters:
- name: kubegc
  cluster:
    server: {}
    certificate-authority-data: {}
users:
- name: kubegc-admin
  user:
    client-certificate-data: {}
    client-key-data: {}
contexts:
- name: kubegc
  context:
    cluster: kubegc
    user: kubegc-admin
current-context: kubegc
preferences: {{}}
",
            self.server,
            encode(&self.ca_pem),
            encode(&self.certificate_pem),
            encode(&self.key_pem)
        )
    }
}

impl ClientCredentials {
    /// Writes the kubeconfig to a file that only its owner can read.
    pub fn write_kubeconfig(&self, path: &std::path::Path) -> Result<(), crate::PkiError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)
                .map_err(|error| crate::PkiError::Write { path: folder.to_owned(), error })?;
        }
        crate::auth::pki::write_private(path, self.kubeconfig())
    }
}
