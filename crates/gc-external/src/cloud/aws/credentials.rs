//! Sources of credentials, in the order of the AWS SDKs: keys in the environment, a web identity (IRSA), a container's endpoint
//! (EKS Pod Identity, ECS), the role of the instance (IMDSv2). The environment selects one of them. If it names one that cannot be
//! used, that is an error, because the role of the instance may belong to another account.

mod roles;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::public_endpoint;
use crate::cloud::client::{Https, allowed, https};

/// Keys for signing requests. Debug output hides the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Access key, such as `AKIA…`.
    pub access_key: String,
    /// Secret key.
    pub secret_key: String,
    /// Session token of a role.
    pub session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Metadata endpoint of instances.
const METADATA: &str = "http://169.254.169.254";
/// Host of relative URIs of container credentials.
const CONTAINER_HOST: &str = "http://169.254.170.2";
/// Hosts that may be asked for credentials over HTTP, besides this machine, because they belong to this instance.
const INSTANCE_HOSTS: [&str; 5] =
    ["169.254.169.254", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]", "[fd00:ec2::254]"];
/// Maximum time for which keys of a role are cached; they are valid for at least a quarter of an hour.
const ROLE_KEPT: Duration = Duration::from_mins(5);

/// Source of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    /// Keys that do not change.
    Keys(Credentials),
    /// A role that is assumed with a token from the cluster.
    WebIdentity { role: String, session: String, token_file: PathBuf, endpoint: String },
    /// An endpoint beside the container.
    Container { url: String, token: Option<Token> },
    /// The role of the instance.
    Instance { endpoint: String },
}

/// Authorization of a container at its endpoint.
#[derive(Clone, PartialEq, Eq)]
enum Token {
    File(PathBuf),
    Value(String),
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Value(_) => f.write_str("Value"),
        }
    }
}

/// Returns the value of an environment variable; an empty one counts as absent.
fn of_process(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the source that the environment selects, or why it cannot be used.
fn choose(variable: &dyn Fn(&str) -> Option<String>, region: &str) -> Result<Origin, String> {
    match (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
        (Some(access_key), Some(secret_key)) => {
            let session_token = variable("AWS_SESSION_TOKEN");
            return Ok(Origin::Keys(Credentials { access_key, secret_key, session_token }));
        }
        (None, None) => {}
        _ => return Err("of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, only one is set".to_owned()),
    }
    for name in ["AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"] {
        if variable(name).is_some() {
            return Err(format!("{name} is set, and profiles are not supported"));
        }
    }
    match (variable("AWS_WEB_IDENTITY_TOKEN_FILE"), variable("AWS_ROLE_ARN")) {
        (Some(file), Some(role)) => return web_identity(variable, region, file.into(), role),
        (None, None) => {}
        _ => return Err("of AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, only one is set".to_owned()),
    }
    let relative =
        variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").map(|path| format!("{CONTAINER_HOST}{path}"));
    if let Some(url) = relative.or_else(|| variable("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
        if !is_of_instance(&url) {
            return Err(format!(
                "container credentials of {}: expected https:// or an address of this instance",
                crate::cloud::client::shown(&url)
            ));
        }
        let file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(|file| Token::File(file.into()));
        let token = file.or_else(|| variable("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(Token::Value));
        return Ok(Origin::Container { url, token });
    }
    if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err("AWS_EC2_METADATA_DISABLED is true, and no other credentials are named".to_owned());
    }
    let endpoint = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_else(|| METADATA.to_owned());
    if !is_of_instance(&endpoint) {
        return Err("AWS_EC2_METADATA_SERVICE_ENDPOINT is no address of this instance".to_owned());
    }
    Ok(Origin::Instance { endpoint: endpoint.trim_end_matches('/').to_owned() })
}

fn web_identity(
    variable: &dyn Fn(&str) -> Option<String>,
    region: &str,
    token_file: PathBuf,
    role: String,
) -> Result<Origin, String> {
    let session = variable("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "kubegc".to_owned());
    let named = variable("AWS_ENDPOINT_URL_STS").or_else(|| variable("AWS_ENDPOINT_URL"));
    let endpoint = named.unwrap_or_else(|| public_endpoint("sts", region));
    if !endpoint.parse().is_ok_and(|url| allowed(&url)) {
        return Err("the endpoint of STS (AWS_ENDPOINT_URL_STS) is no https:// URL".to_owned());
    }
    Ok(Origin::WebIdentity { role, session, token_file, endpoint: endpoint.trim_end_matches('/').to_owned() })
}

/// Reports whether a URL may be asked for keys: any over HTTPS, but over HTTP only those of this machine or instance.
fn is_of_instance(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    allowed(&url)
        || (url.scheme_str() == Some("http") && url.host().is_some_and(|host| INSTANCE_HOSTS.contains(&host)))
}

/// Keys of a role, and how long to use them.
#[derive(Clone)]
struct Cached {
    read: Instant,
    kept: Duration,
    credentials: Credentials,
}

/// Gets the keys of a client; those of roles are cached.
pub(crate) struct Source {
    origin: Origin,
    client: Https,
    role: Mutex<Option<Cached>>,
}

impl Source {
    /// Uses the given keys, or else the source that the environment selects for a region. Fails if that source is not supported.
    pub(crate) fn new(given: Option<Credentials>, region: &str, timeout: Duration) -> Result<Self, String> {
        let origin = given.map_or_else(|| choose(&of_process, region), |keys| Ok(Origin::Keys(keys)))?;
        Self::of(origin, timeout)
    }

    fn of(origin: Origin, timeout: Duration) -> Result<Self, String> {
        let url = match &origin {
            Origin::WebIdentity { endpoint, .. } => endpoint,
            Origin::Container { url, .. } => url,
            Origin::Keys(_) | Origin::Instance { .. } => "",
        };
        // The authorities of a private bucket do not sign endpoints of AWS.
        let client = https(None, timeout, url.starts_with("https"))?;
        Ok(Self { origin, client, role: Mutex::default() })
    }

    /// Returns the keys for the next request, or why there are none.
    pub(crate) async fn get(&self) -> Result<Credentials, String> {
        let known = self.role.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(cached) = known.filter(|cached| cached.read.elapsed() < cached.kept) {
            return Ok(cached.credentials);
        }
        let client = &self.client;
        let (credentials, expiration) = match &self.origin {
            Origin::Keys(credentials) => return Ok(credentials.clone()),
            Origin::WebIdentity { role, session, token_file, endpoint } => {
                let assumed = roles::of_web_identity(client, endpoint, (role, session), token_file).await;
                assumed.map_err(|why| format!("web identity of {role}: {why}"))?
            }
            Origin::Container { url, token } => roles::of_container(client, url, token.as_ref())
                .await
                .map_err(|why| format!("of the container: {why}"))?,
            Origin::Instance { endpoint } => {
                roles::of_instance(client, endpoint).await.map_err(|why| format!("of the instance: {why}"))?
            }
        };
        let kept = roles::kept(expiration.as_deref())?;
        let cached = Cached { read: Instant::now(), kept, credentials: credentials.clone() };
        *self.role.lock().unwrap_or_else(PoisonError::into_inner) = Some(cached);
        Ok(credentials)
    }
}

#[cfg(test)]
mod tests;
