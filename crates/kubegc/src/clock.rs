//! The clock of the collectors: the machine's, or the machine's with an offset that a test sets.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use gc_kube::{Clock, system_clock};
use gc_types::{GoDuration, Timestamp};

use crate::UsageError;

/// The offset is looked at so often.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

fn offset(path: &PathBuf) -> Result<i64, UsageError> {
    let unusable = |error: &dyn std::fmt::Display| {
        UsageError::new(format!("--collector-clock-offset {}: {error}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| unusable(&error))?;
    let ahead: GoDuration = text.trim().parse().map_err(|error| unusable(&error))?;
    Ok(i64::try_from(ahead.to_std().as_millis()).unwrap_or(i64::MAX))
}

/// The machine's clock with what the file says added to it. The file is read again and again; while it cannot be
/// read, its last content counts. Must be called within a tokio runtime.
pub(crate) fn collector_clock(path: Option<&PathBuf>) -> Result<Clock, UsageError> {
    let Some(path) = path.cloned() else { return Ok(system_clock()) };
    let ahead = Arc::new(AtomicI64::new(offset(&path)?));
    let system = system_clock();
    let shown = Arc::clone(&ahead);
    tokio::spawn(async move {
        let mut look = tokio::time::interval(LOOK_PERIOD);
        // Nobody is left to ask for the time once only this task holds the offset.
        while Arc::strong_count(&ahead) > 1 {
            look.tick().await;
            if let Ok(read) = offset(&path) {
                ahead.store(read, Ordering::Relaxed);
            }
        }
    });
    Ok(Arc::new(move || {
        let Timestamp(now) = system();
        Timestamp(now.saturating_add(shown.load(Ordering::Relaxed)))
    }))
}
