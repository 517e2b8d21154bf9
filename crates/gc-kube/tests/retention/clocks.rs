//! A server whose clock differs from this machine's.

use gc_kube::Agreement;
use http::HeaderValue;

use super::*;

/// While the server's clock is an hour behind, a Job that is due by this machine's clock stays; it is deleted once they agree
/// again.
#[tokio::test]
async fn what_depends_on_the_time_waits_until_clocks_agree() {
    let world = World::start().await;
    finished_job(&world, "a").await;
    let (ahead, way) = (Arc::new(AtomicI64::new(-HOUR)), world.server.in_process("admin"));
    let server_ahead = Arc::clone(&ahead);
    let client = ApiClient::in_process(move |request: Request<Full<Bytes>>| {
        let (answer, ahead) = (way.call(request), Arc::clone(&server_ahead));
        async move {
            let mut answer = answer.await;
            let Timestamp(now) = system_clock()();
            let date = jiff::Timestamp::from_millisecond(now + ahead.load(Ordering::Relaxed)).unwrap();
            let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            answer.headers_mut().insert("date", HeaderValue::try_from(date).unwrap());
            answer
        }
    });
    let client = client.with_server_clock();
    let engine = Engine::new(JobCollector::default());
    let collector = RetentionCollector::new(client.clone(), engine, ConcurrencyOptions::default(), false)
        .with_clock(world.clock());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let recorder = Arc::<Recorder>::default();
    let observer: Arc<dyn Observer> = Arc::<Recorder>::clone(&recorder);
    let work = tokio::spawn(async move { collector.run(observer, async { drop(stopped.await) }).await });
    let deadline = Instant::now() + PATIENCE;
    while *recorder.held.lock().unwrap() != ["a"] {
        assert!(Instant::now() < deadline, "nothing is held");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let clock = client.server_clock().unwrap();
    let Agreement::Disagreed(by) = clock.agreement() else { panic!("the clocks agree") };
    assert!((HOUR - 60_000..=HOUR).contains(&by), "{by}");
    let (code, job) = world.get(&format!("{JOBS}/a")).await;
    assert!(code == 200 && job["metadata"]["deletionTimestamp"].is_null(), "{job}");
    // Only the collector itself requests the server's time.
    ahead.store(0, Ordering::Relaxed);
    // It is deleted in the foreground with its pods, which nothing completes here.
    let is_going = |_: u16, job: &Value| !job["metadata"]["deletionTimestamp"].is_null();
    world.until("the deletion", &format!("{JOBS}/a"), is_going).await;
    assert_eq!(clock.agreement(), Agreement::Agreed);
    stop.send(()).unwrap();
    work.await.unwrap();
}
