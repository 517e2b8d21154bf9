//! Repeated looks for metrics, by those who act, at a bounded cost.

use std::time::{Duration, Instant};

/// Between two looks passes at least this multiple of what the last one took: however large the cluster, looks cost a bounded share of one
/// core.
const REST_FACTOR: u32 = 9;

/// Pauses between looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pauses {
    /// Minimum pause after a look.
    pub(crate) acting: Duration,
    /// Pause between two checks of a standby whether it acts by now.
    pub(crate) standby: Duration,
}

/// Looks while `acts` says so, and otherwise forgets what was found, until it is dropped.
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
