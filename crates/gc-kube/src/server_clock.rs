//! The API server's clock, read from the `Date` of its answers (see [`gc_controller::clocks`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gc_controller::Moment;
use gc_controller::clocks::{Agreement, SERVER_CLOCK_PERIOD_PAUSED, ServerClock};
use gc_types::Timestamp;
use http::header::DATE;
use http::{HeaderMap, Request};
use http_body_util::Full;

use crate::clock::{machine_clock, machine_moment};
use crate::connection::ApiClient;

/// Maximum length of a valid `Date`.
const LONGEST_DATE_BYTES: usize = 64;

#[derive(Debug, Default)]
struct State {
    clock: ServerClock,
    /// True if the last log line announced that deletions pause.
    is_paused: bool,
}

/// The server's clock as observed in all answers to one client. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SharedServerClock(Arc<Mutex<State>>);

impl SharedServerClock {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Observes the headers of an answer to a request that was sent at `sent`.
    pub(crate) fn observe(&self, headers: &HeaderMap, sent: Moment) {
        let Some(date) = headers.get(DATE).and_then(|date| read_date(date.as_bytes())) else { return };
        let (answered, wall) = (machine_moment(), machine_clock());
        self.lock().clock.observe(date, sent, answered, wall);
    }

    /// Compares the server's clock with this machine's. A change is logged.
    #[must_use]
    pub fn agreement(&self) -> Agreement {
        let (now, wall) = (machine_moment(), machine_clock());
        let mut state = self.lock();
        let agreement = state.clock.compare(now, wall);
        match (std::mem::replace(&mut state.is_paused, agreement.pauses()), agreement.pauses()) {
            (false, true) => tracing::warn!("{agreement}; deletions that depend on the time pause"),
            (true, false) => tracing::info!("{agreement}; deletions that depend on the time continue"),
            _ => {}
        }
        agreement
    }

    /// Returns the minimum number of milliseconds by which this machine's clock is ahead of the server's (behind, if negative).
    #[must_use]
    pub fn difference_milliseconds(&self) -> Option<i64> {
        self.lock().clock.difference_milliseconds(machine_moment(), machine_clock())
    }

    fn poll_question(&self) -> bool {
        self.lock().clock.poll_question(machine_moment())
    }
}

/// Parses a `Date` as defined by RFC 9110.
fn read_date(text: &[u8]) -> Option<Timestamp> {
    if text.len() > LONGEST_DATE_BYTES {
        return None;
    }
    let zoned = jiff::fmt::rfc2822::parse(std::str::from_utf8(text).ok()?).ok()?;
    Some(Timestamp(zoned.timestamp().as_millisecond()))
}

/// Keeps the server's clock known: if no answer has shown it for a while, sends a request. Runs until dropped.
pub(crate) async fn follow(client: ApiClient) {
    // A server in this process uses this machine's clock.
    let Some(clock) = client.server_clock().cloned() else { return };
    loop {
        tokio::time::sleep(SERVER_CLOCK_PERIOD_PAUSED).await;
        if clock.poll_question()
            && let Ok(request) = Request::get("/version").body(Full::default())
        {
            // Any answer has a date; without an answer, nothing is known.
            let _ = client.call(request).await;
        }
        let _ = clock.agreement();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_answers_are_read() {
        for (text, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777_000)),
            ("06 Nov 1994 08:49:37 GMT", Some(784_111_777_000)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("", None),
            ("yesterday", None),
            ("Sun, 06 Nov 1994 08:49:37 GMT and much more that is of no use", None),
        ] {
            assert_eq!(read_date(text.as_bytes()).map(|date| date.0), expected, "{text}");
        }
        assert_eq!(read_date(&[0xff, 0xfe]), None);
    }
}
