#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| kubegc::fuzz::controller_manager_configuration(data));
