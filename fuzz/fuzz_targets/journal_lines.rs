#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_inspect::fuzz::journal_lines(data));
