//! A library of the same shape that only inverts bytes, on the emulator, whose memory is the host's: every table and
//! every number that nvCOMP gets is used as the headers say, and its failures can be had at will.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::ffi::{c_char, c_int};
use std::slice;

use tenfold_cuda::Device;

use super::ffi::*;
use super::*;
use crate::bench::{BenchArgs, Report, What};

const NOT_SUPPORTED: Status = 11;
const CANNOT_DECOMPRESS: Status = 12;
/// Bytes that each compressed chunk begins with: its data type.
const HEAD: usize = 16;

unsafe extern "C" fn words(_: Status) -> *const c_char {
    c"the stand-in's words".as_ptr()
}

unsafe extern "C" fn compress_alignments(_: CompressOptions, to: *mut Alignments) -> Status {
    // SAFETY: the caller's structure.
    unsafe { *to = Alignments { input: 16, output: 16, temp: 1 } };
    SUCCESS
}

unsafe extern "C" fn decompress_alignments(_: DecompressOptions, to: *mut Alignments) -> Status {
    // SAFETY: the caller's structure.
    unsafe { *to = Alignments { input: 16, output: 16, temp: 8 } };
    SUCCESS
}

unsafe extern "C" fn max_output(chunk: usize, options: CompressOptions, bytes: *mut usize) -> Status {
    if options.data_type == TYPE_UCHAR && chunk > 64 << 10 {
        return NOT_SUPPORTED;
    }
    // SAFETY: the caller's number.
    unsafe { *bytes = chunk + HEAD };
    SUCCESS
}

unsafe extern "C" fn compress_temp(
    _: usize,
    _: usize,
    _: CompressOptions,
    bytes: *mut usize,
    _: usize,
    _: RawStream,
) -> Status {
    // SAFETY: the caller's number.
    unsafe { *bytes = 0 };
    SUCCESS
}

unsafe extern "C" fn decompress_temp(
    count: usize,
    _: usize,
    _: DecompressOptions,
    bytes: *mut usize,
    _: usize,
    _: RawStream,
) -> Status {
    // SAFETY: the caller's number.
    unsafe { *bytes = 8 * count };
    SUCCESS
}

unsafe extern "C" fn compress(
    from: DevicePointer,
    lens: DevicePointer,
    largest: usize,
    count: usize,
    temp: DevicePointer,
    temp_bytes: usize,
    to: DevicePointer,
    bytes: DevicePointer,
    options: CompressOptions,
    statuses: DevicePointer,
    _: RawStream,
) -> Status {
    assert!(temp.is_null() && temp_bytes == 0);
    // SAFETY: tables of `count` entries each, as `Packing` promises; the emulator's memory is the host's.
    unsafe {
        let from = slice::from_raw_parts(from.cast::<*const u8>(), count);
        let lens = slice::from_raw_parts(lens.cast::<usize>(), count);
        let to = slice::from_raw_parts(to.cast::<*mut u8>(), count);
        let bytes = slice::from_raw_parts_mut(bytes.cast::<usize>(), count);
        let statuses = slice::from_raw_parts_mut(statuses.cast::<Status>(), count);
        for i in 0..count {
            assert!(lens[i] <= largest);
            let out = slice::from_raw_parts_mut(to[i], HEAD + lens[i]);
            out[0] = options.data_type as u8;
            out[HEAD..].copy_from_slice(slice::from_raw_parts(from[i], lens[i]));
            out[HEAD..].iter_mut().for_each(|b| *b = !*b);
            (bytes[i], statuses[i]) = (out.len(), SUCCESS);
        }
    }
    SUCCESS
}

unsafe extern "C" fn decompress(
    from: DevicePointer,
    bytes: DevicePointer,
    room: DevicePointer,
    written: DevicePointer,
    count: usize,
    temp: DevicePointer,
    temp_bytes: usize,
    to: DevicePointer,
    options: DecompressOptions,
    statuses: DevicePointer,
    _: RawStream,
) -> Status {
    assert!(!temp.is_null() && temp_bytes == 8 * count);
    // SAFETY: as above.
    unsafe {
        let from = slice::from_raw_parts(from.cast::<*const u8>(), count);
        let bytes = slice::from_raw_parts(bytes.cast::<usize>(), count);
        let room = slice::from_raw_parts(room.cast::<usize>(), count);
        let written = slice::from_raw_parts_mut(written.cast::<usize>(), count);
        let to = slice::from_raw_parts(to.cast::<*mut u8>(), count);
        let statuses = slice::from_raw_parts_mut(statuses.cast::<Status>(), count);
        for i in 0..count {
            let packed = slice::from_raw_parts(from[i], bytes[i]);
            let told = options.data_type;
            if told != TYPE_BITS && told != c_int::from(packed[0]) || room[i] < bytes[i] - HEAD {
                statuses[i] = CANNOT_DECOMPRESS;
                continue;
            }
            let out = slice::from_raw_parts_mut(to[i], bytes[i] - HEAD);
            out.iter_mut().zip(&packed[HEAD..]).for_each(|(o, b)| *o = !b);
            if options.skip_validate == 0 {
                (written[i], statuses[i]) = (out.len(), SUCCESS);
            }
        }
    }
    SUCCESS
}

/// Says that all is well, and writes nothing but that.
unsafe extern "C" fn decompress_to_nothing(
    _: DevicePointer,
    _: DevicePointer,
    room: DevicePointer,
    written: DevicePointer,
    count: usize,
    _: DevicePointer,
    _: usize,
    _: DevicePointer,
    _: DecompressOptions,
    statuses: DevicePointer,
    _: RawStream,
) -> Status {
    // SAFETY: as above.
    unsafe {
        std::ptr::copy(room.cast::<usize>(), written.cast::<usize>(), count);
        slice::from_raw_parts_mut(statuses.cast::<Status>(), count).fill(SUCCESS);
    }
    SUCCESS
}

/// Fails in its last chunk unless it is told nothing.
unsafe extern "C" fn decompress_some(
    from: DevicePointer,
    bytes: DevicePointer,
    room: DevicePointer,
    written: DevicePointer,
    count: usize,
    temp: DevicePointer,
    temp_bytes: usize,
    to: DevicePointer,
    options: DecompressOptions,
    statuses: DevicePointer,
    stream: RawStream,
) -> Status {
    // SAFETY: as above.
    unsafe {
        decompress(from, bytes, room, written, count, temp, temp_bytes, to, options, statuses, stream);
        if options.data_type != TYPE_BITS {
            *statuses.cast::<Status>().add(count - 1) = CANNOT_DECOMPRESS;
        }
    }
    SUCCESS
}

fn library(decompress: Decompress) -> Nvcomp {
    Nvcomp {
        properties: Properties { version: 6000, cudart_version: 13040 },
        status_string: words,
        compress_alignments,
        decompress_alignments,
        max_output,
        compress_temp,
        decompress_temp,
        compress,
        decompress,
    }
}

/// Measures with chunks that do not end where the tensor does.
fn run(library: &Nvcomp) -> (Result<()>, Report) {
    let rig = Rig::new(Device::emulated(1 << 30), 3, 0).unwrap();
    let mut report = Report::new(&BenchArgs::new(What::Cuda));
    let done = measure(&rig, library, 7 << 14, &mut Figures::new(&mut report), &|_| ());
    (done, report)
}

fn rows(report: &Report, what: &str) -> usize {
    report.rows.iter().filter(|r| r["what"].as_str().unwrap().contains(what)).count()
}

#[test]
fn every_setting_goes_there_and_back() {
    let (done, report) = run(&library(decompress));
    done.unwrap();
    // The two larger chunks of bytes are refused.
    let taken = settings() - 2;
    assert_eq!((rows(&report, "nvCOMP compress"), rows(&report, "nvCOMP decompress")), (taken, 3 * taken));
    assert_eq!(report.notes.iter().filter(|n| n.contains("left out")).count(), 2, "{:?}", report.notes);
    // Whole tiles of bf16, in chunks of 64 KiB.
    let bytes = report.rows[0]["bytes"].as_u64().unwrap();
    assert!(bytes >= 2 * (7 << 14) && bytes.div_ceil(64 << 10) == 4, "{bytes} bytes");
    let bits = (bytes as f64 + 4.0 * HEAD as f64) * 8.0 / (bytes / 2) as f64;
    assert_eq!(report.rows[0]["bits"].as_f64().unwrap(), bits, "four chunks with a head each");
    assert_eq!(library(decompress).describe(), "nvCOMP 6.0.0, built with CUDA 13.4");
}

#[test]
fn bytes_that_did_not_come_back_are_an_error() {
    let (done, _) = run(&library(decompress_to_nothing));
    let error: NvcompError = done.unwrap_err().downcast().unwrap();
    assert!(matches!(error, NvcompError::RoundTrip(_)), "{error}");
}

#[test]
fn chunks_that_failed_leave_out_their_way_alone() {
    let (done, report) = run(&library(decompress_some));
    done.unwrap();
    let taken = settings() - 2;
    assert_eq!((rows(&report, "inferred"), rows(&report, "named")), (taken, 0));
    assert!(
        report.notes.iter().any(|n| n.contains("1 of 4 chunks failed, the first with: the stand-in's words"))
    );
}

#[test]
fn the_fewest_bytes_of_all_settings_come_back() {
    let rig = Rig::new(Device::emulated(1 << 30), 1, 0).unwrap();
    let bytes: Vec<u8> = (0..200_001u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let (packed, setting, times) = fewest(&rig, &library(decompress), &bytes).unwrap().unwrap();
    assert_eq!((packed, times.0.len()), (bytes.len() + 4 * HEAD, 1), "{setting}");
    assert!(fewest(&rig, &library(decompress_to_nothing), &bytes).is_err());
}
