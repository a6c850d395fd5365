//! One set of cases for every engine: what the CPU writes, a device reads to the same bits, and refuses where the
//! CPU does; what a device writes, the CPU reads.
//!
//! Each case runs on the emulator, where that is built in, and on the first CUDA device. Without one, those cases
//! are counted as ignored.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod batch;
mod calibrated;
mod chain;
#[path = "../../../tenfold/tests/common/mod.rs"]
mod common;
mod corruption;
mod decode;
mod delta;
mod delta_refused;
mod device;
mod encode_lossless;
mod encode_lossy;
mod faults;
mod fingerprint;
mod fixed;
mod golden;
mod layers;
mod multiply;
mod pages;
mod pairs;
mod pictures;
mod planned;
mod pool;
mod prepared;
mod rate;
mod small;
mod streams;
mod transposed;

use libtest_mimic::{Arguments, Trial};

use device::Subject;

/// A case: its name, and what it does with a device.
type Case = (String, fn(&Subject));

fn main() {
    if faults::lose_device() {
        return;
    }
    let args = Arguments::from_args();
    let cases: Vec<Case> = [
        golden::cases(),
        delta::cases(),
        delta_refused::cases(),
        fingerprint::cases(),
        layers::cases(),
        multiply::cases(),
        pictures::cases(),
        decode::cases(),
        corruption::cases(),
        prepared::cases(),
        chain::cases(),
        faults::cases(),
        encode_lossless::cases(),
        encode_lossy::cases(),
        batch::cases(),
        calibrated::cases(),
        pages::cases(),
        planned::cases(),
        pool::cases(),
        pairs::cases(),
        rate::cases(),
        small::cases(),
        streams::cases(),
        transposed::cases(),
    ]
    .concat();
    let mut trials = Vec::new();
    for subject in device::subjects() {
        if let Err(why) = &subject.open() {
            eprintln!("{}: skipped: {why}", subject.name());
        }
        for (name, case) in &cases {
            let (subject, case) = (subject.clone(), *case);
            let missing = subject.open().is_err();
            let trial = Trial::test(format!("{}::{name}", subject.name()), move || {
                case(&subject);
                Ok(())
            });
            trials.push(trial.with_ignored_flag(missing));
        }
    }
    libtest_mimic::run(&args, trials).exit();
}
