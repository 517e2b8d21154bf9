//! Certificates of etcd and of its clients.

use std::path::Path;

use gc_store::EtcdTls;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};

use crate::process::ServerTls;

/// An authority that signs for both sides.
pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// Signs a certificate for 127.0.0.1 with this common name, if any.
    fn sign(&self, name: Option<&str>) -> (String, String) {
        let mut params =
            CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        if let Some(name) = name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Writes the files of a server. etcd's gateway uses the server's certificate as a client, so it must not name a user.
    pub(crate) fn server(&self, directory: &Path) -> ServerTls {
        let (certificate, key) = self.sign(None);
        let files = [("server.pem", &certificate), ("server.key", &key), ("ca.pem", &self.certificate)];
        let [certificate, key, authority] = files.map(|(name, content)| {
            let path = directory.join(name);
            std::fs::write(&path, content).unwrap();
            path
        });
        ServerTls { certificate, key, authority }
    }

    /// Returns the TLS material of a client that is this user of etcd.
    pub(crate) fn client(&self, user: &str) -> EtcdTls {
        let (certificate, key) = self.sign(Some(user));
        let identity = Some((certificate.into_bytes(), key.into_bytes()));
        EtcdTls { ca: self.certificate.clone().into_bytes(), identity }
    }
}

/// Returns the files of a server, and the TLS material of a client.
pub(crate) fn certificates(directory: &Path) -> (ServerTls, EtcdTls) {
    let authority = Authority::new();
    (authority.server(directory), authority.client("kubegc"))
}
