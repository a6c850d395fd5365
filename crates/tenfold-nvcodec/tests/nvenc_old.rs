//! A driver that is too old is said to be; this is a process of its own, since a library that was found good is kept.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use tenfold_cuda::Device;
use tenfold_nvcodec::Error;
use tenfold_nvcodec::nvenc::encodes;
use tenfold_nvcodec_standin::{Fault, Standin};

#[test]
fn an_old_driver_is_refused_and_a_new_one_taken() {
    let standin = Standin::load();
    let device = Device::emulated(1 << 24);
    standin.set(Fault::ApiVersion, 12 << 4);
    let error = encodes(&device).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Version { .. }), "{text}");
    assert!(text.contains("speaks version 12.0") && text.contains("needs 12.1"), "{text}");
    standin.set(Fault::ApiVersion, 13 << 4);
    let found = encodes(&device).unwrap();
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|e| e.engines == 2 && e.min.0 > 100 && e.max.0 >= 4096));
    assert_eq!((standin.counts().sessions, standin.violations()), (0, vec![]));
}
