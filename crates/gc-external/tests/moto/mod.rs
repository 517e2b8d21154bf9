//! A server that answers like AWS.

#[allow(unreachable_pub, reason = "shared with the tests of the storage")]
#[path = "../../../gc-store/tests/support/port.rs"]
mod port;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use port::Port;
use tokio::net::TcpStream;

/// A server that answers like AWS (moto), stopped when dropped; `None`, with a warning, if it is not installed.
pub(crate) struct Moto {
    child: std::process::Child,
    pub(crate) url: String,
    python: PathBuf,
    _port: Port,
}

impl Moto {
    pub(crate) async fn start() -> Option<Self> {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python/bin/python");
        let usable = std::process::Command::new(&python)
            .args(["-c", "import moto, flask, boto3"])
            .output()
            .is_ok_and(|output| output.status.success());
        if !usable {
            let message = format!("{} has no moto; run scripts/setup", python.display());
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{message}");
            eprintln!("SKIPPED: {message}");
            return None;
        }
        let port = Port::reserve();
        let address = (Ipv4Addr::LOCALHOST, port.number());
        let child = std::process::Command::new(&python)
            .args(["-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p"])
            .arg(port.number().to_string())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let moto = Self { child, url: format!("http://127.0.0.1:{}", port.number()), python, _port: port };
        let began = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            assert!(began.elapsed() < Duration::from_mins(1), "moto does not listen");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Some(moto)
    }

    /// Runs a script that has boto3 and the URL of this server, and returns the words that it prints.
    pub(crate) fn script(&self, body: &str) -> Vec<String> {
        let text = format!("import boto3\nurl = '{}'\n{body}", self.url);
        let output = std::process::Command::new(&self.python).args(["-c", &text]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
