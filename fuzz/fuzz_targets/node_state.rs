#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gc_node::fuzz::node_state(data));
