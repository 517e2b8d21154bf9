//! Keys of roles: from STS in exchange for a token of the cluster, from an endpoint beside the container, or from the instance.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde::Deserialize;

use super::{Credentials, ROLE_KEPT, Token};
use crate::cloud::aws::escape::escape;
use crate::cloud::client::{Https, fetch};
use crate::cloud::{MAX_ANSWER_BYTES, shortened};

const STS_VERSION: &str = "2011-06-15";

/// Keys with their expiry (RFC 3339), if it is known.
type RoleCredentials = (Credentials, Option<String>);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleKeys {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: Option<String>,
}

impl From<RoleKeys> for RoleCredentials {
    fn from(keys: RoleKeys) -> Self {
        let credentials = Credentials {
            access_key: keys.access_key_id,
            secret_key: keys.secret_access_key,
            session_token: Some(keys.token).filter(|token| !token.is_empty()),
        };
        (credentials, keys.expiration)
    }
}

#[derive(Deserialize)]
struct AssumeRoleAnswer {
    #[serde(rename = "AssumeRoleWithWebIdentityResult")]
    result: AssumeRoleResult,
}

#[derive(Deserialize)]
struct AssumeRoleResult {
    #[serde(rename = "Credentials")]
    credentials: AssumedKeys,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AssumedKeys {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    expiration: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(rename = "Error")]
    error: RefusalError,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RefusalError {
    code: String,
    #[serde(default)]
    message: String,
}

/// Returns how long to use keys that expire at this time.
pub(super) fn kept(expiration: Option<&str>) -> Result<Duration, String> {
    let Some(text) = expiration else { return Ok(ROLE_KEPT) };
    let expires: jiff::Timestamp =
        text.parse().map_err(|_| format!("their expiration {:?} is no time", shortened(text)))?;
    let left = expires.duration_since(jiff::Timestamp::now());
    let left = Duration::try_from(left).map_err(|_| "they have expired".to_owned())?;
    Ok(ROLE_KEPT.min(left / 2))
}

/// Sends a request and returns the text of a successful answer.
async fn ask(client: &Https, request: http::request::Builder, body: String) -> Result<String, String> {
    let request = request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
    let (status, body) = fetch(client, request, MAX_ANSWER_BYTES).await.map_err(|error| error.to_string())?;
    let text = String::from_utf8(body.to_vec()).map_err(|error| error.to_string())?;
    if status == 200 {
        return Ok(text);
    }
    let why = match quick_xml::de::from_str::<Refusal>(&text) {
        Ok(Refusal { error }) => format!("{}: {}", shortened(&error.code), shortened(&error.message)),
        Err(_) => shortened(&text),
    };
    Err(format!("it answered {status}: {why}"))
}

/// Assumes a role (ARN and session name) with the token in a file, which is renewed in place.
pub(super) async fn of_web_identity(
    client: &Https,
    endpoint: &str,
    (role, session): (&str, &str),
    token_file: &Path,
) -> Result<RoleCredentials, String> {
    let token = read_token(token_file)?;
    let form = format!(
        "Action=AssumeRoleWithWebIdentity&Version={STS_VERSION}&RoleArn={}&RoleSessionName={}&WebIdentityToken={}",
        escape(role),
        escape(session),
        escape(&token)
    );
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{endpoint}/"))
        .header("content-type", "application/x-www-form-urlencoded; charset=utf-8");
    let answer = ask(client, request, form).await.map_err(|why| format!("{endpoint}: {why}"))?;
    let answer: AssumeRoleAnswer =
        quick_xml::de::from_str(&answer).map_err(|_| format!("{endpoint}: the answer is malformed"))?;
    let AssumedKeys { access_key_id, secret_access_key, session_token, expiration } =
        answer.result.credentials;
    Ok(RoleKeys { access_key_id, secret_access_key, token: session_token, expiration }.into())
}

/// Returns the keys that an endpoint beside the container has for it.
pub(super) async fn of_container(
    client: &Https,
    url: &str,
    token: Option<&Token>,
) -> Result<RoleCredentials, String> {
    let mut request = Request::builder().method(Method::GET).uri(url).header("accept", "application/json");
    let token = match token {
        Some(Token::File(path)) => Some(read_token(path)?),
        Some(Token::Value(token)) => Some(token.clone()),
        None => None,
    };
    if let Some(token) = token {
        request = request.header("authorization", token);
    }
    let answer = ask(client, request, String::new()).await?;
    role_keys(&answer)
}

/// Returns the keys of this instance's role.
pub(super) async fn of_instance(client: &Https, metadata: &str) -> Result<RoleCredentials, String> {
    const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
    let ask = async |method: Method, path: &str, header: (&'static str, &str)| {
        let request =
            Request::builder().method(method).uri(format!("{metadata}{path}")).header(header.0, header.1);
        ask(client, request, String::new()).await.map_err(|why| format!("{path}: {why}"))
    };
    let token =
        ask(Method::PUT, "/latest/api/token", ("x-aws-ec2-metadata-token-ttl-seconds", "300")).await?;
    let header = ("x-aws-ec2-metadata-token", token.as_str());
    let roles = ask(Method::GET, ROLES, header).await?;
    let role = roles.lines().next().unwrap_or_default();
    if role.is_empty() {
        return Err("it has no role".to_owned());
    }
    let keys = ask(Method::GET, &format!("{ROLES}{role}"), header).await?;
    role_keys(&keys)
}

/// Parses keys, without repeating them in an error.
fn role_keys(text: &str) -> Result<RoleCredentials, String> {
    let keys: RoleKeys = serde_json::from_str(text).map_err(|error| {
        format!("the answer is malformed at line {}, column {}", error.line(), error.column())
    })?;
    Ok(keys.into())
}

fn read_token(path: &Path) -> Result<String, String> {
    let token =
        std::fs::read_to_string(path).map_err(|error| format!("token {}: {error}", path.display()))?;
    Ok(token.trim().to_owned())
}
