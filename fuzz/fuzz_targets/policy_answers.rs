#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_kube::fuzz::policy_answers(data));
