//! What can be told without a device: which libraries are refused, and what the right one answers on the host.

use std::path::Path;

use super::*;
use crate::bench::{self, BenchArgs, What};
use tenfold::engine::ErrorKind;

fn refused(path: &str) -> NvcompError {
    let mut args = BenchArgs::new(What::Cuda);
    (args.quiet, args.nvcomp) = (true, Some(path.into()));
    // Refused before a device is looked for.
    bench::run(&args, &mut Vec::new()).unwrap_err().downcast().unwrap()
}

#[test]
fn a_path_without_a_library_is_refused() {
    let error = refused("/nowhere/libnvcomp.so.6");
    assert!(matches!(&error, NvcompError::Load { path, .. } if path == Path::new("/nowhere/libnvcomp.so.6")));
    assert_eq!(error.kind(), ErrorKind::Environment);
    assert!(error.to_string().contains("/nowhere/libnvcomp.so.6"), "{error}");
}

#[test]
fn a_file_that_is_no_library_is_refused() {
    let error = refused(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    assert!(matches!(error, NvcompError::Load { .. }), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn another_library_is_refused() {
    let error = refused("libc.so.6");
    assert!(matches!(error, NvcompError::NotNvcomp { symbol: "nvcompGetProperties", .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Caller);
}

#[test]
fn refusals_are_told_from_failures() {
    let chunks = || NvcompError::Chunks { call: "x", failed: 1, chunks: 2, reason: "y".into() };
    assert!(is_refusal(&chunks().into()));
    assert!(is_refusal(&Error::OutOfMemory { asked: 1 }.into()));
    assert!(!is_refusal(&NvcompError::RoundTrip("float16".into()).into()));
    assert!(!is_refusal(&Error::DeviceLost("x".into()).into()));
}

#[test]
fn the_fastest_of_each_kind_and_the_smallest_are_found() {
    let kept = |what: &str, bits: f64, ms: f64| Kept {
        what: what.into(),
        about: About {
            tensor: "t".into(),
            values: 1 << 20,
            states: None,
            classes: None,
            bits,
            ratio: 16.0 / bits,
            nmse: None,
        },
        times: Times(vec![ms]),
    };
    let mut best = Best::default();
    best.offer(Kind::Compress, kept("slow", 10.0, 3.0));
    best.offer(Kind::Compress, kept("quick", 11.0, 2.0));
    best.offer(Kind::Decompress, kept("back", 11.0, 1.0));
    let names: Vec<_> = best.fastest.iter().map(|k| k.as_ref().map(|k| k.what.as_str())).collect();
    assert_eq!(names, [Some("quick"), Some("back"), None]);
    assert_eq!(best.smallest, Some((10.0, "slow".to_string())));
}

/// Where NVCOMP names a library: it takes every setting, and asks for memory that allocations can give.
#[test]
fn the_library_takes_every_setting() {
    let Some(path) = std::env::var_os("NVCOMP") else {
        return;
    };
    let library = Nvcomp::open(Path::new(&path)).unwrap();
    assert!(library.describe().starts_with("nvCOMP 6."), "{}", library.describe());
    for setting in Setting::all() {
        let (options, none) = (setting.compress(), std::ptr::null_mut());
        let most = library.max_output(setting.chunk, options).unwrap();
        assert!((setting.chunk / 2..4 * setting.chunk).contains(&most), "{}: {most}", setting.name());
        let chunks = (16, setting.chunk);
        assert!(library.compress_temp(chunks, 16 * setting.chunk, options, none).unwrap() < 1 << 30);
        for way in Way::ALL {
            let back = setting.decompress(way);
            assert_eq!(256 % library.alignment(options, back).unwrap(), 0);
            assert!(library.decompress_temp(chunks, 16 * setting.chunk, back, none).unwrap() < 1 << 30);
        }
    }
    let too_large = library.max_output(ffi::MAX_CHUNK + 1, Setting::all()[0].compress());
    assert!(matches!(too_large, Err(NvcompError::Refused { .. })));
}
