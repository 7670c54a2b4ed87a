//! See the module of this name in `sdam_simulation::fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sdam_simulation::fuzz::chunks(bytes));
