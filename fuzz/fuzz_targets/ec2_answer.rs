#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_external::fuzz::ec2_answer(data));
