//! The authority of the front proxy: aggregated servers trust this server's statements about users because its certificate is
//! signed by the authority named in the ConfigMap `extension-apiserver-authentication`.

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::pki::{Keep, PkiError, authority_params, certificates, issue, load_or_make_key, make, validity};
use crate::transport::dial::Identity;

/// Name in the certificate, which aggregated servers are configured to expect.
pub(crate) const CLIENT_NAME: &str = "front-proxy-client";
const AUTHORITY: &str = "front-proxy-ca";

/// The authority's certificate, and this server's certificate issued by it.
pub(crate) struct FrontProxy {
    pub(crate) ca_pem: String,
    pub(crate) identity: Identity,
}

impl FrontProxy {
    /// Reads a given certificate and key, in PEM.
    pub(crate) fn given(certificate: &[u8], key: &[u8]) -> Result<Identity, PkiError> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| PkiError::BadKey {
            what: "the key of the front proxy".into(),
            detail: error.to_string(),
        })?;
        Ok(Identity { chain: certificates("the certificate of the front proxy", certificate)?, key })
    }

    /// Loads or creates the authority, and issues a certificate.
    pub(crate) fn load_or_make(keep: &Keep<'_>, now: jiff::Timestamp) -> Result<Self, PkiError> {
        // A certificate without its key is useless, so both are replaced and published.
        let has_key = keep.read("front-proxy-ca.key")?.is_some();
        let kept = keep.read("front-proxy-ca.crt")?.filter(|_| has_key);
        let key = load_or_make_key(keep, "front-proxy-ca.key")?;
        let params = authority_params(AUTHORITY, now);
        let ca_pem = match kept {
            Some(pem) => pem,
            None => {
                let made =
                    params.self_signed(&key).map_err(|error| make("the front-proxy authority", &error))?;
                keep.write("front-proxy-ca.crt", &made.pem())?;
                made.pem()
            }
        };
        let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(|error| PkiError::BadKey {
            what: "front-proxy-ca.crt".into(),
            detail: error.to_string(),
        })?;
        let issuer = Issuer::new(params, key);
        let (certificate, key) = issue(&issuer, "the front proxy", &client_params(now))?;
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let identity = Identity { chain: vec![certificate.der().clone(), ca], key };
        Ok(Self { ca_pem, identity })
    }
}

fn client_params(now: jiff::Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, CLIENT_NAME);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    validity(&mut params, now);
    params
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn the_authority_is_kept_and_made_anew_without_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let keep = Keep::Folder(folder.path());
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let authority = || FrontProxy::load_or_make(&keep, now).unwrap().ca_pem;
        let first = authority();
        assert_eq!(authority(), first);
        std::fs::remove_file(folder.path().join("front-proxy-ca.key")).unwrap();
        let second = authority();
        assert_ne!(second, first);
        assert_eq!(authority(), second);
    }
}
