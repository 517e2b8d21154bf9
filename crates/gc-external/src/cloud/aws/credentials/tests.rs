#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn of(variables: &[(&str, &str)]) -> Result<Origin, String> {
    let variable =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    choose(&variable, "eu-central-1")
}

/// A source that the environment names is used or is an error; it is never skipped in favour of the instance's role.
#[test]
fn the_environment_chooses_the_origin() {
    let keys = |session_token: Option<&str>| {
        Ok(Origin::Keys(Credentials {
            access_key: "a".into(),
            secret_key: "s".into(),
            session_token: session_token.map(str::to_owned),
        }))
    };
    let identity = |session: &str, endpoint: &str| {
        Ok(Origin::WebIdentity {
            role: "arn:role".into(),
            session: session.into(),
            token_file: "/token".into(),
            endpoint: endpoint.into(),
        })
    };
    let container = |url: &str, token| Ok(Origin::Container { url: url.into(), token });
    let instance = |endpoint: &str| Ok(Origin::Instance { endpoint: endpoint.into() });
    let refused = |words: &str| Err(words.to_owned());
    let (token, arn) = (("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_ROLE_ARN", "arn:role"));
    let (access, secret) = (("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "s"));
    const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    const POD_IDENTITY: &str = "http://169.254.170.23/v1/credentials";
    for (variables, expected) in [
        (&[][..], instance(METADATA)),
        (&[access, secret], keys(None)),
        (&[access, secret, ("AWS_SESSION_TOKEN", "t"), token, arn], keys(Some("t"))),
        (&[access], refused("only one is set")),
        (&[token, arn], identity("kubegc", "https://sts.eu-central-1.amazonaws.com")),
        (
            &[token, arn, ("AWS_ROLE_SESSION_NAME", "me"), ("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1/")],
            identity("me", "http://127.0.0.1:1"),
        ),
        (&[token, arn, ("AWS_ENDPOINT_URL_STS", "http://sts.example.com")], refused("no https:// URL")),
        (&[token], refused("only one is set")),
        (&[arn], refused("only one is set")),
        (&[(FULL, POD_IDENTITY)], container(POD_IDENTITY, None)),
        (
            &[(FULL, POD_IDENTITY), ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/var/token")],
            container(POD_IDENTITY, Some(Token::File("/var/token".into()))),
        ),
        (
            &[(FULL, "http://[fd00:ec2::23]/v1/credentials")],
            container("http://[fd00:ec2::23]/v1/credentials", None),
        ),
        (&[(FULL, "https://h/x")], container("https://h/x", None)),
        (&[(FULL, "http://h/secret")], refused("container credentials of http://h/…: expected https://")),
        (
            &[
                ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x"),
                ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "t"),
            ],
            container("http://169.254.170.2/v2/x", Some(Token::Value("t".into()))),
        ),
        (&[("AWS_PROFILE", "prod")], refused("AWS_PROFILE is set, and profiles are not supported")),
        (&[("AWS_SHARED_CREDENTIALS_FILE", "/c"), token, arn], refused("profiles are not supported")),
        (&[("AWS_EC2_METADATA_DISABLED", "true")], refused("no other credentials are named")),
        (
            &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://[fd00:ec2::254]/")],
            instance("http://[fd00:ec2::254]"),
        ),
        (&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://h/")], refused("no address of this instance")),
    ] {
        match (of(variables), expected) {
            (Err(why), Err(words)) => assert!(why.contains(&words), "{variables:?}: {why}"),
            (found, expected) => assert_eq!(found, expected, "{variables:?}"),
        }
    }
}

/// Path, `authorization` header, and body of each request.
type Asked = Arc<Mutex<Vec<(String, String, String)>>>;

/// Starts a server on this machine that gives these answers by path.
async fn serve(answers: &'static [(&'static str, u16, &'static str)]) -> (String, Asked) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| {
                    let log = Arc::clone(&log);
                    async move {
                        let path = request.uri().path().to_owned();
                        let token = request.headers().get("authorization");
                        let token = token.map_or(String::new(), |value| value.to_str().unwrap().to_owned());
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        log.lock().unwrap().push((
                            path.clone(),
                            token,
                            String::from_utf8_lossy(&body).into(),
                        ));
                        let known = answers.iter().find(|(of, ..)| *of == path);
                        let (status, text) = known.map_or((404, ""), |(_, status, text)| (*status, *text));
                        http::Response::builder().status(status).body(Full::new(bytes::Bytes::from(text)))
                    }
                });
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (url, asked)
}

fn keys(access_key: &str) -> Credentials {
    Credentials { access_key: access_key.into(), secret_key: "s".into(), session_token: Some("t".into()) }
}

const ASSUMED: &str = "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
    <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
    <SessionToken>t</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials>\
    </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";

/// IRSA: a token that the cluster signed is exchanged for the keys of a role.
#[tokio::test]
async fn a_web_identity_assumes_its_role() {
    let (endpoint, asked) = serve(&[("/", 200, ASSUMED)]).await;
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "a.b+c\n").unwrap();
    let origin = |endpoint: &str| Origin::WebIdentity {
        role: "arn:aws:iam::1:role/r".into(),
        session: "me".into(),
        token_file: token.path().into(),
        endpoint: endpoint.into(),
    };
    let source = Source::of(origin(&endpoint), PATIENCE).unwrap();
    for _ in 0..3 {
        assert_eq!(source.get().await, Ok(keys("ASIA1")));
    }
    let form = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr\
        &RoleSessionName=me&WebIdentityToken=a.b%2Bc";
    // Only once, because keys are used for minutes.
    assert_eq!(*asked.lock().unwrap(), [("/".to_owned(), String::new(), form.to_owned())]);

    const DENIED: &str = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized</Message>\
        </Error></ErrorResponse>";
    let (endpoint, _) = serve(&[("/", 403, DENIED)]).await;
    let why = Source::of(origin(&endpoint), PATIENCE).unwrap().get().await.unwrap_err();
    let expected = format!(
        "web identity of arn:aws:iam::1:role/r: {endpoint}: it answered 403: AccessDenied: Not authorized"
    );
    assert_eq!(why, expected);
    let (endpoint, _) = serve(&[("/", 200, "<html>secret</html>")]).await;
    let why = Source::of(origin(&endpoint), PATIENCE).unwrap().get().await.unwrap_err();
    assert!(why.ends_with("the answer is malformed"), "{why}");
}

/// EKS Pod Identity: the agent of the node returns keys for a token that it knows.
#[tokio::test]
async fn a_container_asks_its_endpoint() {
    const KEYS: &str =
        r#"{"AccessKeyId":"ASIA2","SecretAccessKey":"s","Token":"t","Expiration":"2999-01-01T00:00:00Z"}"#;
    const OLD: &str =
        r#"{"AccessKeyId":"ASIA2","SecretAccessKey":"s","Token":"t","Expiration":"2001-01-01T00:00:00Z"}"#;
    let (endpoint, asked) = serve(&[
        ("/v1/credentials", 200, KEYS),
        ("/old", 200, OLD),
        ("/odd", 200, r#"{"AccessKeyId":"secret"}"#),
    ])
    .await;
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "signed\n").unwrap();
    let source = |path: &str| {
        let token = Some(Token::File(token.path().into()));
        Source::of(Origin::Container { url: format!("{endpoint}{path}"), token }, PATIENCE).unwrap()
    };
    assert_eq!(source("/v1/credentials").get().await, Ok(keys("ASIA2")));
    assert_eq!(asked.lock().unwrap()[0].1, "signed");
    for (path, words) in [
        ("/old", "they have expired"),
        ("/odd", "of the container: the answer is malformed at line 1"),
        ("/none", "of the container: it answered 404"),
    ] {
        let why = source(path).get().await.unwrap_err();
        assert!(why.contains(words) && !why.contains("secret"), "{why}");
    }
}

#[tokio::test]
async fn an_instance_has_a_role() {
    const KEYS: &str = r#"{"Code":"Success","AccessKeyId":"ASIA3","SecretAccessKey":"s","Token":"t","Expiration":"2999-01-01T00:00:00Z"}"#;
    const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
    const ROLE: &str = "/latest/meta-data/iam/security-credentials/worker";
    let source = |endpoint| Source::of(Origin::Instance { endpoint }, PATIENCE).unwrap();
    let (endpoint, _) =
        serve(&[("/latest/api/token", 200, "x"), (ROLES, 200, "worker\n"), (ROLE, 200, KEYS)]).await;
    assert_eq!(source(endpoint).get().await, Ok(keys("ASIA3")));
    let (endpoint, _) = serve(&[("/latest/api/token", 200, "x"), (ROLES, 200, "")]).await;
    assert_eq!(source(endpoint).get().await, Err("of the instance: it has no role".to_owned()));
}
