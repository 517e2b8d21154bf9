#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_registry::fuzz::strategic_merge_patches(data));
