#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_external::fuzz::csi_answer(data));
