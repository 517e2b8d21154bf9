#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_store::fuzz::disk_record(data));
