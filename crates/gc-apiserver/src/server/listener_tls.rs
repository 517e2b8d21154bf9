//! TLS for another listener of the process, such as the metrics of a collector.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;

use crate::auth::pki::{GivenKeys, Keep, Pki, PkiError};

/// A certificate to serve with, for clients that show none. HTTP/1.1 alone.
pub struct ListenerTls {
    acceptor: TlsAcceptor,
    /// The authority of a certificate that was made for this process.
    authority_pem: Option<String>,
}

impl std::fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerTls").field("is_made", &self.authority_pem.is_some()).finish_non_exhaustive()
    }
}

impl ListenerTls {
    /// With the given certificate chain and key, in PEM, or a new certificate for these hosts.
    pub fn new(given: Option<(Vec<u8>, Vec<u8>)>, hosts: &[String]) -> Result<Self, PkiError> {
        let is_made = given.is_none();
        let keys = GivenKeys { serving: given, ..GivenKeys::default() };
        let pki = Pki::load_or_make(&Keep::InMemory, hosts, jiff::Timestamp::now())?.with(&keys)?;
        let acceptor = TlsAcceptor::from(Arc::new(pki.listener_config()?));
        Ok(Self { acceptor, authority_pem: is_made.then_some(pki.ca_pem) })
    }

    /// Returns the authority that clients verify the certificate with, if it was made here.
    #[must_use]
    pub fn authority_pem(&self) -> Option<&str> {
        self.authority_pem.as_deref()
    }

    /// Makes a connection one of TLS.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }
}
