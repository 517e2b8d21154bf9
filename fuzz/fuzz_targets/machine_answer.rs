#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_cloud::fuzz::machine_answer(data));
