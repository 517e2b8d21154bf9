//! Sources of credentials: the environment, or the role of the instance (IMDSv2).

use std::fmt;
use std::time::Duration;

use http::{Method, Request};
use serde::Deserialize;

use crate::MAX_ANSWER_BYTES;
use crate::client::{Https, fetch};

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
pub(crate) const METADATA: &str = "http://169.254.169.254";
/// How long keys of a role are cached; the instance renews them every few hours.
pub(crate) const ROLE_KEPT: Duration = Duration::from_mins(5);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleKeys {
    access_key_id: String,
    secret_access_key: String,
    token: String,
}

/// The keys of the environment, if set.
pub(crate) fn of_environment() -> Option<Credentials> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    Some(Credentials {
        access_key: variable("AWS_ACCESS_KEY_ID")?,
        secret_key: variable("AWS_SECRET_ACCESS_KEY")?,
        session_token: variable("AWS_SESSION_TOKEN"),
    })
}

/// The keys of this instance's role, or why there are none.
pub(crate) async fn of_instance(client: &Https, metadata: &str) -> Result<Credentials, String> {
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
