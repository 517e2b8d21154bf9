//! TLS for another listener of the process, for example for a collector's metrics.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;

use crate::auth::pki::{GivenKeys, Keep, Pki, PkiError};

/// A serving certificate, for clients that present none. HTTP/1.1 only.
pub struct ListenerTls {
    acceptor: TlsAcceptor,
    /// Authority of the certificate, if it was generated for this process.
    authority_pem: Option<String>,
}

impl std::fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerTls").field("is_made", &self.authority_pem.is_some()).finish_non_exhaustive()
    }
}

impl ListenerTls {
    /// Uses the given certificate chain and key, in PEM, or generates a certificate for these hosts.
    pub fn new(given: Option<(Vec<u8>, Vec<u8>)>, hosts: &[String]) -> Result<Self, PkiError> {
        let is_made = given.is_none();
        let keys = GivenKeys { serving: given, ..GivenKeys::default() };
        let pki = Pki::load_or_make(&Keep::InMemory, hosts, jiff::Timestamp::now())?.with(&keys)?;
        let acceptor = TlsAcceptor::from(Arc::new(pki.listener_config()?));
        Ok(Self { acceptor, authority_pem: is_made.then_some(pki.ca_pem) })
    }

    /// Returns the authority that clients verify the certificate with, if the certificate was generated here.
    #[must_use]
    pub fn authority_pem(&self) -> Option<&str> {
        self.authority_pem.as_deref()
    }

    /// Returns the acceptor of TLS connections.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }
}
