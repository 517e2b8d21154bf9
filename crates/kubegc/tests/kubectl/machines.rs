//! Providers of machines whose answers are wrong, old, or about something else: no node is deleted because of them, and no secret
//! is shown.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::aws::{self, Arrived};
use super::collectors::{PATIENCE, Up};
use super::*;

const SOURCE: &str = "cloud-node-lifecycle-controller";

/// A request of HTTP/1.1.
#[derive(Debug)]
pub(super) struct PlainRequest {
    pub(super) line: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

impl PlainRequest {
    /// Reads a request; `None` if the connection ends before it is complete.
    fn read(stream: &mut TcpStream) -> Option<Self> {
        let (mut read, mut part) = (Vec::new(), [0; 4096]);
        loop {
            if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&read[..end]).into_owned();
                let mut lines = head.lines();
                let line = lines.next().unwrap_or_default().to_owned();
                let header = |line: &str| {
                    let (name, value) = line.split_once(':')?;
                    Some((name.to_ascii_lowercase(), value.trim().to_owned()))
                };
                let headers: BTreeMap<String, String> = lines.filter_map(header).collect();
                let length =
                    headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
                if let Some(body) = read.get(end + 4..end + 4 + length) {
                    return Some(Self { line, headers, body: body.to_vec() });
                }
            }
            let more = stream.read(&mut part).unwrap_or_default();
            if more == 0 {
                return None;
            }
            read.extend_from_slice(&part[..more]);
        }
    }

    /// Reports whether the request is signed with this key.
    fn is_signed(&self, secret: &str) -> bool {
        let mut words = self.line.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let header = |name: &str| self.headers.get(name).cloned();
        aws::is_signed(secret, &Arrived { method, path, query, header: &header, body: &self.body })
    }
}

/// Answers each request on a connection of its own; returns the URL.
pub(super) fn serve(
    listener: TcpListener,
    mut answer: impl FnMut(&PlainRequest) -> (u16, String) + Send + 'static,
) -> String {
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let Some(request) = PlainRequest::read(&mut stream) else { continue };
            let (code, text) = answer(&request);
            let length = text.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {code} As-Given\r\nContent-Type: text/xml\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
            );
        }
    });
    url
}

fn free() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Creates nodes: names, provider IDs and statuses of the condition Ready.
fn nodes(up: &Up, nodes: &[(&str, &str, &str)]) {
    for (name, id, ready) in nodes {
        let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        if !id.is_empty() {
            node["spec"]["providerID"] = (*id).into();
        }
        up.apply(&node);
        up.status(&format!("node/{name}"), &json!({"conditions": [{"type": "Ready", "status": ready}]}));
    }
}

/// Returns the messages of the Events with this reason about a node.
fn told(up: &Up, node: &str, reason: &str) -> String {
    let selector = format!("involvedObject.name={node},reason={reason}");
    up.run(&["get", "events", "--field-selector", &selector, "-o", "jsonpath={.items[*].message}"])
}

/// Lets time pass until a condition holds.
fn pass_until(up: &Up, step: Duration, what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come about:\n{}", up.shown());
        up.pass(step);
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// The inventory of a dead exporter lacks new machines, so it proves nothing; a fresh one identifies machines as their cloud does.
#[test]
fn an_old_inventory_proves_nothing_and_a_fresh_one_is_compared_as_its_cloud_does() {
    const AZURE: &str =
        "azure:///subscriptions/S/resourceGroups/MC_rg/providers/Microsoft.Compute/virtualMachines/VM-0";
    let folder = tempfile::tempdir().unwrap();
    let inventory = folder.path().join("machines.yaml");
    let write = |ago: Duration| {
        let date = jiff::Timestamp::now() - ago;
        let text = format!(
            "apiVersion: kubegc.io/v1alpha1\nkind: MachineInventory\ndate: {date}\ncount: 2\nmachines:\n\
             - {{name: exported, providerID: '{}'}}\n- {{name: ready}}\n",
            AZURE.to_lowercase()
        );
        std::fs::write(folder.path().join("fresh"), text).unwrap();
        std::fs::rename(folder.path().join("fresh"), &inventory).unwrap();
    };
    write(Duration::from_hours(1));
    let arguments = ["--cloud-inventory".to_owned(), inventory.display().to_string()];
    let Some(up) = Up::start(&arguments) else { return };
    nodes(&up, &[("aks-0", AZURE, "Unknown"), ("gone", "", "Unknown"), ("ready", "", "True")]);
    up.until("the age to be told", || told(&up, "gone", "NodeLookupFailed").contains("is too old after"));
    for _ in 0..3 {
        up.pass(Duration::from_hours(1));
    }
    up.until_metric("kubegc_nodes_missing 0");
    assert!(["aks-0", "gone", "ready"].iter().all(|name| up.exists(&format!("node/{name}"))));
    write(Duration::ZERO);
    pass_until(&up, Duration::from_mins(5), "the end of the node", || !up.exists("node/gone"));
    up.until_event("gone", "Normal", "DeletingNode", SOURCE);
    assert!(up.exists("node/aks-0") && up.exists("node/ready"));
}

/// A provider that misses some machines of ready nodes is wrong about the others, too.
#[test]
fn a_provider_that_misses_a_share_of_the_ready_nodes_deletes_none() {
    const NODES: [&str; 6] = ["n1", "n2", "n3", "n4", "n5", "n6"];
    let missing = Arc::new(Mutex::new(vec!["n1", "n2", "n3"]));
    let unknown = Arc::clone(&missing);
    let url = serve(free(), move |request| {
        let question: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let is_missing = unknown.lock().unwrap().iter().any(|name| question["node"]["name"] == *name);
        let state = if is_missing { "Absent" } else { "Running" };
        let answer = json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "MachineLookup",
            "node": question["node"], "machine": {"state": state}});
        (200, answer.to_string())
    });
    let Some(up) = Up::start(&["--cloud-webhook".to_owned(), url]) else { return };
    let ready = |name: &&'static str| (*name, "", if *name == "n1" { "Unknown" } else { "True" });
    nodes(&up, &NODES.iter().map(ready).collect::<Vec<_>>());
    pass_until(&up, Duration::from_mins(1), "the halt", || {
        told(&up, "n1", "NodeDeletionHalted").contains("machines are missing")
    });
    for _ in 0..3 {
        up.pass(Duration::from_hours(1));
    }
    assert!(NODES.iter().all(|name| up.exists(&format!("node/{name}"))));
    missing.lock().unwrap().truncate(1);
    pass_until(&up, Duration::from_mins(1), "the end of the node", || !up.exists("node/n1"));
    assert!(NODES[1..].iter().all(|name| up.exists(&format!("node/{name}"))));
}

/// Response of EC2 with one running machine.
pub(super) const ONE_RUNS: &str = "<DescribeInstancesResponse><reservationSet><item><instancesSet><item>\
    <instanceId>i-00000001</instanceId><instanceState><code>16</code><name>running</name></instanceState>\
    <privateDnsName>one</privateDnsName></item></instancesSet></item></reservationSet></DescribeInstancesResponse>";

/// An ID without a zone may belong to another region, and EC2 cannot know a name that it did not give.
#[test]
fn neither_an_id_without_a_zone_nor_a_name_of_ones_own_proves_an_absence() {
    let url = serve(free(), |_| (200, ONE_RUNS.to_owned()));
    let arguments = ["--cloud-aws-region=us-east-1".to_owned(), format!("--cloud-aws-endpoint={url}")];
    let credentials = [("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s")];
    let Some(up) = Up::start_under(&credentials, &arguments) else { return };
    nodes(
        &up,
        &[
            ("one", "aws:///us-east-1a/i-00000001", "True"),
            ("zoneless", "aws:///i-00000009", "Unknown"),
            ("elsewhere", "aws:///eu-west-1a/i-00000009", "Unknown"),
            ("nameless", "", "Unknown"),
        ],
    );
    for name in ["zoneless", "elsewhere", "nameless"] {
        pass_until(&up, Duration::from_mins(5), name, || !told(&up, name, "NodeLookupFailed").is_empty());
    }
    for _ in 0..3 {
        up.pass(Duration::from_hours(1));
    }
    up.until_metric("kubegc_nodes_missing 0");
    assert!(
        ["one", "zoneless", "elsewhere", "nameless"].iter().all(|name| up.exists(&format!("node/{name}")))
    );
}

/// With IRSA and EKS Pod Identity, EC2 is asked with the keys of the role that a token of the cluster grants, not with those of the
/// instance. The default port in the endpoint is not signed, since it is not sent.
#[test]
fn ec2_is_asked_with_the_role_of_the_pod_and_signed_as_sent() {
    const ASSUMED: &str = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
        <AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>of-the-role</SecretAccessKey><SessionToken>t</SessionToken>\
        <Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
        </AssumeRoleWithWebIdentityResponse>";
    const KEYS: &str = r#"{"AccessKeyId":"ASIA1","SecretAccessKey":"of-the-role","Token":"t","Expiration":"2999-01-01T00:00:00Z"}"#;
    let Some(listener) = aws::at_port_of_scheme(80) else { return };
    let ec2 = serve(listener, |request| {
        let is_of_role =
            request.headers.get("authorization").is_some_and(|text| text.contains("Credential=ASIA1/"));
        match (is_of_role, request.is_signed("of-the-role")) {
            (true, true) => (200, ONE_RUNS.to_owned()),
            refused => (
                403,
                format!("<Response><Errors><Error><Code>{refused:?}</Code></Error></Errors></Response>"),
            ),
        }
    });
    assert!(ec2.ends_with(":80/"), "{ec2}");
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "of-the-cluster").unwrap();
    let token = token.path().to_str().unwrap();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let tokens = Arc::clone(&seen);
    // STS gets a form; the agent of Pod Identity gets the token in a header.
    let roles = serve(free(), move |request| {
        tokens.lock().unwrap().push(format!("{request:?} {}", String::from_utf8_lossy(&request.body)));
        (200, if request.line.starts_with("POST ") { ASSUMED } else { KEYS }.to_owned())
    });
    let web_identity = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
        ("AWS_ENDPOINT_URL_STS", &roles),
    ];
    let pod_identity =
        [("AWS_CONTAINER_CREDENTIALS_FULL_URI", &*roles), ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token)];
    for environment in [&web_identity[..], &pod_identity] {
        let arguments = ["--cloud-aws-region=us-east-1".to_owned(), format!("--cloud-aws-endpoint={ec2}")];
        let Some(up) = Up::start_under(environment, &arguments) else { return };
        nodes(&up, &[("one", "aws:///us-east-1a/i-00000001", "Unknown")]);
        pass_until(&up, Duration::from_mins(1), "an answer", || {
            assert_eq!(told(&up, "one", "NodeLookupFailed"), "");
            up.shown().contains("kubegc_node_lookups_total{answer=\"running\"}")
        });
        let asked = std::mem::take(&mut *seen.lock().unwrap());
        assert!(asked[0].contains("of-the-cluster"), "{asked:?}");
    }
}

/// Many users read Events, so they do not contain the path and query of a webhook's URL, which may hold a token.
#[test]
fn a_token_in_the_url_of_a_webhook_is_not_told() {
    for url in ["http://127.0.0.1:1/hooks/hunter2", "http://127.0.0.1:1/?token=hunter2"] {
        let Some(up) = Up::start(&["--cloud-webhook".to_owned(), url.to_owned()]) else { return };
        nodes(&up, &[("n1", "", "Unknown")]);
        up.until("the failure to be told", || !told(&up, "n1", "NodeLookupFailed").is_empty());
        let events = up.run(&["get", "events", "-A", "-o", "yaml"]);
        assert!(events.contains("127.0.0.1:1") && !events.contains("hunter2"), "{events}");
    }
}

/// The output of a command that writes much to standard error is read until it ends, and its leftover processes end with it.
#[test]
fn a_command_that_complains_answers_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (command, child) = (folder.path().join("machines"), folder.path().join("child"));
    let body = "#!/bin/sh\nset -e\ncat >/dev/null\nhead -c 200000 /dev/zero | tr '\\0' 'e' >&2\n\
        sleep 300 >/dev/null 2>&1 &\necho $! > CHILD.new\nmv CHILD.new CHILD\n\
        echo '{\"apiVersion\":\"kubegc.io/v1alpha1\",\"kind\":\"MachineLookup\",\"node\":{\"name\":\"n1\",\"providerID\":\"\"},\
        \"machine\":{\"state\":\"Running\"}}'\n";
    std::fs::write(&command, body.replace("CHILD", child.to_str().unwrap())).unwrap();
    std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o755)).unwrap();
    let Some(up) = Up::start(&["--cloud-exec".to_owned(), command.display().to_string()]) else { return };
    nodes(&up, &[("n1", "", "Unknown")]);
    pass_until(&up, Duration::from_mins(1), "an answer", || {
        assert_eq!(told(&up, "n1", "NodeLookupFailed"), "");
        up.shown().contains("kubegc_node_lookups_total{answer=\"running\"}")
    });
    let child = std::fs::read_to_string(&child).unwrap();
    let state = Path::new("/proc").join(child.trim()).join("status");
    // A process that has ended may wait for its adopter.
    up.until("the end of the child", || {
        std::fs::read_to_string(&state).map_or(true, |text| text.contains("State:\tZ"))
    });
}
