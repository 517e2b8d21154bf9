//! Authentication and authorization by the flags of kube-apiserver, tested with curl and with keys of openssl, as users do.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::port::Port;
use super::{Assets, PATIENCE, Program, write};

const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/robot/token";

/// A stand-in for kube-apiserver with an administrator's token, and its client.
struct Server {
    assets: Assets,
    port: Port,
    _program: Program,
}

impl Server {
    /// Starts a server; the files that the flags name are in the directory of the assets.
    async fn start(assets: Assets, flags: &str) -> Self {
        let port = Port::reserve();
        let tokens = write(&assets.path("tokens.csv"), "admin,ann,1,system:masters\nnone,bob,2\n");
        let mut arguments = vec![
            format!("--secure-port={}", port.number()),
            "--etcd-servers=http://127.0.0.1:1".to_owned(),
            format!("--token-auth-file={tokens}"),
        ];
        let folder = assets.folder.path().to_str().unwrap();
        arguments.extend(flags.split_whitespace().map(|flag| flag.replace("DIR", folder)));
        let program = assets.start("kube-apiserver", &arguments, "");
        let server = Self { assets, port, _program: program };
        let deadline = Instant::now() + PATIENCE;
        while server.ask("/healthz", &["-H", "Authorization: Bearer admin"]).0 != 200 {
            assert!(Instant::now() < deadline, "the server is not ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server
    }

    fn curl(&self, path: &str, arguments: &[&str]) -> Output {
        let mut curl = Command::new("curl");
        curl.args(["-sk", "-w", "\n%{http_code}"]).args(arguments);
        curl.arg(format!("https://127.0.0.1:{}{path}", self.port.number())).output().unwrap()
    }

    /// Returns the code of a response (0 for none), and its body.
    fn ask(&self, path: &str, arguments: &[&str]) -> (u16, Value) {
        let text = String::from_utf8(self.curl(path, arguments).stdout).unwrap();
        let (body, code) = text.rsplit_once('\n').unwrap();
        (code.parse().unwrap(), serde_json::from_str(body).unwrap_or_else(|_| body.into()))
    }

    fn post(&self, path: &str, token: &str, body: &Value) -> (u16, Value) {
        let authorization = format!("Authorization: Bearer {token}");
        let text = body.to_string();
        self.ask(path, &["-H", &authorization, "-H", "Content-Type: application/json", "-d", &text])
    }

    /// Returns the user that the server sees with these arguments of curl.
    fn user(&self, arguments: &[&str]) -> (u16, String) {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
        let mut all = vec!["-H", "Content-Type: application/json", "-d", &body];
        all.extend(arguments);
        let (code, answer) = self.ask(REVIEW, &all);
        (code, answer["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned())
    }

    fn path(&self, name: &str) -> String {
        self.assets.path(name).to_str().unwrap().to_owned()
    }
}

fn openssl(folder: &Path, line: &str) {
    let output = Command::new("openssl").current_dir(folder).args(line.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the header and the claims of a token.
fn opened(token: &str) -> [Value; 2] {
    let mut parts = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).unwrap());
    [(); 2].map(|()| serde_json::from_slice(&parts.next().unwrap()).unwrap())
}

#[tokio::test]
async fn tokens_have_the_issuers_audiences_and_keys_that_are_given() {
    for (key, algorithm) in [
        ("genrsa -traditional -out sa.key 2048", "RS256"),
        ("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out sa.key", "RS256"),
        ("ecparam -genkey -noout -name prime256v1 -out sa.key", "ES256"),
        ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384 -out sa.key", "ES384"),
    ] {
        let assets = Assets::new();
        openssl(assets.folder.path(), key);
        openssl(assets.folder.path(), "pkey -in sa.key -pubout -out sa.pub");
        openssl(assets.folder.path(), "genrsa -out older.key 2048");
        let server = Server::start(
            assets,
            "--service-account-signing-key-file=DIR/sa.key --service-account-key-file=DIR/sa.pub \
             --service-account-key-file=DIR/older.key --service-account-issuer=https://new.example \
             --service-account-issuer=https://old.example --api-audiences=api,other \
             --service-account-max-token-expiration=2h --authorization-mode=RBAC",
        )
        .await;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
        let (code, answer) = server.post("/api/v1/namespaces/default/serviceaccounts", "admin", &account);
        assert_eq!(code, 201, "{answer}");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 36000}});
        let (code, answer) = server.post(TOKEN, "admin", &request);
        assert_eq!(code, 201, "{answer}");
        let token = answer["status"]["token"].as_str().unwrap();
        let [header, claims] = opened(token);
        let life = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
        assert_eq!(
            (&header["alg"], &claims["iss"], &claims["aud"], life),
            (&json!(algorithm), &json!("https://new.example"), &json!(["api", "other"]), 7200)
        );
        let bearer = format!("Authorization: Bearer {token}");
        let robot = (201, "system:serviceaccount:default:robot".to_owned());
        assert_eq!(server.user(&["-H", &bearer]), robot, "{algorithm}");

        // Another audience is valid for reviews that ask for it, but not for this server.
        let foreign = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": ["vault"]}});
        let token = server.post(TOKEN, "admin", &foreign).1["status"]["token"].as_str().unwrap().to_owned();
        assert_eq!(server.user(&["-H", &format!("Authorization: Bearer {token}")]).0, 401);
        for (audiences, authenticated) in [(json!(["vault"]), json!(true)), (json!(["api"]), Value::Null)] {
            let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                "spec": {"token": token, "audiences": audiences}});
            let (_, answer) = server.post("/apis/authentication.k8s.io/v1/tokenreviews", "admin", &review);
            assert_eq!(answer["status"]["authenticated"], authenticated, "{audiences} {answer}");
        }

        let admin = ["-H", "Authorization: Bearer admin"];
        let (_, keys) = server.ask("/openid/v1/jwks", &admin);
        let found: Vec<_> = keys["keys"].as_array().unwrap().iter().map(|key| key["alg"].clone()).collect();
        assert_eq!(found, [json!(algorithm), json!("RS256")]);
        let (_, document) = server.ask("/.well-known/openid-configuration", &admin);
        assert_eq!(document["issuer"], "https://new.example");
    }
}

#[tokio::test]
async fn authorization_modes_and_anonymous_requests_follow_the_flags() {
    let (admin, bob): (&[&str], &[&str]) =
        (&["-H", "Authorization: Bearer admin"], &["-H", "Authorization: Bearer none"]);
    // The codes of a list of Secrets for an administrator, for a user without permissions, and without credentials.
    for (flags, codes) in [
        ("", [200, 200, 401]),
        ("--authorization-mode=AlwaysAllow --anonymous-auth=true", [200, 200, 401]),
        ("--authorization-mode=RBAC", [200, 403, 403]),
        ("--authorization-mode=Node,RBAC --anonymous-auth=false", [200, 403, 401]),
        ("--authorization-mode=AlwaysDeny", [200, 403, 403]),
        ("--authorization-mode=AlwaysDeny,AlwaysAllow --anonymous-auth=false", [200, 200, 401]),
        ("--authorization-mode=Node", [200, 403, 403]),
    ] {
        let server = Server::start(Assets::new(), flags).await;
        let found = [admin, bob, &[]].map(|who| server.ask("/api/v1/secrets", who).0);
        assert_eq!(found, codes, "{flags}");
    }
}

#[tokio::test]
async fn proxies_name_users_in_headers_if_their_certificate_is_trusted() {
    let assets = Assets::new();
    let folder = assets.folder.path();
    for authority in ["proxies", "clients"] {
        openssl(
            folder,
            &format!(
                "req -x509 -newkey rsa:2048 -nodes -keyout {authority}.key -out {authority}.crt -subj /CN={authority} -days 2"
            ),
        );
    }
    let certificates = [
        ("front", "proxies", "/CN=front", "extendedKeyUsage=clientAuth"),
        ("other", "proxies", "/CN=other", "extendedKeyUsage=clientAuth"),
        ("client", "clients", "/O=team/CN=carl", "extendedKeyUsage=clientAuth"),
        // Without extensions, openssl makes a certificate of version 1.
        ("old", "clients", "/O=team/CN=olga", ""),
        ("late", "clients", "/O=team/CN=lars", ""),
        ("forged", "proxies", "/O=team/CN=fred", ""),
    ];
    for (name, authority, subject, extension) in certificates {
        write(&assets.path(&format!("{name}.ext")), extension);
        openssl(
            folder,
            &format!("req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj {subject}"),
        );
        let extensions = if extension.is_empty() { String::new() } else { format!("-extfile {name}.ext") };
        let days = if name == "late" { "-1" } else { "1" };
        openssl(
            folder,
            &format!(
                "x509 -req -in {name}.csr -CA {authority}.crt -CAkey {authority}.key -set_serial 7 -days {days} \
             -out {name}.crt {extensions}"
            ),
        );
    }
    let shows = ["x509", "-noout", "-text", "-in"];
    let text = Command::new("openssl").args(shows).arg(assets.path("old.crt")).output().unwrap().stdout;
    assert!(String::from_utf8(text).unwrap().contains("Version: 1 "));

    let server = Server::start(
        assets,
        "--authorization-mode=RBAC --client-ca-file=DIR/clients.crt --requestheader-client-ca-file=DIR/proxies.crt \
         --requestheader-allowed-names=front --requestheader-username-headers=X-Remote-User \
         --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra-",
    )
    .await;
    let shown = |name: &str, header: &str| {
        let (certificate, key) = (server.path(&format!("{name}.crt")), server.path(&format!("{name}.key")));
        server.user(&["--cert", &certificate, "--key", &key, "-H", header])
    };
    let named = "X-Remote-User: dora";
    let found: BTreeMap<_, _> = certificates.map(|(name, ..)| (name, shown(name, named))).into();
    let wanted = [
        ("front", (201, "dora")),
        ("other", (401, "")),
        // A client's claims about itself do not count.
        ("client", (201, "carl")),
        ("old", (201, "olga")),
        ("late", (401, "")),
        ("forged", (401, "")),
    ];
    assert_eq!(found, wanted.map(|(name, (code, user))| (name, (code, user.to_owned()))).into());
    assert_eq!(shown("front", "X-Other: x").0, 401, "a proxy that names nobody is nobody");
    // TLS 1.2 signs by other rules.
    let (certificate, key) = (server.path("old.crt"), server.path("old.key"));
    let older = server.user(&["--tls-max", "1.2", "--cert", &certificate, "--key", &key]);
    assert_eq!(older, (201, "olga".to_owned()));
}

#[tokio::test]
async fn tls_is_of_the_versions_suites_and_protocols_that_are_asked_for() {
    // Connections use TLS 1.2 with any suite and with one that is not allowed; the version of HTTP is tested as well.
    let suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
    for (flags, wanted) in [
        (String::new(), [true, true, true]),
        ("--tls-min-version=VersionTLS13".to_owned(), [false, false, true]),
        (format!("--tls-cipher-suites={suite}"), [true, false, true]),
        ("--disable-http2-serving".to_owned(), [true, true, false]),
    ] {
        let server = Server::start(Assets::new(), &flags).await;
        let left_out = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256";
        let connects = |arguments: &[&str]| server.curl("/healthz", arguments).status.success();
        let version = server.curl("/healthz", &["-w", "%{http_version}", "--http2"]).stdout;
        let found = [
            connects(&["--tls-max", "1.2"]),
            connects(&["--tls-max", "1.2", "--ciphers", left_out]),
            version.ends_with(b"2"),
        ];
        assert_eq!(found, wanted, "{flags}");
    }
}

#[test]
fn what_would_let_in_too_much_or_is_misspelled_is_refused() {
    let assets = Assets::new();
    write(&assets.path("empty.key"), "");
    for (flag, why) in [
        ("--authorization-mode=Rbac", "authorization-mode \"Rbac\" is not a valid mode"),
        ("--authorization-mode=RBAC,RBAC", "has mode specified more than once"),
        ("--authorization-mode=Webhook", "--authorization-mode Webhook is not supported"),
        ("--authorization-config=x", "--authorization-config is not supported"),
        ("--authentication-config=x", "--authentication-config is not supported"),
        (
            "--enable-admission-plugins=PodSecurty",
            "enable-admission-plugins plugin \"PodSecurty\" is unknown",
        ),
        ("--disable-admission-plugins=ServiceAcount", "plugin \"ServiceAcount\" is unknown"),
        ("--anonymous-auth=no", "invalid argument \"no\" for \"--anonymous-auth\" flag"),
        ("--tls-min-version=1.2", "unknown tls version \"1.2\""),
        (
            "--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA",
            "cipher suite TLS_RSA_WITH_RC4_128_SHA is not served",
        ),
        ("--service-account-issuer=", "service-account-issuer should not be an empty string"),
        ("--service-account-max-token-expiration=1m", "must be between 1 hour and 2^32 seconds"),
        ("--service-account-jwks-uri=http://x", "requires https scheme"),
        ("--service-account-key-file=DIR/empty.key", "it holds no key"),
        ("--proxy-client-cert-file=DIR/empty.key", "a certificate and a key belong together"),
    ] {
        let flag = flag.replace("DIR", assets.folder.path().to_str().unwrap());
        let port = Port::reserve();
        let secure_port = format!("--secure-port={}", port.number());
        let output = assets
            .command("kube-apiserver")
            .args([&secure_port, "--etcd-servers=http://127.0.0.1:1", &flag])
            .output();
        let output = output.unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(why), "{flag}: {text}");
    }
}

#[tokio::test]
async fn who_sends_a_body_sees_the_refusal() {
    let server = Server::start(Assets::new(), "--authorization-mode=RBAC").await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    for (token, code) in [("wrong", 401), ("none", 403)] {
        for _ in 0..20 {
            assert_eq!(server.post("/api/v1/namespaces/default/configmaps", token, &map).0, code);
        }
    }
}

#[tokio::test]
async fn pods_need_an_account_unless_the_plugin_is_off() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let refusal = "pods \"p\" is forbidden: error looking up service account default/default: serviceaccount \"default\" not found";
    for (flags, wanted) in [
        ("--authorization-mode=RBAC", (403, json!(refusal))),
        ("--authorization-mode=RBAC --disable-admission-plugins=ServiceAccount", (201, Value::Null)),
    ] {
        let server = Server::start(Assets::new(), flags).await;
        let (code, answer) = server.post("/api/v1/namespaces/default/pods", "admin", &pod);
        assert_eq!((code, answer["message"].clone()), wanted, "{flags}");
    }
}
