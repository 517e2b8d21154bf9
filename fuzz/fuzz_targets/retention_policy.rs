#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_retention::fuzz::retention_policy(data));
