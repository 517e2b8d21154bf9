//! TLS versions and cipher suites, by Go's names.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, SupportedProtocolVersion};

/// The TLS versions that kube-apiserver has names for. No server of this program supports the first two.
const VERSIONS: [&str; 4] = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];
/// Cipher suites of TLS 1.2 that this program supports and can disable.
const SUITES: [(&str, CipherSuite); 6] = [
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];
/// Older names for two of the suites.
const OLDER_NAMES: [(&str, &str); 2] = [
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];
/// Cipher suites of TLS 1.3, which are always offered, as in Go.
const ALWAYS: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// Reason why settings are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsSettingError {
    /// No version has this name.
    #[error("unknown tls version {0:?}")]
    Version(String),
    /// No supported suite has this name.
    #[error("cipher suite {0} is not served; these are: {names}", names = TlsSettings::suite_names().join(", "))]
    Suite(String),
    /// None of the suites belongs to TLS 1.2, which would be left without any.
    #[error("no cipher suite of TLS 1.2 is left: name one, or ask for VersionTLS13")]
    NoSuite,
}

/// TLS versions and cipher suites that a listener offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    only_newest: bool,
    suites: Option<Vec<CipherSuite>>,
    /// True if HTTP/2 is disabled.
    pub only_http1: bool,
}

impl TlsSettings {
    /// Creates settings from the oldest permitted version and the permitted suites; no suites means all of them.
    pub fn new(oldest: Option<&str>, suites: &[&str]) -> Result<Self, TlsSettingError> {
        if let Some(version) = oldest.filter(|version| !VERSIONS.contains(version)) {
            return Err(TlsSettingError::Version(version.to_owned()));
        }
        let only_newest = oldest == Some(VERSIONS[3]);
        let mut kept = Vec::new();
        for name in suites.iter().filter(|name| !ALWAYS.contains(name)) {
            let name = OLDER_NAMES.iter().find(|(older, _)| older == name).map_or(*name, |(_, name)| *name);
            let suite = SUITES.iter().find(|(known, _)| *known == name);
            kept.push(suite.ok_or_else(|| TlsSettingError::Suite(name.to_owned()))?.1);
        }
        if !suites.is_empty() && kept.is_empty() && !only_newest {
            return Err(TlsSettingError::NoSuite);
        }
        Ok(Self { only_newest, suites: (!suites.is_empty()).then_some(kept), only_http1: false })
    }

    fn suite_names() -> Vec<&'static str> {
        SUITES.iter().map(|(name, _)| *name).chain(ALWAYS).collect()
    }

    /// Returns the permitted versions.
    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static NEWEST: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
        if self.only_newest { &NEWEST } else { rustls::DEFAULT_VERSIONS }
    }

    /// Returns the crypto provider, without the suites that are disabled.
    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = rustls::crypto::ring::default_provider();
        if let Some(kept) = &self.suites {
            let optional = |suite: CipherSuite| SUITES.iter().any(|(_, known)| *known == suite);
            provider.cipher_suites.retain(|suite| !optional(suite.suite()) || kept.contains(&suite.suite()));
        }
        Arc::new(provider)
    }

    /// Returns the application protocols offered in the handshake.
    pub(super) fn protocols(&self) -> Vec<Vec<u8>> {
        let both: [&[u8]; 2] = [b"h2", b"http/1.1"];
        both.iter().skip(usize::from(self.only_http1)).map(|name| name.to_vec()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_suites_have_the_names_of_go() {
        let suite = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        let weak = "TLS_RSA_WITH_RC4_128_SHA";
        for (oldest, suites, refused) in [
            (None, &[] as &[&str], None),
            (Some("VersionTLS12"), &[suite], None),
            (Some("VersionTLS13"), &["TLS_AES_128_GCM_SHA256"], None),
            (None, &["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"], None),
            (Some("TLS13"), &[], Some(TlsSettingError::Version("TLS13".into()))),
            (None, &[weak], Some(TlsSettingError::Suite(weak.into()))),
            (None, &["TLS_AES_128_GCM_SHA256"], Some(TlsSettingError::NoSuite)),
        ] {
            assert_eq!(TlsSettings::new(oldest, suites).err(), refused, "{oldest:?} {suites:?}");
        }
        let one = TlsSettings::new(None, &[suite]).unwrap_or_default();
        assert_eq!(one.provider().cipher_suites.len(), 1 + ALWAYS.len());
        assert_eq!(TlsSettings::default().provider().cipher_suites.len(), SUITES.len() + ALWAYS.len());
    }
}
