//! A runtime that accepts connections but answers nothing.

use std::os::unix::net::UnixListener;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::fake::Fake;
use crate::{Daemon, agent};

/// Returns the socket, and its name on the command line.
fn silent(fake: &Fake) -> (UnixListener, String) {
    let socket = fake.folder().join("silent.sock");
    (UnixListener::bind(&socket).unwrap(), format!("unix://{}", socket.display()))
}

#[test]
fn a_daemon_is_alive_and_not_ready_and_ends_when_asked_to() {
    let fake = Fake::start();
    let (_listener, endpoint) = silent(&fake);
    let daemon = Daemon::start(&mut agent(&fake, &["--container-runtime-endpoint", &endpoint]));
    for (path, status) in [("/healthz", "200"), ("/livez", "200"), ("/readyz", "503")] {
        let answer = daemon.ask("GET", path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
    }
    daemon.stop();
}

#[test]
fn a_single_pass_that_was_stopped_has_failed() {
    let fake = Fake::start();
    let (listener, endpoint) = silent(&fake);
    let mut command = agent(&fake, &["--once", "--container-runtime-endpoint", &endpoint]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    // The agent only contacts the runtime once it can be stopped.
    let _connection = listener.accept().unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error: stopped before the runtime answered"), "{said}");
}
