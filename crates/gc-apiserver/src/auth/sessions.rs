//! Browser sessions: a single-use link opens a session, whose cookie identifies a user on the paths of the extension.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gc_registry::api::UserInfo;
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HOST};
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

use crate::auth::client_certificates::{CertifiedUser, ClientCertificate};
use crate::auth::rbac::is_master;
use crate::exchange::header_text;

/// Prefix of the cookie's name. Because of it, browsers insist on `Secure`, on `Path=/` and on no `Domain`.
const SESSION_COOKIE: &str = "__Host-kubegc";
/// Port of addresses that name none.
const DEFAULT_PORT: &str = "443";
/// Time for which a link can be opened, in seconds.
pub const LINK_SECONDS: i64 = 10 * 60;
/// Lifetime of a session, in seconds.
pub const SESSION_SECONDS: i64 = 60 * 60;
/// Maximum number of links and sessions kept at once. Beyond it, the user with the most loses the one that ends first.
const MAXIMUM_KEPT: usize = 1024;
/// Maximum number of links and sessions kept for one user.
const MAXIMUM_KEPT_OF_USER: usize = 16;
/// Number of random bytes in a token.
const TOKEN_BYTES: usize = 32;

type Digest = [u8; 32];

/// The credentials of the request that a link was made for. The session may do what they allow, for as long as they are valid.
#[derive(Clone)]
pub struct Origin(Arc<Credentials>);

struct Credentials {
    certificate: ClientCertificate,
    /// Headers that identify the requester: a bearer token, and the user to impersonate.
    headers: HeaderMap,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Origin(…)")
    }
}

impl Origin {
    /// Captures the credentials of a request, which have identified this user.
    pub(crate) fn new(certificate: &ClientCertificate, headers: &HeaderMap, user: &UserInfo) -> Self {
        let says_who = |name: &str| name == AUTHORIZATION.as_str() || name.starts_with("impersonate-");
        let mut kept = HeaderMap::new();
        for (name, value) in headers.iter().filter(|(name, _)| says_who(name.as_str())) {
            kept.append(name.clone(), value.clone());
        }
        let certificate = match certificate {
            // A proxy has named the user in its own headers.
            ClientCertificate::FrontProxy(_) => ClientCertificate::Verified(Arc::new(CertifiedUser {
                name: user.name.clone(),
                groups: user.groups.clone(),
                ends: None,
            })),
            other => other.clone(),
        };
        Self(Arc::new(Credentials { certificate, headers: kept }))
    }

    /// Returns the headers that identify the requester.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.0.headers
    }

    /// Returns the certificate of the connection, unless it has expired since.
    pub(crate) fn certificate(&self, now: i64) -> Option<&ClientCertificate> {
        let certificate = &self.0.certificate;
        let has_expired = certificate.identity().and_then(|user| user.ends).is_some_and(|ends| ends <= now);
        (!has_expired).then_some(certificate)
    }
}

/// Credentials that a session was made from.
#[derive(Clone, Debug)]
pub enum SessionSource {
    /// The process itself, which trusts everyone who can read its output.
    Process,
    /// A request to this server.
    Request(Origin),
    /// A bearer token that another server verifies on each request.
    Bearer(BearerToken),
}

/// A bearer token of another server, which is never printed.
#[derive(Clone)]
pub struct BearerToken(Arc<str>);

impl BearerToken {
    /// Wraps a token.
    #[must_use]
    pub fn new(token: &str) -> Self {
        Self(token.into())
    }
}

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

#[derive(Clone, Debug)]
struct Grant {
    user: UserInfo,
    source: SessionSource,
    /// End, in seconds since the epoch.
    ends: i64,
}

/// Links and sessions by the digest of their token, so that the duration of a look-up reveals nothing about tokens.
#[derive(Debug, Default)]
struct Grants(HashMap<Digest, Grant>);

impl Grants {
    fn insert(&mut self, token: &str, grant: Grant, now: i64) {
        self.0.retain(|_, kept| kept.ends > now);
        let own = self.0.values().filter(|kept| kept.user.name == grant.user.name).count();
        if own >= MAXIMUM_KEPT_OF_USER {
            self.drop_first(&grant.user.name);
        }
        if self.0.len() >= MAXIMUM_KEPT
            && let Some(user) = self.whoever_has_most()
        {
            self.drop_first(&user);
        }
        self.0.insert(digest(token), grant);
    }

    /// Drops the link or session of a user that ends first.
    fn drop_first(&mut self, user: &str) {
        let among = self.0.iter().filter(|(_, kept)| kept.user.name == user);
        if let Some(first) = among.min_by_key(|(_, kept)| kept.ends).map(|(digest, _)| *digest) {
            self.0.remove(&first);
        }
    }

    /// Returns the user with the most links and sessions. Many accounts together do not displace an administrator's few, because
    /// the administrator comes last.
    fn whoever_has_most(&self) -> Option<String> {
        let mut held = BTreeMap::<(bool, &str), usize>::new();
        for kept in self.0.values() {
            *held.entry((!is_master(&kept.user), &kept.user.name)).or_default() += 1;
        }
        let most =
            held.into_iter().max_by_key(|((may_be_displaced, _), number)| (*may_be_displaced, *number));
        most.map(|((_, user), _)| user.to_owned())
    }

    fn get(&self, token: &str, now: i64) -> Option<&Grant> {
        self.0.get(&digest(token)).filter(|grant| grant.ends > now)
    }
}

/// Links and sessions, kept in memory: they end with the server.
pub struct Sessions {
    random: SystemRandom,
    links: Mutex<Grants>,
    sessions: Mutex<Grants>,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sessions")
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self { random: SystemRandom::new(), links: Mutex::default(), sessions: Mutex::default() }
    }
}

fn digest(token: &str) -> Digest {
    Sha256::digest(token.as_bytes()).into()
}

fn lock(grants: &Mutex<Grants>) -> MutexGuard<'_, Grants> {
    grants.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    fn token(&self) -> String {
        let mut bytes = [0; TOKEN_BYTES];
        // A guessable token would be worse than none.
        self.random.fill(&mut bytes).expect("the operating system gives random bits");
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Creates a link that opens one session of this user, and returns its token. The session ends no later than the credentials
    /// that it is based on.
    #[must_use]
    pub fn link(&self, user: UserInfo, source: SessionSource, now: i64) -> String {
        let token = self.token();
        lock(&self.links).insert(&token, Grant { user, source, ends: now + LINK_SECONDS }, now);
        token
    }

    /// Opens the session of a link, which cannot be used again; returns the value of the cookie.
    #[must_use]
    pub fn open(&self, link: &str, now: i64) -> Option<String> {
        let grant = lock(&self.links).0.remove(&digest(link)).filter(|grant| grant.ends > now)?;
        let token = self.token();
        lock(&self.sessions).insert(&token, Grant { ends: now + SESSION_SECONDS, ..grant }, now);
        Some(token)
    }

    /// Ends the session that these headers belong to.
    pub fn close(&self, headers: &HeaderMap) {
        if let Some(token) = cookie(headers) {
            lock(&self.sessions).0.remove(&digest(token));
        }
    }

    /// Returns the user and the source of the session that these headers belong to.
    pub(crate) fn session(&self, headers: &HeaderMap, now: i64) -> Option<(UserInfo, SessionSource)> {
        let sessions = lock(&self.sessions);
        let grant = sessions.get(cookie(headers)?, now)?;
        Some((grant.user.clone(), grant.source.clone()))
    }

    /// Returns the bearer token stored in the session that these headers belong to.
    #[must_use]
    pub fn bearer(&self, headers: &HeaderMap, now: i64) -> Option<String> {
        let sessions = lock(&self.sessions);
        match &sessions.get(cookie(headers)?, now)?.source {
            SessionSource::Bearer(BearerToken(token)) => Some(token.to_string()),
            SessionSource::Process | SessionSource::Request(_) => None,
        }
    }
}

/// Returns the name of the session cookie at the address that a request was sent to. Browsers send a host's cookies to all of its
/// ports, so the name includes the port: otherwise two servers on one host would end each other's sessions.
#[must_use]
pub fn session_cookie(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).map(header_text).unwrap_or_default();
    let port = host.rsplit_once(':').map_or(DEFAULT_PORT, |(_, port)| port);
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    format!("{SESSION_COOKIE}-{}", if is_port { port } else { DEFAULT_PORT })
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let expected = session_cookie(headers);
    let pairs = headers.get_all(COOKIE).iter().flat_map(|value| header_text(value).split(';'));
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == expected)
        .map(|(_, value)| value)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    fn user(name: &str) -> UserInfo {
        UserInfo { name: name.into(), ..UserInfo::default() }
    }

    fn headers(token: &str) -> HeaderMap {
        let value = format!("theme=dark; __Host-kubegc-7443={token}");
        HeaderMap::from_iter([(COOKIE, value.parse().unwrap()), (HOST, "127.0.0.1:7443".parse().unwrap())])
    }

    #[test]
    fn the_cookie_is_that_of_the_port() {
        for (host, name) in [
            ("127.0.0.1:7443", "__Host-kubegc-7443"),
            ("[::1]:8443", "__Host-kubegc-8443"),
            ("gc.example.com", "__Host-kubegc-443"),
            ("[::1]", "__Host-kubegc-443"),
            ("a:b; c", "__Host-kubegc-443"),
        ] {
            let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            assert_eq!(session_cookie(&headers), name, "{host}");
        }
        let sessions = Sessions::default();
        let session = sessions.open(&sessions.link(user("ann"), SessionSource::Process, 0), 0).unwrap();
        let mut elsewhere = headers(&session);
        elsewhere.insert(HOST, "127.0.0.1:8443".parse().unwrap());
        assert!(sessions.session(&elsewhere, 1).is_none(), "it is the cookie of another port");
    }

    #[test]
    fn a_link_opens_one_session_in_its_time() {
        let sessions = Sessions::default();
        let name = |token: &str, now| sessions.session(&headers(token), now).map(|(user, _)| user.name);
        let late = sessions.link(user("ann"), SessionSource::Process, 0);
        assert_eq!(sessions.open(&late, LINK_SECONDS), None, "too late");
        let link = sessions.link(user("ann"), SessionSource::Process, 0);
        assert_eq!(name(&link, 1), None, "a link is no session");
        let session = sessions.open(&link, LINK_SECONDS - 1).unwrap();
        assert_eq!(sessions.open(&link, 1), None, "spent");
        let end = LINK_SECONDS - 1 + SESSION_SECONDS;
        assert_eq!((name(&session, end - 1), name(&session, end)), (Some("ann".into()), None));
        assert_eq!(name("", 1), None);
        sessions.close(&headers(&session));
        assert_eq!(name(&session, 1), None, "closed");
    }

    #[test]
    fn a_session_keeps_the_token_of_its_link_and_prints_it_nowhere() {
        let sessions = Sessions::default();
        let link = sessions.link(user("ann"), SessionSource::Bearer(BearerToken::new("secret")), 0);
        assert!(!format!("{:?}", lock(&sessions.links)).contains("secret"));
        assert_eq!(sessions.bearer(&headers(&link), 1), None, "a link is no session");
        let session = sessions.open(&link, 1).unwrap();
        assert_eq!(sessions.bearer(&headers(&session), 1).as_deref(), Some("secret"));
        assert_eq!(sessions.bearer(&headers(&session), 1 + SESSION_SECONDS), None, "too late");
        let without = sessions.open(&sessions.link(user("ann"), SessionSource::Process, 0), 1).unwrap();
        assert_eq!(sessions.bearer(&headers(&without), 1), None);
    }

    #[test]
    fn one_user_cannot_displace_the_sessions_of_others() {
        let sessions = Sessions::default();
        let bob = sessions.open(&sessions.link(user("bob"), SessionSource::Process, 0), 0).unwrap();
        for now in 0..3 * MAXIMUM_KEPT {
            let link = sessions.link(user("ann"), SessionSource::Process, i64::try_from(now).unwrap() / 100);
            let _ = sessions.open(&link, 1);
        }
        assert!(lock(&sessions.sessions).0.len() <= MAXIMUM_KEPT_OF_USER + 1);
        assert_eq!(sessions.session(&headers(&bob), 1).unwrap().0.name, "bob");
    }

    /// Regression test: twenty accounts displaced the links and sessions of the administrator.
    #[test]
    fn many_users_together_cannot_displace_the_few_of_another() {
        let sessions = Sessions::default();
        let opened = |user: UserInfo, now: i64| {
            sessions.open(&sessions.link(user, SessionSource::Process, now), now).unwrap()
        };
        let bob = opened(user("bob"), 0);
        let groups = vec!["system:masters".to_owned()];
        let admin: Vec<String> =
            (0..3).map(|_| opened(UserInfo { groups: groups.clone(), ..user("admin") }, 0)).collect();
        for number in 0..MAXIMUM_KEPT {
            opened(user(&format!("mallory-{}", number % 80)), 1);
        }
        let is_open = |token: &String| sessions.session(&headers(token), 2).is_some();
        assert!(is_open(&bob) && admin.iter().all(is_open));
        // Even more accounts than there are places do not displace those of administrators.
        for number in 0..2 * MAXIMUM_KEPT {
            opened(user(&format!("eve-{number}")), 1);
        }
        assert!(admin.iter().all(is_open));
        assert_eq!(lock(&sessions.sessions).0.len(), MAXIMUM_KEPT);
    }
}
