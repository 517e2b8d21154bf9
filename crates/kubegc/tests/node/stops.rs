//! Containers that do not stop while passes continue.

use std::time::{Duration, Instant};

use super::fake::{Answer, Fake, container, sandbox};
use super::{Daemon, EXITED, UNKNOWN, agent};

/// A grace period of a year, which may be set by mistake.
const GRACE: (&str, &str) = ("io.kubernetes.pod.terminationGracePeriod", "31536000");

fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_mins(1), "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The agent has a single loop: a container that takes its whole grace period does not delay it. The agent asks for the stop once,
/// and removes the container after its end.
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
    // A later pass removes newer containers, while this one is still being stopped.
    fake.state().containers.push(container("pod", "c", 2, EXITED, 1));
    until("a later removal", || {
        daemon.ask("POST", "/kubegc/v1/clock?advance=1s");
        !has(&fake, "container-pod-c-1")
    });
    assert!(has(&fake, slow));
    assert_eq!(fake.state().called("StopContainer"), [slow], "it is asked for once");
    // The call has ended, so the remaining container is removed.
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
