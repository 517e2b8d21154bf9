//! Sources of credentials: the environment, or the role of the instance (IMDSv2).

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request};
use serde::Deserialize;
use tokio::time::Instant;

use crate::cloud::MAX_ANSWER_BYTES;
use crate::cloud::client::{Https, fetch};

/// Keys for signing requests. Debug output hides the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Such as `AKIA…`.
    pub access_key: String,
    /// The secret key.
    pub secret_key: String,
    /// The session token of a role.
    pub session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// The metadata endpoint of instances.
const METADATA: &str = "http://169.254.169.254";
/// How long keys of a role are cached; the instance renews them every few hours.
const ROLE_KEPT: Duration = Duration::from_mins(5);

/// Where a client gets its keys: those that were given, or of the environment, or of the role of this instance, which are cached.
pub(crate) struct Source {
    given: Option<Credentials>,
    role: Mutex<Option<(Instant, Credentials)>>,
}

impl Source {
    /// Uses these keys, if there are any.
    pub(crate) fn new(given: Option<Credentials>) -> Self {
        Self { given, role: Mutex::default() }
    }

    /// The keys for the next request, or why there are none.
    pub(crate) async fn get(&self, client: &Https) -> Result<Credentials, String> {
        if let Some(credentials) = self.given.clone().or_else(of_environment) {
            return Ok(credentials);
        }
        let known = self.role.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, credentials)) = known.filter(|(read, _)| read.elapsed() < ROLE_KEPT) {
            return Ok(credentials);
        }
        let found = of_instance(client, METADATA).await?;
        *self.role.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), found.clone()));
        Ok(found)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleKeys {
    access_key_id: String,
    secret_access_key: String,
    token: String,
}

/// The keys of the environment, if set.
fn of_environment() -> Option<Credentials> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    Some(Credentials {
        access_key: variable("AWS_ACCESS_KEY_ID")?,
        secret_key: variable("AWS_SECRET_ACCESS_KEY")?,
        session_token: variable("AWS_SESSION_TOKEN"),
    })
}

/// The keys of this instance's role, or why there are none.
async fn of_instance(client: &Https, metadata: &str) -> Result<Credentials, String> {
    let ask = async |method: Method, path: &str, header: (&'static str, &str)| {
        let request =
            Request::builder().method(method).uri(format!("{metadata}{path}")).header(header.0, header.1);
        let request = request.body(http_body_util::Full::default()).map_err(|error| error.to_string())?;
        let (status, body) =
            fetch(client, request, MAX_ANSWER_BYTES).await.map_err(|error| error.to_string())?;
        if status != 200 {
            return Err(format!("{path} answered {status}"));
        }
        String::from_utf8(body.to_vec()).map_err(|error| error.to_string())
    };
    let token =
        ask(Method::PUT, "/latest/api/token", ("x-aws-ec2-metadata-token-ttl-seconds", "300")).await?;
    let header = ("x-aws-ec2-metadata-token", token.as_str());
    const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
    let roles = ask(Method::GET, ROLES, header).await?;
    let role = roles.lines().next().unwrap_or_default();
    let keys = ask(Method::GET, &format!("{ROLES}{role}"), header).await?;
    let keys: RoleKeys = serde_json::from_str(&keys).map_err(|error| error.to_string())?;
    Ok(Credentials {
        access_key: keys.access_key_id,
        secret_key: keys.secret_access_key,
        session_token: Some(keys.token),
    })
}
