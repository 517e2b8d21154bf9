//! Output of a pass at a terminal, and the part of it that programs do not get.

use std::process::Command;

use crate::fake::{Fake, container, image, sandbox};
use crate::{ALL, CONTAINERS, EXITED, agent, said};

/// Runs a program on a pseudo-terminal of its own, and passes on the output.
const ON_A_TERMINAL: &str = "import os, pty, sys\n\
    sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";

fn on_a_terminal(command: &Command) -> (Option<i32>, String) {
    let mut python = Command::new("python3");
    python.args(["-c", ON_A_TERMINAL]).arg(command.get_program()).args(command.get_args());
    said(&mut python)
}

/// Progress of a pass is shown on one line, which log lines replace and the end clears; nothing is shown if standard error is not a
/// terminal.
#[test]
fn progress_is_for_terminals() {
    const DEAD: u32 = 4;
    let fill = |fake: &Fake| {
        let mut state = fake.state();
        state.images = (1..=3).map(|n| image(n, n << 20)).collect();
        state.sandboxes = vec![sandbox("pod", 0)];
        state.containers = (0..DEAD).map(|n| container("pod", "c", n, EXITED, 9)).collect();
    };
    let fake = Fake::start();
    std::fs::create_dir(fake.folder().join("logs")).unwrap();
    for (arguments, what) in [(&CONTAINERS[..], "containers"), (&ALL[..], "images")] {
        let mut command = agent(&fake, arguments);
        command.args(["--minimum-image-ttl-duration", "0s"]);
        let lines: Vec<String> = (1..=3).map(|done| format!("\x1b[Kremoving {what}: {done}\r")).collect();
        fill(&fake);
        let (_, shown) = on_a_terminal(&command);
        let mut rest = shown.as_str();
        for line in &lines {
            let at = rest.find(line.as_str());
            rest = &rest[at.unwrap_or_else(|| panic!("{line:?} in its turn: {shown:?}")) + line.len()..];
        }
        let (log, end) = rest.rsplit_once("\x1b[K").expect("the line is cleared at the end");
        assert!(!log.contains("removing") && end.contains("Removed "), "{shown:?}");

        fill(&fake);
        let (_, text) = said(&mut command);
        assert!(text.contains("Removed ") && !text.contains(['\r', '\x1b']), "{text:?}");
        assert!(!text.contains(&format!("removing {what}")), "{text}");
    }
}
