//! Repeated surveys of the cluster for metrics, only while this process acts, and at a bounded cost.

use std::time::{Duration, Instant};

/// The pause after a survey is at least this multiple of its duration, so surveys take a bounded share of one core, however large
/// the cluster is.
const REST_FACTOR: u32 = 9;

/// Pauses between surveys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pauses {
    /// Minimum pause after a survey.
    pub(crate) acting: Duration,
    /// Pause before a standby checks again whether it acts.
    pub(crate) standby: Duration,
}

/// Runs a survey whenever `acts` is true, and otherwise discards the last results, until the future is dropped.
pub(crate) async fn look_repeatedly<L: Future<Output = ()>>(
    pauses: Pauses,
    acts: impl Fn() -> bool,
    look: impl Fn() -> L,
    forget: impl Fn(),
) {
    loop {
        let pause = if acts() {
            let begun = Instant::now();
            look().await;
            pauses.acting.max(begun.elapsed() * REST_FACTOR)
        } else {
            forget();
            pauses.standby
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn a_standby_forgets_and_looks_again_when_it_acts() {
        let pauses = Pauses { acting: Duration::ZERO, standby: Duration::ZERO };
        let (answers, seen) = (RefCell::new(vec![true, false, false, true, true]), RefCell::new(Vec::new()));
        let (done, mut end) = tokio::sync::watch::channel(());
        let acts = || {
            answers.borrow_mut().pop().unwrap_or_else(|| {
                done.send_replace(());
                false
            })
        };
        let look = || {
            seen.borrow_mut().push("look");
            std::future::ready(())
        };
        let forget = || seen.borrow_mut().push("forget");
        tokio::select! {
            biased;
            _ = end.changed() => {}
            () = look_repeatedly(pauses, acts, look, forget) => {}
        }
        assert_eq!(seen.borrow()[..5], ["look", "look", "forget", "forget", "look"]);
    }
}
