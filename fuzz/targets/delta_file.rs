#![no_main]

#[global_allocator]
static GUARD: tenfold_fuzz::guard::Guard = tenfold_fuzz::guard::Guard;

libfuzzer_sys::fuzz_target!(
    init: tenfold_fuzz::seeds::write_if_asked("delta_file"),
    |input: &[u8]| tenfold_fuzz::bodies::delta_file::run(input)
);
