#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| kubegc::fuzz::lease_orders(data));
