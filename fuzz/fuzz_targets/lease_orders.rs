#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_process::fuzz::lease_orders(data));
