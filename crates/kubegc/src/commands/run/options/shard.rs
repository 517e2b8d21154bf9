//! Settings of one shard.

use gc_collectors::permissions::Controller;
use gc_process::UsageError;

use super::Settings;

/// Restricts settings to their shard. All shards together trip the circuit breaker where one collector would, so each has its part of
/// the limits. What needs the whole cluster runs in shard 0.
pub(super) fn restricted(mut settings: Settings) -> Result<Settings, UsageError> {
    let shard = settings.shard;
    if shard.is_whole() {
        return Ok(settings);
    }
    let part = |number: u64| (number / u64::from(shard.count())).max(1);
    let breaker = &mut settings.breaker;
    breaker.largest_number = breaker.largest_number.map(part);
    breaker.largest_share = breaker.largest_share.map(|share| share / f64::from(shard.count()));
    breaker.share_floor = part(breaker.share_floor);
    if shard.index() == 0 {
        return Ok(settings);
    }
    if !settings.collects_by_owners() {
        return Err(UsageError::new(format!(
            "--shard {shard}: shards other than 0 only collect by owner references, and --controllers leaves that out; run the \
             other collectors in shard 0/{}",
            shard.count()
        )));
    }
    let others: Vec<&str> = settings.other_controllers().into_iter().map(Controller::name).collect();
    if !others.is_empty() {
        settings.notices.push(format!("these collectors run in shard 0 only: {}", others.join(", ")));
    }
    settings.controllers.retain(|controller| *controller == Controller::GarbageCollector);
    if settings.garbage_interval.take().is_some() {
        settings.notices.push("garbage is counted in shard 0 only (--garbage-metrics-interval)".to_owned());
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::super::tests::settings;
    use super::*;

    #[test]
    fn shards_share_the_limits_of_the_breaker() {
        for (shard, number, share, floor) in [
            ("0/1", 1_000, 0.5, 100),
            ("0/4", 250, 0.125, 25),
            ("3/4", 250, 0.125, 25),
            ("5/1024", 1, 0.5 / 1_024.0, 1),
        ] {
            let arguments =
                [&format!("--shard={shard}"), "--breaker-max-deletions=1000", "--breaker-share-floor=100"];
            let breaker = settings(&arguments, None).unwrap().breaker;
            let found = (breaker.largest_number, breaker.largest_share, breaker.share_floor);
            assert_eq!(found, (Some(number), Some(share), floor), "{shard}");
        }
        let unlimited = ["--shard=0/4", "--breaker-max-deletions=0", "--breaker-max-share=0"];
        let breaker = settings(&unlimited, None).unwrap().breaker;
        assert_eq!((breaker.largest_number, breaker.largest_share), (None, None));
    }

    #[test]
    fn what_needs_the_whole_cluster_runs_in_shard_0() {
        let arguments = ["--controllers=garbagecollector,podgc", "--garbage-metrics-interval=1h"];
        let of_shard = |shard: &str| settings(&[&arguments[..], &[shard]].concat(), None).unwrap();
        let first = of_shard("--shard=0/2");
        assert_eq!((first.controllers.len(), first.garbage_interval.is_some()), (2, true));
        assert!(first.notices.is_empty());
        let second = of_shard("--shard=1/2");
        assert_eq!(second.controllers, [Controller::GarbageCollector]);
        assert_eq!(second.garbage_interval, None);
        assert_eq!(
            second.notices,
            [
                "these collectors run in shard 0 only: pod-garbage-collector-controller",
                "garbage is counted in shard 0 only (--garbage-metrics-interval)",
            ]
        );
        // Each shard has its own Lease for its election, and all have one for orders.
        assert_eq!(second.election().lease.name, "kubegc-garbage-collector-shard-1-of-2");
        assert_eq!(second.lease.lease.name, "kubegc-garbage-collector");
        assert_eq!(settings(&[], None).unwrap().election().lease.name, "kubegc-garbage-collector");
        let file = settings(&[], Some("kubegc: {shard: 1/3}\n")).unwrap();
        assert_eq!(file.shard.to_string(), "1/3");
        assert_eq!(
            settings(&["--shard=2/4"], Some("kubegc: {shard: 1/3}\n")).unwrap().shard.to_string(),
            "2/4"
        );
    }
}
