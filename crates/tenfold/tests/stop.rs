//! A switch ends work, and leaves it alone otherwise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use tenfold::engine::{Cpu, ErrorKind, Stop};
use tenfold::{DecodeOptions, EncodeOptions, Error, Goal, TensorView};

fn values(n: usize) -> Vec<f32> {
    let mut seed = 1u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..n).map(|_| next() + next() + next()).collect()
}

#[test]
fn nothing_is_begun_after_the_switch() {
    let x = values(20_000);
    let view = TensorView::from_slice(&x, &[100, 200]).unwrap();
    let goals =
        [Goal::Lossless, Goal::Bits(3.0), Goal::Nmse(0.01), Goal::MaxError(0.1), Goal::MaxBytes(9000)];
    for goal in goals {
        for threads in [0, 1, 2] {
            let stop = Stop::new();
            let options = EncodeOptions::new(goal).with_threads(threads).with_stop(stop.clone());
            let blob = tenfold::encode(&view, &options).unwrap();
            let decode = DecodeOptions::default().with_threads(threads).with_stop(stop.clone());
            assert!(tenfold::decode(&blob, &decode).is_ok());
            let parts = Cpu.encode_parts(&view, &options).unwrap();
            stop.stop();
            assert_eq!(parts.write(&mut vec![0; blob.len()]), Err(Error::Stopped));
            let error = tenfold::encode(&view, &options).unwrap_err();
            assert_eq!((error.kind(), error), (ErrorKind::Caller, Error::Stopped));
            assert_eq!(tenfold::decode(&blob, &decode), Err(Error::Stopped));
            assert_eq!(tenfold::decode_rows(&blob, 3..5, &decode), Err(Error::Stopped));
        }
    }
}

#[test]
fn options_are_equal_if_their_switches_are_the_same() {
    let (a, b) = (Stop::new(), Stop::new());
    assert_eq!(Stop::default(), Stop::default());
    assert_eq!(a, a.clone());
    assert!(a != b && a != Stop::default());
    Stop::default().stop();
    a.stop();
    assert!(a.is_stopped() && !b.is_stopped() && !Stop::default().is_stopped());
    assert_eq!(EncodeOptions::new(Goal::Lossless), EncodeOptions::new(Goal::Lossless));
}
