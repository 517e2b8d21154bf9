#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_collectors::fuzz::node_policy(data));
