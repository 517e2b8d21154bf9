//! Keys and certificates: a self-signed authority and a signing key for service-account tokens, created at the first start and kept
//! in the data directory; the administrator's client certificate, kept until it is about to expire; and a serving certificate,
//! issued at each start for that start's host names.

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::certificates::CertificateAuthority;
use super::client_certificates::{AnyCertificate, ClientAuthorities, FrontProxies};
use super::request_headers::RequestHeaders;
use super::shared_files::SharedFiles;
use super::tls_settings::TlsSettings;
use super::token_keys::{self, KeyError, PublicKey, SigningKey};
use super::tokens::{TokenSettings, TokenSigner};
use crate::x509::{Certificate, Pool, Purpose};

/// Validity of certificates, in years.
const YEARS: i16 = 10;
/// Remaining validity below which a start replaces the administrator's certificate.
const RENEW_BEFORE: Duration = Duration::from_hours(365 * 24);
/// User name in the administrator's client certificate.
pub(crate) const ADMIN_USER: &str = "kubegc-admin";
/// The authority's certificate. Keys without it are left over from an interrupted first start.
const CA_CERTIFICATE: &str = "ca.crt";
const TOKEN_KEY: &str = "service-account.key";
/// Key files, and whether losing one is an error.
const KEYS: [(&str, bool); 3] = [("ca.key", true), (TOKEN_KEY, true), ("front-proxy-ca.key", false)];
/// The group whose members may do everything.
pub(crate) const MASTERS_GROUP: &str = "system:masters";

/// Failure to make or read keys or certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        error: std::io::Error,
    },
    /// A file or folder could not be written.
    #[error("cannot write {path}: {error}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Cause.
        error: std::io::Error,
    },
    /// A key file does not hold a key.
    #[error("{what} is not usable (remove it to have a new one made): {detail}")]
    BadKey {
        /// Name of the key or certificate.
        what: String,
        /// Cause.
        detail: String,
    },
    /// A key is missing although files that belong to it exist.
    #[error(
        "{path} is missing beside the certificate that was made with it: restore it, or remove the folder that it \
         belongs in to start over (tokens and kubeconfigs of now are refused then)"
    )]
    MissingKey {
        /// The file.
        path: PathBuf,
    },
    /// Others can read a key, and its permissions cannot be changed.
    #[error("{path} can be read by others, and cannot be made private: {error}")]
    OpenKey {
        /// The file.
        path: PathBuf,
        /// Cause.
        error: std::io::Error,
    },
    /// A certificate could not be made.
    #[error("cannot make the certificate of {what}: {detail}")]
    Make {
        /// Certificate that could not be made.
        what: &'static str,
        /// Cause.
        detail: String,
    },
    /// The keys that servers share through their store are unusable.
    #[error("cannot use the keys that the servers on this store share: {0}")]
    ClusterKeys(String),
    /// The TLS stack refused the keys or certificates.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

/// Everything that the server and its clients need.
#[derive(Debug)]
pub(crate) struct Pki {
    /// The authority's certificate.
    pub(crate) ca_pem: String,
    /// The administrator's certificate.
    pub(crate) admin_certificate_pem: String,
    /// The administrator's key.
    pub(crate) admin_key_pem: String,
    /// The key that signs service-account tokens.
    token_key: SigningKey,
    /// Keys that verify such tokens.
    token_keys: Vec<PublicKey>,
    /// Authorities that client certificates are verified against.
    pub(crate) client_authorities_pem: String,
    /// The authority, which signs the requests that controllers approve.
    pub(crate) authority: Arc<CertificateAuthority>,
    ca_der: CertificateDer<'static>,
    /// Further authorities of clients.
    client_authorities: Vec<CertificateDer<'static>>,
    tls: TlsSettings,
    serving_chain: Vec<CertificateDer<'static>>,
    serving_key: PrivateKeyDer<'static>,
}

/// Keys and certificates supplied by the user, in PEM, in place of generated ones.
#[derive(Clone, Default)]
pub struct GivenKeys {
    /// The serving certificate with its chain, and its key.
    pub serving: Option<(Vec<u8>, Vec<u8>)>,
    /// Further authorities whose client certificates are accepted.
    pub client_authorities: Option<Vec<u8>>,
    /// The key that signs service-account tokens.
    pub token_key: Option<Vec<u8>>,
    /// Files of keys, public or private, and of certificates, that verify tokens.
    pub token_verification_keys: Vec<Vec<u8>>,
    /// Certificate and key that this server presents to aggregated servers.
    pub proxy_client: Option<(Vec<u8>, Vec<u8>)>,
    /// TLS versions and cipher suites.
    pub tls: TlsSettings,
}

impl std::fmt::Debug for GivenKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GivenKeys").field("serving", &self.serving.is_some()).finish_non_exhaustive()
    }
}

pub(super) fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let bad = |detail: String| PkiError::BadKey { what: what.to_owned(), detail };
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| bad(error.to_string()))?;
    if found.is_empty() { Err(bad("it holds no certificate".to_owned())) } else { Ok(found) }
}

/// Place where key material is kept between starts.
pub(crate) enum Keep<'a> {
    /// Not kept.
    InMemory,
    /// In this folder (made with mode 0700; files with 0600).
    Folder(&'a Path),
    /// In these files, which the caller stores.
    Shared(&'a SharedFiles),
}

impl Keep<'_> {
    pub(crate) fn read(&self, name: &str) -> Result<Option<String>, PkiError> {
        let folder = match self {
            Self::InMemory => return Ok(None),
            Self::Shared(files) => return Ok(files.read(name)),
            Self::Folder(folder) => folder,
        };
        let path = folder.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(PkiError::Read { path, error }),
        }
    }

    /// Refuses a folder that has lost a key. The certificate is written last, so an interrupted first start leaves none and is not
    /// mistaken for a loss. Makes keys private that others can read.
    fn check_keys(&self) -> Result<(), PkiError> {
        let Self::Folder(folder) = self else { return Ok(()) };
        let complete = folder.join(CA_CERTIFICATE).exists();
        for (name, is_missed) in KEYS {
            let path = folder.join(name);
            let is_open = match fs::metadata(&path) {
                Ok(found) => gc_host::is_open_to_others(&found),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && complete && is_missed => {
                    return Err(PkiError::MissingKey { path });
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(PkiError::Read { path, error }),
            };
            if is_open {
                fs::File::open(&path)
                    .and_then(|file| gc_host::make_private(&file))
                    .map_err(|error| PkiError::OpenKey { path: path.clone(), error })?;
                tracing::warn!(
                    path = %path.display(),
                    "others could read a key; it is private now, and should be replaced if they did"
                );
            }
        }
        Ok(())
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), PkiError> {
        match self {
            Self::InMemory => Ok(()),
            Self::Shared(files) => {
                files.write(name, text);
                Ok(())
            }
            Self::Folder(folder) => write_private(&folder.join(name), text),
        }
    }
}

/// Locks a folder of keys until the returned file is dropped, so that servers that share a data directory and start together get
/// the same keys. Returns `None` on a filesystem that cannot lock folders.
pub(crate) fn lock_folder(folder: &Path) -> Result<Option<fs::File>, PkiError> {
    create_folder(folder)?;
    let opened = fs::File::open(folder);
    let locked = opened.and_then(|opened| opened.lock().map(|()| opened));
    Ok(locked.inspect_err(|error| tracing::debug!(%error, "the folder of keys is not locked")).ok())
}

fn create_folder(folder: &Path) -> Result<(), PkiError> {
    gc_host::create_private_directory(folder)
        .map_err(|error| PkiError::Write { path: folder.to_path_buf(), error })
}

/// Writes a file that only its owner can read, replacing it in one step. A file that already has this content is left alone, so a
/// full disk does not keep a server from starting.
pub fn write_private(path: &Path, content: impl AsRef<[u8]>) -> Result<(), PkiError> {
    let content = content.as_ref();
    let failed = |error| PkiError::Write { path: path.to_owned(), error };
    let is_private = fs::metadata(path).is_ok_and(|file| !gc_host::is_open_to_others(&file));
    if is_private && fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let fresh = path.with_file_name(name);
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut file = gc_host::private(&mut options).open(&fresh).map_err(failed)?;
    gc_host::make_private(&file).map_err(failed)?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&fresh, path).map_err(failed)
}

impl Pki {
    /// Loads the kept keys, and creates the missing ones.
    pub(crate) fn load_or_make(
        keep: &Keep<'_>,
        hosts: &[String],
        now: jiff::Timestamp,
    ) -> Result<Self, PkiError> {
        if let Keep::Folder(folder) = keep {
            create_folder(folder)?;
        }
        keep.check_keys()?;
        let ca_key = load_or_make_key(keep, "ca.key")?;
        let token_key = load_or_make_key(keep, TOKEN_KEY)?;
        let token_key = SigningKey::from_pkcs8(&token_key.serialize_der())
            .map_err(|error| PkiError::BadKey { what: TOKEN_KEY.into(), detail: error.to_string() })?;
        let ca_params = authority_params("kubegc-ca", now);
        let ca_pem = match keep.read("ca.crt")? {
            Some(pem) => pem,
            None => {
                let made = ca_params.self_signed(&ca_key).map_err(|error| make("the authority", &error))?;
                keep.write("ca.crt", &made.pem())?;
                made.pem()
            }
        };
        let ca_der = CertificateDer::from_pem_slice(ca_pem.as_bytes())
            .map_err(|error| PkiError::BadKey { what: "ca.crt".into(), detail: error.to_string() })?;
        let bad_key = |detail: String| PkiError::BadKey { what: "ca.key".into(), detail };
        let signing_key =
            KeyPair::try_from(ca_key.serialize_der()).map_err(|error| bad_key(error.to_string()))?;
        let authority = CertificateAuthority::new(&ca_der, signing_key)
            .map_err(|error| PkiError::BadKey { what: "ca.crt".into(), detail: error.to_string() })?;
        let issuer = Issuer::new(ca_params, ca_key);

        let (serving, serving_key) = issue(&issuer, "the server", &serving_params(hosts, now)?)?;
        let (admin_certificate_pem, admin_key_pem) = match kept_administrator(keep, &ca_der, now)? {
            Some(kept) => kept,
            None => {
                let (admin, key) = issue(&issuer, "the administrator", &admin_params(now))?;
                let (admin, key) = (admin.pem(), key.serialize_pem());
                keep.write("admin.crt", &admin)?;
                keep.write("admin.key", &key)?;
                (admin, key)
            }
        };
        Ok(Self {
            client_authorities_pem: ca_pem.clone(),
            authority: Arc::new(authority),
            ca_pem,
            admin_certificate_pem,
            admin_key_pem,
            token_keys: vec![token_key.public.clone()],
            token_key,
            client_authorities: Vec::new(),
            tls: TlsSettings::default(),
            serving_chain: vec![serving.der().clone(), ca_der.clone()],
            serving_key: PrivateKeyDer::Pkcs8(serving_key.serialize_der().into()),
            ca_der,
        })
    }

    /// Replaces generated keys with the given ones.
    pub(crate) fn with(mut self, given: &GivenKeys) -> Result<Self, PkiError> {
        if let Some((certificate, key)) = &given.serving {
            self.serving_chain = certificates("the serving certificate", certificate)?;
            self.serving_key = PrivateKeyDer::from_pem_slice(key).map_err(|error| PkiError::BadKey {
                what: "the serving key".to_owned(),
                detail: error.to_string(),
            })?;
        }
        if let Some(pem) = &given.client_authorities {
            self.client_authorities = certificates("the file of client authorities", pem)?;
            self.client_authorities_pem.push_str(&String::from_utf8_lossy(pem));
        }
        if let Some(pem) = &given.token_key {
            self.token_key = SigningKey::from_pem(pem).map_err(bad_token_key)?;
            // If verification keys are given, only those count, as in kube-apiserver.
            self.token_keys = vec![self.token_key.public.clone()];
        }
        if !given.token_verification_keys.is_empty() {
            self.token_keys.clear();
        }
        for pem in &given.token_verification_keys {
            let keys = PublicKey::all_from_pem(pem).map_err(bad_token_key)?;
            token_keys::add(&mut self.token_keys, keys).map_err(bad_token_key)?;
        }
        self.tls = given.tls.clone();
        Ok(self)
    }

    /// Converts the keys into the signer and verifier of tokens.
    pub(crate) fn into_signer(self, settings: TokenSettings) -> TokenSigner {
        TokenSigner::new(self.token_key, self.token_keys, settings)
    }

    /// Returns the TLS configuration of a further listener: HTTP/1.1, without client certificates.
    pub(crate) fn listener_config(&self) -> Result<rustls::ServerConfig, PkiError> {
        let tls = |error: &dyn std::fmt::Display| PkiError::Tls(error.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| tls(&error))?
            .with_no_client_auth()
            .with_single_cert(self.serving_chain.clone(), self.serving_key.clone_key())
            .map_err(|error| tls(&error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Returns the authorities for client certificates: the server's own and the given ones.
    pub(crate) fn client_authorities(
        &self,
        headers: Option<&RequestHeaders>,
    ) -> Result<ClientAuthorities, PkiError> {
        let front_proxies = headers
            .map(|headers| {
                let authorities = certificates("the authorities of request headers", &headers.authorities)?;
                let authorities = Arc::new(pool_of("the authorities of request headers", &authorities)?);
                Ok::<_, PkiError>(FrontProxies { authorities, names: headers.allowed_names.clone() })
            })
            .transpose()?;
        let clients = std::iter::once(&self.ca_der).chain(&self.client_authorities);
        Ok(ClientAuthorities::new(pool_of("an authority of clients", clients)?, front_proxies))
    }

    /// Returns the TLS configuration of the server: HTTP/2 and HTTP/1.1, client certificates accepted but not required.
    pub(crate) fn server_config(
        &self,
        authorities: &ClientAuthorities,
    ) -> Result<rustls::ServerConfig, PkiError> {
        let tls = |error: &dyn std::fmt::Display| PkiError::Tls(error.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(AnyCertificate::new(provider, authorities));
        let mut config = rustls::ServerConfig::builder_with_provider(self.tls.provider())
            .with_protocol_versions(self.tls.versions())
            .map_err(|error| tls(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.serving_chain.clone(), self.serving_key.clone_key())
            .map_err(|error| tls(&error))?;
        config.alpn_protocols = self.tls.protocols();
        Ok(config)
    }
}

fn bad_token_key(error: KeyError) -> PkiError {
    PkiError::BadKey { what: "a given key of service-account tokens".into(), detail: error.to_string() }
}

/// Builds a root store from the certificates of trusted authorities.
fn pool_of<'a>(
    what: &str,
    authorities: impl IntoIterator<Item = &'a CertificateDer<'static>>,
) -> Result<Pool, PkiError> {
    let read = authorities.into_iter().map(|der| Certificate::from_der(der));
    let read = read.collect::<Result<Vec<_>, _>>();
    read.map(Pool::new).map_err(|error| PkiError::BadKey { what: what.to_owned(), detail: error.to_string() })
}

pub(super) fn make(what: &'static str, error: &rcgen::Error) -> PkiError {
    PkiError::Make { what, detail: error.to_string() }
}

/// Returns the administrator's certificate and key from an earlier start, if our authority signed them and they remain valid for
/// [`RENEW_BEFORE`].
fn kept_administrator(
    keep: &Keep<'_>,
    authority: &CertificateDer<'static>,
    now: jiff::Timestamp,
) -> Result<Option<(String, String)>, PkiError> {
    let (Some(certificate), Some(key)) = (keep.read("admin.crt")?, keep.read("admin.key")?) else {
        return Ok(None);
    };
    if let Keep::Folder(folder) = keep
        && fs::metadata(folder.join("admin.key")).is_ok_and(|file| gc_host::is_open_to_others(&file))
    {
        tracing::warn!("others could read the administrator's key: a new one is issued");
        return Ok(None);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let is_good = || {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).ok()?;
        let signing = provider
            .key_provider
            .load_private_key(PrivateKeyDer::from_pem_slice(key.as_bytes()).ok()?)
            .ok()?;
        rustls::sign::CertifiedKey::new(vec![der.clone()], signing).keys_match().ok()?;
        let authority = Pool::new(vec![Certificate::from_der(authority).ok()?]);
        let later = now.checked_add(RENEW_BEFORE).ok()?.as_second();
        authority.check(&Certificate::from_der(&der).ok()?, &[], Purpose::Client, later).ok()
    };
    Ok(is_good().map(|()| (certificate.clone(), key.clone())))
}

pub(super) fn load_or_make_key(keep: &Keep<'_>, name: &str) -> Result<KeyPair, PkiError> {
    if let Some(pem) = keep.read(name)? {
        return KeyPair::from_pem(&pem)
            .map_err(|error| PkiError::BadKey { what: name.into(), detail: error.to_string() });
    }
    let key = new_key()?;
    keep.write(name, &key.serialize_pem())?;
    Ok(key)
}

fn new_key() -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| make("a key", &error))
}

pub(super) fn issue(
    issuer: &Issuer<'_, KeyPair>,
    what: &'static str,
    params: &CertificateParams,
) -> Result<(rcgen::Certificate, KeyPair), PkiError> {
    let key = new_key()?;
    let certificate = params.signed_by(&key, issuer).map_err(|error| make(what, &error))?;
    Ok((certificate, key))
}

/// Sets a validity from yesterday (clocks differ) for [`YEARS`].
pub(super) fn validity(params: &mut CertificateParams, now: jiff::Timestamp) {
    let today = now.to_zoned(jiff::tz::TimeZone::UTC).date();
    let date = |date: jiff::civil::Date| {
        rcgen::date_time_ymd(
            date.year().into(),
            u8::try_from(date.month()).unwrap_or(1),
            u8::try_from(date.day()).unwrap_or(1).min(28),
        )
    };
    params.not_before = date(today.yesterday().unwrap_or(today));
    let until = jiff::civil::Date::new(today.year().saturating_add(YEARS), today.month(), 1);
    params.not_after = date(until.unwrap_or(today));
}

pub(super) fn authority_params(name: &str, now: jiff::Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    validity(&mut params, now);
    params
}

fn serving_params(hosts: &[String], now: jiff::Timestamp) -> Result<CertificateParams, PkiError> {
    let mut names: Vec<String> = [
        "localhost",
        "127.0.0.1",
        "::1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    .map(str::to_owned)
    .to_vec();
    for host in hosts {
        let unspecified = host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
        if !unspecified && !names.contains(host) {
            names.push(host.clone());
        }
    }
    let mut params = CertificateParams::new(names).map_err(|error| make("the server", &error))?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, "kubegc-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    validity(&mut params, now);
    Ok(params)
}

fn admin_params(now: jiff::Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::OrganizationName, MASTERS_GROUP);
    params.distinguished_name.push(DnType::CommonName, ADMIN_USER);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    validity(&mut params, now);
    params
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn now() -> jiff::Timestamp {
        "2026-02-28T10:00:00Z".parse().unwrap()
    }

    #[test]
    fn the_authority_and_the_token_key_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("pki");
        let keep = Keep::Folder(&folder);
        let first = Pki::load_or_make(&keep, &["10.1.2.3".into(), "::".into()], now()).unwrap();
        let second = Pki::load_or_make(&keep, &[], now()).unwrap();
        assert_eq!(first.ca_pem, second.ca_pem);
        assert_eq!(first.token_key.public, second.token_key.public);
        second.server_config(&second.client_authorities(None).unwrap()).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        for file in fs::read_dir(&folder).unwrap() {
            let file = file.unwrap();
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
        }
    }

    /// Regression test: every start wrote a new administrator's key, which fails on a full disk and needlessly invalidates
    /// kubeconfigs.
    #[test]
    fn the_administrator_keeps_the_key_while_it_is_good() {
        let folder = tempfile::tempdir().unwrap();
        let keep = Keep::Folder(folder.path());
        let key_at = |time: &str| Pki::load_or_make(&keep, &[], time.parse().unwrap()).unwrap().admin_key_pem;
        let first = key_at("2026-02-28T10:00:00Z");
        assert_eq!(key_at("2030-01-01T00:00:00Z"), first);
        let renewed = key_at("2035-06-01T00:00:00Z");
        assert_ne!(renewed, first, "it ends in February 2036");
        let file = folder.path().join("admin.key");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let replaced = key_at("2035-06-01T00:00:00Z");
        assert_ne!(replaced, renewed, "others could read it");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        for (name, content) in
            [("admin.key", new_key().unwrap().serialize_pem()), ("admin.crt", "none".to_owned())]
        {
            write_private(&folder.path().join(name), &content).unwrap();
            assert!(!content.contains(&key_at("2035-06-01T00:00:00Z")), "{name}");
        }
        let other = tempfile::tempdir().unwrap();
        Pki::load_or_make(&Keep::Folder(other.path()), &[], now()).unwrap();
        for name in ["admin.key", "admin.crt"] {
            fs::copy(other.path().join(name), folder.path().join(name)).unwrap();
        }
        let foreign = fs::read_to_string(other.path().join("admin.key")).unwrap();
        assert_ne!(key_at("2035-06-01T00:00:00Z"), foreign, "another authority's");
    }

    #[test]
    fn a_key_that_was_lost_is_not_replaced() {
        for (name, _) in KEYS.into_iter().filter(|(_, is_missed)| *is_missed) {
            let folder = tempfile::tempdir().unwrap();
            let keep = Keep::Folder(folder.path());
            Pki::load_or_make(&keep, &[], now()).unwrap();
            fs::remove_file(folder.path().join(name)).unwrap();
            let error = Pki::load_or_make(&keep, &[], now()).unwrap_err();
            assert!(matches!(&error, PkiError::MissingKey { path } if path.ends_with(name)), "{error}");
            assert!(!folder.path().join(name).exists());
            // An interrupted first start left no certificate; the next start completes it.
            fs::remove_file(folder.path().join(CA_CERTIFICATE)).unwrap();
            Pki::load_or_make(&keep, &[], now()).unwrap();
        }
    }

    #[test]
    fn keys_that_others_can_read_are_made_private() {
        let folder = tempfile::tempdir().unwrap();
        let keep = Keep::Folder(folder.path());
        Pki::load_or_make(&keep, &[], now()).unwrap();
        crate::auth::front_proxy::FrontProxy::load_or_make(&keep, now()).unwrap();
        for (name, _) in KEYS {
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        Pki::load_or_make(&keep, &[], now()).unwrap();
        for (name, _) in KEYS {
            assert_eq!(fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_broken_key_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.key"), "rubbish").unwrap();
        let error = Pki::load_or_make(&Keep::Folder(folder.path()), &[], now()).unwrap_err();
        assert!(error.to_string().contains("ca.key"), "{error}");
    }

    #[test]
    fn the_subject_of_a_client_certificate_is_user_and_groups() {
        let pki = Pki::load_or_make(&Keep::InMemory, &[], now()).unwrap();
        let der = CertificateDer::from_pem_slice(pki.admin_certificate_pem.as_bytes()).unwrap();
        let subject = Certificate::from_der(&der).unwrap().subject;
        assert_eq!(
            (&*subject.common_name, &*subject.organizations),
            (ADMIN_USER, &[MASTERS_GROUP.to_owned()][..])
        );
        for length in 0..der.len() {
            assert!(Certificate::from_der(&der[..length]).is_err(), "the first {length} bytes");
        }
    }
}
