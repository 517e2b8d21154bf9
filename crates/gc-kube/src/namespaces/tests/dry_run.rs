//! Dry runs of the namespace controller.

use super::*;

/// A dry run that cannot discover the served resources reports this, but writes no Event about it.
#[tokio::test]
async fn a_dry_run_writes_no_events() {
    for is_dry_run in [false, true] {
        let mut first = terminating(CORE);
        first.undiscovered = true;
        let settings = NamespaceSettings { dry_run: is_dry_run, ..NamespaceSettings::default() };
        let (mut controller, world) = controller_with(first, settings);
        let ended = one_pass(&mut controller).await;
        assert!(matches!(ended.end, End::Failed { .. }), "{:?}", ended.end);
        let long_ago = Instant::now().checked_sub(PATIENCE * 2).unwrap();
        let failing = FailingNamespace { since: long_ago, reported: String::new() };
        let mut reports = Reports { failures: HashMap::from([("n".into(), failing)]), ..Reports::default() };
        controller.report(&ended, &mut reports);
        // The writer ends once nothing can be recorded any more.
        let NamespaceController { work, _writing: mut writing, .. } = controller;
        drop(work);
        while writing.join_next().await.is_some() {}
        let log = std::mem::take(&mut world.lock().unwrap().log);
        let written = log.iter().filter(|line| !line.starts_with("GET")).count();
        assert_eq!(written, usize::from(!is_dry_run), "{log:?}");
    }
}
