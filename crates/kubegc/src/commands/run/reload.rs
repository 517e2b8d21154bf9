//! Reloads the configuration on SIGHUP.

use gc_host::Hangups;

use super::live::Live;
use super::options::{ExplicitFlags, Options, Settings};

/// Reloads the configuration on each SIGHUP, and logs which changes take effect and which need a restart.
pub(super) async fn reload(
    mut hangups: Hangups,
    options: Options,
    given: ExplicitFlags,
    mut settings: Settings,
    live: Live,
) {
    while hangups.recv().await.is_some() {
        let Some(file) = &options.config else {
            tracing::info!("SIGHUP: there is no --config to reload");
            continue;
        };
        let read = match Settings::resolve(&options, &given) {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(file = %file.display(), "the configuration is unchanged: {error}");
                continue;
            }
        };
        let differences = settings.differences(&read);
        if differences.is_empty() {
            tracing::info!(file = %file.display(), "the configuration has not changed");
        }
        for change in &differences {
            let effect = if change.is_live { "takes effect" } else { "needs a restart" };
            tracing::info!(setting = change.name, from = change.from, to = change.to, "{effect}");
        }
        live.breaker.change(|breaker| {
            breaker.set_options(read.breaker);
            breaker.keep(read.kept_resources.clone());
        });
        live.concurrency.send_replace(read.concurrency);
        // Only the settings that take effect are adopted, so the next reload reports the others again.
        settings.breaker = read.breaker;
        settings.kept_resources = read.kept_resources;
        settings.concurrency = read.concurrency;
    }
}
