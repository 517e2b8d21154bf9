//! Containers that do not stop while passes continue.

use std::time::{Duration, Instant};

use super::fake::{Answer, Fake, container, sandbox};
use super::{Daemon, EXITED, UNKNOWN, agent};

/// A grace period of a year, as somebody may set by mistake.
const GRACE: (&str, &str) = ("io.kubernetes.pod.terminationGracePeriod", "31536000");

fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_mins(1), "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The agent has one loop: it is not held up by a container that takes its grace period, asks for its end once, and removes it when
/// that has come.
#[test]
fn a_container_that_does_not_stop_holds_up_no_pass() {
    let mut fake = Fake::start();
    std::fs::create_dir(fake.folder().join("logs")).unwrap();
    let slow = "container-pod-u-0";
    {
        let mut state = fake.state();
        state.sandboxes = vec![sandbox("pod", 0)];
        state.containers = (0..2).map(|n| container("pod", "u", n, UNKNOWN, 1)).collect();
        state.containers[0].annotations.insert(GRACE.0.into(), GRACE.1.into());
        state.containers.extend((0..2).map(|n| container("pod", "c", n, EXITED, 1)));
        state.rule(move |_, method, id| (method == "StopContainer" && id == slow).then_some(Answer::Silence));
    }
    let arguments = ["--collect", "containers", "--test-clock"];
    let daemon = Daemon::start(&mut agent(&fake, &arguments));
    let has = |fake: &Fake, id: &str| fake.state().containers.iter().any(|one| one.id == id);
    until("the first removal", || !has(&fake, "container-pod-c-0"));
    // What comes later goes with a later pass, while the container is still being stopped.
    fake.state().containers.push(container("pod", "c", 2, EXITED, 1));
    until("a later removal", || {
        daemon.ask("POST", "/kubegc/v1/clock?advance=1s");
        !has(&fake, "container-pod-c-1")
    });
    assert!(has(&fake, slow));
    assert_eq!(fake.state().called("StopContainer"), [slow], "it is asked for once");
    // The call has ended: what was left goes.
    fake.state().no_rule();
    fake.stop();
    fake.listen();
    until("its removal", || {
        daemon.ask("POST", "/kubegc/v1/clock?advance=1s");
        !has(&fake, slow)
    });
    assert!(fake.state().called("RemoveContainer").contains(&slow.to_owned()));
    daemon.stop();
}
