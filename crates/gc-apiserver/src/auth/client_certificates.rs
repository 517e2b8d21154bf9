//! Client certificates. The handshake accepts any certificate, as upstream does: a client whose certificate proves nothing gets a
//! 401 that says so, or is identified by its token, instead of a broken connection.

use std::ops::RangeInclusive;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::x509::{Certificate, Pool, Purpose, verify_tls12, verify_tls13};

/// The user of a verified client certificate.
#[derive(Debug, Default)]
pub(crate) struct CertifiedUser {
    /// Its common name.
    pub(crate) name: String,
    /// Its organizations.
    pub(crate) groups: Vec<String>,
    /// Expiry in seconds since the epoch, if any.
    pub(crate) ends: Option<i64>,
}

impl CertifiedUser {
    fn of(certificate: &Certificate) -> Self {
        let subject = &certificate.subject;
        Self {
            name: subject.common_name.clone(),
            groups: subject.organizations.clone(),
            ends: Some(certificate.not_after),
        }
    }
}

/// User named by a verified client certificate, shared by the requests of its connection.
pub(crate) type CertificateIdentity = Arc<CertifiedUser>;

/// Client certificate of a connection, as judged by the server.
#[derive(Clone, Debug, Default)]
pub(crate) enum ClientCertificate {
    /// The client sent none.
    #[default]
    Absent,
    /// Issued by an authority that this server trusts.
    Verified(CertificateIdentity),
    /// Issued to a proxy that names users in headers, with the user that the certificate itself identifies, if any.
    FrontProxy(Option<CertificateIdentity>),
    /// Proves nothing: issued by an unknown authority, expired, or for another use.
    Refused,
}

impl ClientCertificate {
    /// Returns the user that the certificate names.
    pub(crate) fn identity(&self) -> Option<&CertificateIdentity> {
        match self {
            Self::Verified(identity) => Some(identity),
            Self::FrontProxy(identity) => identity.as_ref(),
            Self::Absent | Self::Refused => None,
        }
    }

    /// Reports whether the client sent a certificate that names no user.
    pub(crate) fn proves_nothing(&self) -> bool {
        matches!(self, Self::Refused | Self::FrontProxy(None))
    }
}

/// Authorities whose client certificates are accepted.
#[derive(Clone, Debug)]
pub(crate) struct ClientAuthorities {
    clients: Arc<Pool>,
    front_proxies: Option<FrontProxies>,
}

/// The proxies that may name users in headers.
#[derive(Clone, Debug)]
pub(crate) struct FrontProxies {
    pub(crate) authorities: Arc<Pool>,
    /// Common names that their certificates may have; empty for any.
    pub(crate) names: Vec<String>,
}

impl ClientAuthorities {
    pub(crate) fn new(clients: Pool, front_proxies: Option<FrontProxies>) -> Self {
        Self { clients: Arc::new(clients), front_proxies }
    }

    /// Judges a chain, the client's own certificate first, at a time in seconds since 1970.
    fn examine(&self, own: &Certificate, rest: &[Certificate], now: i64) -> ClientCertificate {
        let identity = match self.clients.check(own, rest, Purpose::Client, now) {
            Ok(()) => Some(Arc::new(CertifiedUser::of(own))),
            Err(error) => {
                tracing::debug!(%error, "a client certificate proves nothing");
                None
            }
        };
        if self.front_proxies.as_ref().is_some_and(|proxies| proxies.believe(own, rest, now)) {
            return ClientCertificate::FrontProxy(identity);
        }
        identity.map_or(ClientCertificate::Refused, ClientCertificate::Verified)
    }

    /// Returns the last second at which the verdict on a chain still holds; only the passing of time changes it.
    fn good_until(&self, chain: &[Certificate], now: i64) -> i64 {
        let shown = chain.iter().flat_map(Certificate::last_moments);
        let proxies = self.front_proxies.iter().flat_map(|proxies| proxies.authorities.last_moments());
        let moments = shown.chain(self.clients.last_moments()).chain(proxies);
        moments.filter(|moment| *moment >= now).min().unwrap_or(i64::MAX)
    }
}

impl FrontProxies {
    fn believe(&self, own: &Certificate, rest: &[Certificate], now: i64) -> bool {
        self.authorities.check(own, rest, Purpose::Client, now).is_ok()
            && (self.names.is_empty() || self.names.contains(&own.subject.common_name))
    }
}

/// The certificates that a connection was opened with, and their current verdict: a connection may outlive them.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionCertificate(Arc<PresentedCertificate>);

#[derive(Debug)]
struct PresentedCertificate {
    authorities: ClientAuthorities,
    /// The client's own certificate first; `None` if they cannot be read.
    chain: Option<Vec<Certificate>>,
    /// Last verdict, and the period for which it holds, in seconds since 1970.
    last: RwLock<(ClientCertificate, RangeInclusive<i64>)>,
}

impl ConnectionCertificate {
    /// Reads the certificates of a connection.
    pub(crate) fn new(authorities: ClientAuthorities, chain: Option<&[CertificateDer<'_>]>) -> Self {
        let chain = chain.unwrap_or_default().iter().map(|der| Certificate::from_der(der).ok()).collect();
        let never = RangeInclusive::new(1, 0);
        Self(Arc::new(PresentedCertificate {
            authorities,
            chain,
            last: RwLock::new((ClientCertificate::Absent, never)),
        }))
    }

    /// Returns the current verdict, and verifies again whenever a certificate starts or ceases to be valid.
    pub(crate) fn now(&self) -> ClientCertificate {
        self.at(i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX))
    }

    fn at(&self, now: i64) -> ClientCertificate {
        let shown = &self.0;
        let last = shown.last.read().unwrap_or_else(PoisonError::into_inner);
        if last.1.contains(&now) {
            return last.0.clone();
        }
        drop(last);
        let (found, until) = match shown.chain.as_deref() {
            None => (ClientCertificate::Refused, i64::MAX),
            Some([]) => (ClientCertificate::Absent, i64::MAX),
            Some(chain @ [own, rest @ ..]) => {
                (shown.authorities.examine(own, rest, now), shown.authorities.good_until(chain, now))
            }
        };
        *shown.last.write().unwrap_or_else(PoisonError::into_inner) = (found.clone(), now..=until);
        found
    }
}

/// Verifier that accepts any certificate whose key the client holds.
#[derive(Debug)]
pub(crate) struct AnyCertificate {
    provider: Arc<CryptoProvider>,
    /// Authorities sent to the client, which help it choose among several certificates.
    hints: Vec<DistinguishedName>,
}

impl AnyCertificate {
    pub(crate) fn new(provider: Arc<CryptoProvider>, authorities: &ClientAuthorities) -> Self {
        let hints = authorities.clients.subjects().map(|subject| subject.to_vec().into()).collect();
        Self { provider, hints }
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    const AUTHORITY_ENDS: i32 = 2030;
    const CLIENT_ENDS: i32 = 2025;

    fn params(name: &str, ends: i32) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(ends, 1, 1);
        params
    }

    #[test]
    fn a_connection_does_not_outlive_its_certificate() {
        let (key, client_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut authority = params("ca", AUTHORITY_ENDS);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = authority.self_signed(&key).unwrap();
        let issuer = Issuer::new(authority, key);
        let client = params("jane", CLIENT_ENDS).signed_by(&client_key, &issuer).unwrap();
        let pool = Pool::new(vec![Certificate::from_der(root.der()).unwrap()]);
        let chain = [client.der().clone()];
        let connection = ConnectionCertificate::new(ClientAuthorities::new(pool, None), Some(&chain));
        let at = |text: &str| {
            let found = connection.at(text.parse::<jiff::Timestamp>().unwrap().as_second());
            found.identity().map(|identity| identity.name.clone())
        };
        for (time, user) in [
            ("2019-12-31T23:59:59Z", None),
            ("2020-01-01T00:00:00Z", Some("jane")),
            ("2024-06-01T00:00:00Z", Some("jane")),
            ("2025-01-01T00:00:00Z", Some("jane")),
            ("2025-01-01T00:00:01Z", None),
            ("2031-01-01T00:00:00Z", None),
        ] {
            assert_eq!(at(time).as_deref(), user, "{time}");
        }
    }
}
