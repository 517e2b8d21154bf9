//! The agent's pages other than its metrics: health, and in tests its clock.

use std::sync::Arc;

use gc_apiserver::ExtensionAnswer;
use gc_node::{Health, TestClock};
use gc_process::endpoints::{CLOCK, refused};
use gc_process::operations::{PageAnswer, Pages};
use gc_types::GoDuration;
use serde_json::{Value, json};

/// Serves health, and a clock that a test may set.
pub(super) struct NodePages {
    pub(super) health: Arc<Health>,
    pub(super) clock: Option<TestClock>,
}

impl NodePages {
    fn clock_at(&self, path: &str) -> Option<&TestClock> {
        self.clock.as_ref().filter(|_| path == CLOCK)
    }
}

impl Pages for NodePages {
    fn refresh(&self) {}

    fn unhealthy(&self) -> Option<String> {
        self.health.unhealthy()
    }

    fn unready(&self) -> Option<String> {
        self.health.unready()
    }

    fn page(&self, _user: &str, path: &str, _query: &[(String, String)]) -> Option<PageAnswer> {
        self.clock_at(path).map(|clock| answer((200, shown(clock))))
    }

    fn order(&self, path: &str, query: &[(String, String)]) -> Option<PageAnswer> {
        self.clock_at(path).map(|clock| answer(advance(clock, query)))
    }
}

fn answer((code, document): (u16, Value)) -> PageAnswer {
    PageAnswer::Asked(Box::pin(async move { ExtensionAnswer::json(code, &document) }))
}

fn shown(clock: &TestClock) -> Value {
    let ahead = GoDuration(i64::try_from(clock.ahead().as_nanos()).unwrap_or(i64::MAX));
    json!({"ahead": ahead.to_string()})
}

fn advance(clock: &TestClock, query: &[(String, String)]) -> (u16, Value) {
    let [(name, text)] = query else { return refused("expected one parameter, advance=DURATION") };
    match text.parse::<GoDuration>() {
        Ok(by) if name == "advance" && by >= GoDuration::ZERO => {
            clock.advance(by.to_std());
            (200, shown(clock))
        }
        Ok(_) => refused(&format!("{name}={text}: expected advance=DURATION, not negative")),
        Err(error) => refused(&format!("{name}={text}: {error}")),
    }
}
