//! Inventories that change, and webhooks and commands that do not answer, fail, send too much or give wrong answers.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod moto;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use gc_collectors::engine::MachineState;
use gc_external::cloud::{
    ANSWER_TIMEOUT, Credentials, Ec2, Ec2Options, Exec, Inventory, Machine, Provider, Webhook, WebhookOptions,
};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use moto::Moto;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;

/// Timeout of lookups that must time out.
const IMPATIENCE: Duration = Duration::from_millis(500);

fn machine() -> Machine {
    Machine { node: "n".into(), provider_id: "rack://7".into() }
}

fn good(state: &str) -> String {
    format!(
        r#"{{"apiVersion":"kubegc.io/v1alpha1","kind":"MachineLookup","node":{{"name":"n","providerID":"rack://7"}},"machine":{{"state":"{state}"}}}}"#
    )
}

async fn look_up(provider: &dyn Provider) -> Result<MachineState, String> {
    provider.look_up(machine()).await.map_err(|error| error.to_string())
}

fn says(found: &Result<MachineState, String>, expected: &str) {
    let error = found.as_ref().unwrap_err();
    assert!(error.contains(expected), "{error}, not {expected}");
}

#[tokio::test]
async fn an_inventory_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machines.yaml");
    let write = |state: &str| {
        let text = format!(
            "apiVersion: kubegc.io/v1alpha1\nkind: MachineInventory\ncount: 1\nmachines: [{{name: n, state: {state}}}]\n"
        );
        let fresh = folder.path().join("fresh");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(fresh, &path).unwrap();
    };
    assert!(Inventory::open(path.clone()).is_err());
    write("Running");
    let inventory = Inventory::open(path.clone()).unwrap();
    assert_eq!(look_up(&inventory).await, Ok(MachineState::Running));
    write("Shutdown");
    assert_eq!(look_up(&inventory).await, Ok(MachineState::Shutdown));
    // If its exporter has died, it lacks newer machines, which seem absent.
    let dated = |ago: Duration| {
        let date = jiff::Timestamp::now() - ago;
        let text = format!(
            "apiVersion: kubegc.io/v1alpha1\nkind: MachineInventory\ncount: 1\ndate: {date}\nmachines: [{{name: other}}]\n"
        );
        std::fs::write(&path, text).unwrap();
    };
    dated(Duration::from_mins(1));
    assert_eq!(look_up(&inventory).await, Ok(MachineState::Absent));
    dated(Duration::from_mins(16));
    says(&look_up(&inventory).await, "and is too old after 900s (--cloud-inventory-max-age)");
    let patient = Inventory::open_within(path.clone(), Duration::from_hours(1)).unwrap();
    assert_eq!(look_up(&patient).await, Ok(MachineState::Absent));
    std::fs::write(&path, std::fs::read_to_string(&path).unwrap().replace("date: 2", "date: 3")).unwrap();
    says(&look_up(&patient).await, "in the future");
    // Without a date, the file's own counts.
    write("Running");
    let hour_ago = std::time::SystemTime::now() - Duration::from_hours(1);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(hour_ago).unwrap();
    says(&look_up(&inventory).await, "too old");
    // While it is broken or missing, nothing is known: the last valid one does not count.
    std::fs::write(&path, "machines: []").unwrap();
    says(&look_up(&inventory).await, "missing field");
    std::fs::remove_file(&path).unwrap();
    says(&look_up(&inventory).await, "No such file");
    write("Running");
    assert_eq!(look_up(&inventory).await, Ok(MachineState::Running));
}

fn script(folder: &Path, body: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join(format!("command-{}", std::fs::read_dir(folder).unwrap().count()));
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn a_command_answers_or_times_out() {
    let folder = tempfile::tempdir().unwrap();
    let answer = good("Absent");
    let about_another = answer.replace("rack://7", "rack://8");
    for (body, expected) in [
        (format!("grep -q '\"name\":\"n\"' && echo '{answer}'"), Ok(MachineState::Absent)),
        (format!("echo '{}'", good("Running")), Ok(MachineState::Running)),
        (format!("echo '{answer}'; echo oops >&2; exit 3"), Err("exit status: 3: oops")),
        (format!("echo '{about_another}'"), Err("about node \"n (rack://8)\"")),
        ("echo Absent".into(), Err("malformed")),
        ("exit 0".into(), Err("malformed")),
        ("kill -9 $$".into(), Err("signal: 9")),
        // Its standard error is read to the end, so that writing to it cannot kill it.
        (format!("head -c 200000 /dev/zero >&2 && echo '{answer}'"), Ok(MachineState::Absent)),
        // Processes that it leaves behind do not keep its output open.
        (format!("sleep 1000 & echo '{answer}'"), Ok(MachineState::Absent)),
        ("head -c 100000 /dev/zero".into(), Err("larger than 64 KiB")),
        ("yes".into(), Err("larger than 64 KiB")),
        ("yes >&2 & yes".into(), Err("larger than 64 KiB")),
        ("printf '%0100000d' 0 | tr 0 '['; sleep 1000".into(), Err("larger than 64 KiB")),
        ("head -c 60000 /dev/zero | tr '\\0' '['".into(), Err("malformed")),
    ] {
        let exec = Exec::new(script(folder.path(), &body), Vec::new(), ANSWER_TIMEOUT).unwrap();
        match (look_up(&exec).await, expected) {
            (Ok(state), Ok(expected)) => assert_eq!(state, expected, "{body}"),
            (found, Err(expected)) => says(&found, expected),
            (found, _) => panic!("{body}: {found:?}"),
        }
    }
    // The other end of a pipe shows whether child processes are killed: those that it waits for at the timeout, even if they hold
    // the output open, and those that it leaves behind when it ends.
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let child = format!("sleep 1000 3>{}", pipe.display());
    for (body, timeout, expected) in [
        (format!("{child} & wait"), IMPATIENCE, Err("not done within 500ms")),
        (format!("{child} >&- 2>&- & echo '{answer}'"), ANSWER_TIMEOUT, Ok(MachineState::Absent)),
    ] {
        let exec = Exec::new(script(folder.path(), &body), Vec::new(), timeout).unwrap();
        // Opened for writing as well, so that the child never waits for a reader.
        let both = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        match (look_up(&exec).await, expected) {
            (found, Err(expected)) => says(&found, expected),
            (found, Ok(expected)) => assert_eq!(found, Ok(expected)),
        }
        let reader = std::fs::File::open(&pipe).unwrap();
        drop(both);
        let end = tokio::task::spawn_blocking(move || std::io::copy(&mut &reader, &mut std::io::sink()));
        assert_eq!(tokio::time::timeout(Duration::from_mins(1), end).await.unwrap().unwrap().unwrap(), 0);
    }

    let missing = Exec::new("/nonexistent/command".into(), Vec::new(), ANSWER_TIMEOUT).unwrap();
    says(&look_up(&missing).await, "No such file");
    assert!(Exec::new("command".into(), Vec::new(), ANSWER_TIMEOUT).is_err());
}

/// Answer of a test's webhook.
#[derive(Clone)]
enum Reply {
    Answer(u16, String),
    /// A body that never ends.
    Endless,
    /// A header of one mebibyte.
    LargeHeader,
    Silence,
    Close,
}

/// Returns a body, once or forever.
fn reply_body(
    text: String,
    is_endless: bool,
) -> http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible> {
    if !is_endless {
        return Full::new(Bytes::from(text)).boxed();
    }
    let piece = move || Ok(hyper::body::Frame::data(Bytes::from(text.clone())));
    http_body_util::StreamBody::new(futures::stream::repeat_with(piece)).boxed()
}

/// A webhook over TLS with its own authority.
struct Server {
    url: String,
    authority: PathBuf,
    reply: Arc<Mutex<Reply>>,
    /// Authorization and body of each request.
    asked: Arc<Mutex<Vec<(String, String)>>>,
    folder: tempfile::TempDir,
}

async fn serve() -> Server {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, certificate.pem()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(certificate.der().to_vec())],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/machines", listener.local_addr().unwrap().port());
    let reply = Arc::new(Mutex::new(Reply::Silence));
    let asked = Arc::<Mutex<Vec<(String, String)>>>::default();
    let (replies, log) = (Arc::clone(&reply), Arc::clone(&asked));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, replies, log) = (acceptor.clone(), Arc::clone(&replies), Arc::clone(&log));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service =
                    hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let (replies, log) = (Arc::clone(&replies), Arc::clone(&log));
                        async move {
                            let token = request.headers().get("authorization").cloned();
                            let token =
                                token.map_or(String::new(), |value| value.to_str().unwrap().to_owned());
                            let body = request.into_body().collect().await.unwrap().to_bytes();
                            log.lock().unwrap().push((token, String::from_utf8(body.to_vec()).unwrap()));
                            let reply = replies.lock().unwrap().clone();
                            match reply {
                                Reply::Answer(code, text) => http::Response::builder()
                                    .status(code)
                                    .header("location", "https://localhost:1/")
                                    .body(reply_body(text, false))
                                    .map_err(std::io::Error::other),
                                Reply::Endless => Ok(http::Response::new(reply_body(" ".repeat(4096), true))),
                                Reply::LargeHeader => http::Response::builder()
                                    .header("x-large", "x".repeat(1 << 20))
                                    .body(reply_body(String::new(), false))
                                    .map_err(std::io::Error::other),
                                Reply::Silence => std::future::pending().await,
                                Reply::Close => Err(std::io::Error::other("closed on purpose")),
                            }
                        }
                    });
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Server { url, authority, reply, asked, folder }
}

#[tokio::test]
async fn a_webhook_answers_or_times_out() {
    let server = serve().await;
    let token = server.folder.path().join("token");
    std::fs::write(&token, "secret\n").unwrap();
    let options = WebhookOptions {
        authorities: Some(server.authority.clone()),
        token: Some(token.clone()),
        timeout: ANSWER_TIMEOUT,
        ..WebhookOptions::new(&server.url)
    };
    let webhook = Webhook::new(options.clone()).unwrap();
    for (reply, expected) in [
        (Reply::Answer(200, good("Running")), Ok(MachineState::Running)),
        (Reply::Answer(200, good("Shutdown")), Ok(MachineState::Shutdown)),
        (Reply::Answer(200, good("Absent")), Ok(MachineState::Absent)),
        (
            Reply::Answer(200, good("Absent").replace("rack://7", "rack://8")),
            Err("about node \"n (rack://8)\""),
        ),
        (Reply::Answer(200, "<html>".into()), Err("malformed")),
        (Reply::Answer(200, String::new()), Err("malformed")),
        (Reply::Answer(200, " ".repeat(100_000)), Err("larger than 64 KiB")),
        (Reply::Answer(200, "[".repeat(60_000)), Err("malformed")),
        (Reply::Endless, Err("larger than 64 KiB")),
        (Reply::LargeHeader, Err("webhook https://localhost")),
        (Reply::Answer(404, good("Absent")), Err("it answered 404: {")),
        (Reply::Answer(302, good("Absent")), Err("it answered 302")),
        (Reply::Answer(429, "slow down\nplease".into()), Err("it answered 429: slow down")),
        (Reply::Answer(500, "\u{7}oops".into()), Err("it answered 500: oops")),
        (Reply::Close, Err("webhook https://localhost")),
    ] {
        *server.reply.lock().unwrap() = reply;
        match (look_up(&webhook).await, expected) {
            (Ok(state), Ok(expected)) => assert_eq!(state, expected),
            (found, Err(expected)) => says(&found, expected),
            (found, _) => panic!("{found:?}"),
        }
    }
    let asked = server.asked.lock().unwrap()[0].clone();
    let question = r#"{"apiVersion":"kubegc.io/v1alpha1","kind":"MachineLookup","node":{"name":"n","providerID":"rack://7"}}"#;
    assert_eq!(asked, ("Bearer secret".to_owned(), question.to_owned()));

    // A token in the URL must not be in any message, because these become Events.
    *server.reply.lock().unwrap() = Reply::Answer(500, "oops".into());
    let secret =
        WebhookOptions { url: format!("{}/hooks/secret?token=secret", server.url), ..options.clone() };
    let error = look_up(&Webhook::new(secret).unwrap()).await.unwrap_err();
    assert!(error.contains("it answered 500: oops") && !error.contains("secret"), "{error}");

    *server.reply.lock().unwrap() = Reply::Silence;
    let hurried = Webhook::new(WebhookOptions { timeout: IMPATIENCE, ..options.clone() }).unwrap();
    says(&look_up(&hurried).await, "no answer within 500ms");
    std::fs::remove_file(&token).unwrap();
    says(&look_up(&webhook).await, "No such file");

    // The authority did not sign its certificate.
    let other = serve().await;
    let distrustful =
        Webhook::new(WebhookOptions { authorities: Some(other.authority.clone()), token: None, ..options })
            .unwrap();
    says(&look_up(&distrustful).await, "certificate");
    drop(server);
}

#[tokio::test]
async fn only_safe_places_are_asked() {
    let server = serve().await;
    for (url, allowed) in [
        ("https://machines.example.com/lookup", true),
        ("http://127.0.0.1:8080/", true),
        ("http://[::1]/x", true),
        ("http://machines.example.com/", false),
        ("http://127.0.0.1.example.com/", false),
        ("ftp://127.0.0.1/", false),
        ("machines.example.com", false),
        ("/lookup", false),
        ("", false),
    ] {
        let options =
            WebhookOptions { authorities: Some(server.authority.clone()), ..WebhookOptions::new(url) };
        assert_eq!(Webhook::new(options).is_ok(), allowed, "{url}");
    }
    // Nothing listens there.
    let webhook = Webhook::new(WebhookOptions::new("http://127.0.0.1:1/")).unwrap();
    says(&look_up(&webhook).await, "refused");
}

fn ec2(url: &str) -> Ec2 {
    let credentials = Credentials { access_key: "k".into(), secret_key: "s".into(), session_token: None };
    Ec2::new(Ec2Options {
        endpoint: Some(url.to_owned()),
        credentials: Some(credentials),
        ..Ec2Options::new("us-east-1")
    })
    .unwrap()
}

/// Code that creates an EC2 client in scripts for moto.
const BOTO: &str = "ec2 = boto3.client('ec2', endpoint_url=url, region_name='us-east-1', \
     aws_access_key_id='k', aws_secret_access_key='s')\n";

#[tokio::test]
async fn ec2_knows_its_instances() {
    let Some(moto) = Moto::start().await else { return };
    let made = moto.script(
        &(BOTO.to_owned()
            + "made = ec2.run_instances(ImageId='ami-12c6146b', MinCount=3, MaxCount=3)['Instances']\n\
         ec2.stop_instances(InstanceIds=[made[1]['InstanceId']])\n\
         ec2.terminate_instances(InstanceIds=[made[2]['InstanceId']])\n\
         print(*[i['InstanceId'] for i in made], made[0]['PrivateDnsName'])"),
    );
    let ec2 = ec2(&moto.url);
    let of = |node: &str, id: &str| Machine { node: node.to_owned(), provider_id: id.to_owned() };
    let by_id = |id: &str| of("n", &format!("aws:///us-east-1a/{id}"));
    let cases = [
        (by_id(&made[0]), MachineState::Running),
        (by_id(&made[1]), MachineState::Shutdown),
        (by_id(&made[2]), MachineState::Absent),
        (by_id("i-0123456789abcdef0"), MachineState::Absent),
        (of(&made[3], ""), MachineState::Running),
        (of("ip-9-9-9-9.ec2.internal", ""), MachineState::Absent),
        (of("n", &format!("aws:///{}", made[0])), MachineState::Running),
    ];
    // All at once, so that they are combined into one call.
    let answers =
        futures::future::join_all(cases.iter().map(|(machine, _)| ec2.look_up(machine.clone()))).await;
    for ((machine, expected), answer) in cases.iter().zip(answers) {
        assert_eq!(answer.unwrap(), *expected, "{machine:?}");
    }
    // If a machine would not be found anyway, its absence proves nothing.
    for (machine, words) in [
        (of("worker-1", ""), "its name \"worker-1\" is no private DNS name"),
        (of("n", "aws:///i-0123456789abcdef0"), "it may be one of another region"),
    ] {
        let error = ec2.look_up(machine).await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    // One machine per page.
    moto.script(&(BOTO.to_owned() + "ec2.run_instances(ImageId='ami-12c6146b', MinCount=30, MaxCount=30)"));
    assert_eq!(ec2.look_up(by_id(&made[0])).await.unwrap(), MachineState::Running);
}

/// Starts a plain HTTP server on this machine that gives the same answer to every request, and counts them.
async fn plain(code: u16, text: &'static str) -> (String, Arc<Mutex<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let count = Arc::<Mutex<usize>>::default();
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |_: http::Request<hyper::body::Incoming>| {
                    *counted.lock().unwrap() += 1;
                    let answer = http::Response::builder().status(code).body(Full::new(Bytes::from(text)));
                    async move { answer }
                });
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (url, count)
}

#[tokio::test]
async fn ec2_that_refuses_throttles_or_talks_nonsense_says_nothing_of_machines() {
    const THROTTLED: &str = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Request limit \
        exceeded.</Message></Error></Errors><RequestID>r</RequestID></Response>";
    const DENIED: &str = "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>You are not \
        authorized</Message></Error></Errors></Response>";
    let machine = || Machine { node: "n".into(), provider_id: "aws:///us-east-1a/i-12345678".into() };
    for (code, text, expected) in [
        (403, DENIED, "it answered 403: UnauthorizedOperation: You are not authorized"),
        (200, "", "malformed"),
        (200, "<html>hello</html>", "malformed"),
        (200, "{}", "malformed"),
        (500, "oops", "it answered 500"),
    ] {
        let (url, _) = plain(code, text).await;
        let error = ec2(&url).look_up(machine()).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}, not {expected}");
    }
    let (url, count) = plain(503, THROTTLED).await;
    let throttled = ec2(&url);
    let error = throttled.look_up(machine()).await.unwrap_err().to_string();
    assert_eq!(error, "EC2: throttled (RequestLimitExceeded); asked again later");
    // No request is sent for a while.
    for _ in 0..5 {
        assert!(throttled.look_up(machine()).await.unwrap_err().to_string().contains("paused"));
    }
    assert_eq!(*count.lock().unwrap(), 1);
    let elsewhere = Machine { node: "n".into(), provider_id: "aws:///eu-west-1a/i-12345678".into() };
    assert!(throttled.look_up(elsewhere).await.unwrap_err().to_string().contains("another region"));
    assert!(Ec2::new(Ec2Options::new("US East")).is_err());
    let far = Ec2Options { endpoint: Some("http://example.com".into()), ..Ec2Options::new("us-east-1") };
    assert!(Ec2::new(far).is_err());
}
