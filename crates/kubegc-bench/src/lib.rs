//! Measurements for benchmarks. The program `kubegc-bench` measures a collector from outside, on any cluster.

pub mod measure;
