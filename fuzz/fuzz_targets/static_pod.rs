#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_node::fuzz::static_pod(data));
