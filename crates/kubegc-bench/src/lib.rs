//! Measurements for benches. The program `kubegc-bench` measures a collector from outside, on any cluster.

pub mod measure;
