//! What a user runs on their card finds good engines good, and bad ones bad.

use tenfold_nvcodec::nvenc::sessions;
use tenfold_nvcodec::selftest::{Line, Outcome, Workload, passed};
use tenfold_nvcodec::{Error, JpegEngines, jpeg_engines};
use tenfold_nvcodec_standin::Fault;
use tenfold_video::Standard;

use super::common::{ALL, any, device, runs, turn};

/// The self-test, without the codecs that this build's stand-in cannot code.
fn run(workload: Workload) -> Vec<Line> {
    let mut lines = tenfold_nvcodec::selftest::run(&device(), workload);
    for standard in ALL.into_iter().filter(|s| !runs(*s)) {
        lines.retain(|line| line.codec != standard.to_string());
    }
    lines
}

#[test]
fn good_engines_pass() {
    let turn = turn();
    if any().is_none() {
        return;
    }
    let lines = run(Workload::new(256, 3));
    for line in &lines {
        println!("{} {}: {:?}", line.codec, line.test, line.outcome);
    }
    assert!(passed(&lines));
    for standard in ALL.into_iter().filter(|s| runs(*s)) {
        let of = lines.iter().filter(|l| l.codec == standard.to_string());
        let good: Vec<&str> = of
            .filter(|l| matches!(l.outcome, Outcome::Passed { .. }))
            .filter_map(|l| l.test.split_once(',').map(|t| t.0))
            .collect();
        assert!(good.contains(&"NVENC") && good.contains(&"NVDEC"), "{standard}: {good:?}");
    }
    turn.check();
}

#[test]
fn bad_engines_do_not() {
    let turn = turn();
    if any().is_none() {
        return;
    }
    // Damage done to AV1 alone decodes to a picture like any other, and nothing vouches for what the engine meant.
    let faults = [Fault::EncodeDamages, Fault::ConcealSilently, Fault::EncodeFails];
    for fault in faults.into_iter().filter(|_| runs(Standard::H264) && runs(Standard::H265)) {
        turn.reset();
        turn.set(fault, -1);
        assert!(!passed(&run(Workload::new(256, 2))), "{fault:?}");
    }
    turn.reset();
    turn.set(Fault::NoEncoder, -1);
    turn.set(Fault::NoDecoder, -1);
    let lines = run(Workload::new(256, 2));
    let skipped = |l: &&tenfold_nvcodec::selftest::Line| l.test.starts_with("NVENC");
    assert!(lines.iter().filter(skipped).all(|l| matches!(l.outcome, Outcome::Skipped(_))));
    turn.reset();
    turn.check();
}

#[test]
fn the_probe_counts_engines_and_sessions() {
    let turn = turn();
    if any().is_none() {
        return;
    }
    let device = device();
    assert_eq!(jpeg_engines(&device).unwrap(), JpegEngines { engines: 4, cores: 1 });
    turn.set(Fault::JpegEngines, 0);
    assert_eq!(jpeg_engines(&device).unwrap().engines, 0);
    // The driver's limit is found by opening sessions; where it is far there is no need to.
    let limited = sessions(&device, 16).unwrap();
    assert_eq!((limited.free, limited.limited), (5, true));
    let enough = sessions(&device, 3).unwrap();
    assert_eq!((enough.free, enough.limited), (3, false));
    turn.set(Fault::NoEncoder, -1);
    assert!(matches!(sessions(&device, 16), Err(Error::NoEngine(_))));
    turn.reset();
    turn.check();
}
