#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_cri::fuzz::cri_endpoint(data));
