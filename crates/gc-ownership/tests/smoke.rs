#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]
mod support;
use gc_types::PropagationPolicy::{Background, Foreground, Orphan};
use support::Bench;

#[test]
fn one_request_per_dependent() {
    let mut bench = Bench::new();
    bench.add("ReplicationController/a@n", &[]);
    for i in 0..5 {
        bench.add(&format!("Pod/p{i}@n"), &["ReplicationController/a"]);
    }
    bench.drain();
    bench.delete("ReplicationController/a@n", Background).run_for(1000);
    println!("{:#?}", bench.log);
    assert_eq!(bench.world(), Vec::<String>::new());
    assert_eq!(bench.log.len(), 5);
}

#[test]
fn foreground_and_orphan() {
    let mut bench = Bench::new();
    bench.add("ReplicationController/a@n", &[]);
    bench.add("ReplicationController/b@n", &[]);
    for i in 0..3 {
        bench.add(&format!("Pod/p{i}@n"), &["ReplicationController/a!"]);
        bench.add(&format!("Pod/q{i}@n"), &["ReplicationController/b!"]);
    }
    bench.log_barriers = true;
    bench.delete("ReplicationController/a@n", Foreground).run_for(1000);
    println!("{:#?}", bench.take_log());
    bench.delete("ReplicationController/b@n", Orphan).run_for(1000);
    println!("{:#?}", bench.take_log());
    assert_eq!(bench.world(), ["Pod/q0@n", "Pod/q1@n", "Pod/q2@n"]);
}
