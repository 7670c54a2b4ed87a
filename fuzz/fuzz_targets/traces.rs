//! See the module of this name in `sdam_conformance::fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sdam_conformance::fuzz::traces(bytes));
