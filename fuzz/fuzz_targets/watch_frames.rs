#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_kube::fuzz::watch_frames(data));
