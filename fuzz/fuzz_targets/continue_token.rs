#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_registry::fuzz::continue_token(data));
