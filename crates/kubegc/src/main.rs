//! `kubegc`: everything that Kubernetes calls garbage collection, in one binary.
fn main() {}
