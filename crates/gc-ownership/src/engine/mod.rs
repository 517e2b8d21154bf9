//! The cascade engine: events in, effects out.

mod config;

use gc_types::{Effect, Event, Timestamp};

pub use config::{Config, Stats};

/// The engine. See the crate's documentation.
#[derive(Clone, Debug)]
pub struct Engine {
    config: Config,
    now: Timestamp,
}

impl Engine {
    /// An engine that knows nothing yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, now: Timestamp::default() }
    }

    /// Takes in one event. Never fails: what makes no sense (an unknown effect, an unannounced resource) is
    /// ignored.
    pub fn handle(&mut self, event: Event) {
        if let Event::Tick(now) = event {
            self.now = self.now.max(now);
        }
    }

    /// The next thing to do, or `None` if there is nothing to do now or as much in flight as the configuration
    /// allows. Poll until `None` after each batch of events.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        None
    }

    /// When the engine wants to be told the time again, if at all.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        None
    }

    /// The present figures.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
}
