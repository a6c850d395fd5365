//! What goes wrong: a typed error each, and the lanes are good for the next blob.

use std::time::Duration;

use tenfold::engine::ErrorKind;
use tenfold::{DecodeOptions, Dtype};
use tenfold_cuda::{Buffer, Stream as CudaStream};
use tenfold_video::{Scaling, Standard};

use super::blobs::{FORMAT, Recipe, decode, decode_as, decoder, device, parameter_sets};
use super::fake::{self, Fault, access_unit, set, turn, world};
use crate::decode::{Decoder, Output};
use crate::error::Error;
use crate::nvdec::LaneSettings;

fn recipe() -> Recipe {
    Recipe::new(Dtype::Bf16, 5 * 256, 256, Some(Scaling::Tensor))
}

/// Decodes with a fault, then without.
fn fails(fault: Fault) -> Error {
    let _turn = turn(fault);
    let device = device();
    set(Fault::Nothing);
    let decoder = decoder(&device, LaneSettings::default());
    assert!(decode(&decoder, &recipe()).unwrap() == recipe().tensor().data);
    set(fault);
    let error = decode(&decoder, &recipe()).expect_err(&format!("{fault:?}"));
    set(Fault::Nothing);
    assert!(decode(&decoder, &recipe()).unwrap() == recipe().tensor().data, "after {fault:?}");
    error
}

#[test]
fn streams_that_are_not_what_the_blob_says_are_refused() {
    for (fault, said) in [
        (Fault::Width, "272 × 256, not 256 × 256"),
        (Fault::Depth, "depth"),
        (Fault::Change, "change"),
        (Fault::Missing, "missing"),
        (Fault::Twice, "more pictures"),
        (Fault::Status(8), "found an error"),
        (Fault::Status(9), "covered it up"),
        (Fault::Sample, "other samples"),
    ] {
        let error = fails(fault);
        assert!(matches!(error, Error::Stream { standard: Standard::H265, .. }), "{fault:?}: {error}");
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains(said), "{fault:?}: {error}");
    }
}

#[test]
fn what_the_driver_reports_has_its_name() {
    let error = fails(Fault::Map(205));
    assert!(
        error.to_string().contains("cuvidMapVideoFrame64 failed: CUDA_ERROR_MAP_FAILED (205)"),
        "{error}"
    );
    let lost = fails(Fault::Map(719));
    assert!(matches!(lost, Error::Cuda(tenfold_cuda::Error::DeviceLost(_))), "{lost}");
    let _turn = turn(Fault::Create(2));
    let device = device();
    let decoder = decoder(&device, LaneSettings::default());
    assert_eq!(decode(&decoder, &recipe()).unwrap_err().kind(), ErrorKind::Limit);
}

#[test]
fn what_no_engine_does_is_said() {
    let _turn = turn(Fault::Small);
    let device = device();
    // The driver is asked once, so a lane that met larger engines would not see this.
    let small = decoder(&device, LaneSettings::default());
    let large = decode(&small, &recipe()).map(|_| ()).unwrap_err();
    assert!(matches!(&large, Error::Unsupported(s) if s.contains("256 × 256")), "{large}");
    set(Fault::Unsupported);
    let none = Decoder::with_api(fake::cuvid(), &device, LaneSettings::default()).map(|_| ());
    assert!(matches!(none, Err(Error::NoEngine(_))));
    // Gray pictures without chroma are for other decoders.
    set(Fault::Nothing);
    let decoder = decoder(&device, LaneSettings::default());
    let gray = tenfold_video::codec::Format { chroma: tenfold_video::Chroma::None, ..FORMAT };
    let unit = access_unit(1);
    let mut out = vec![0; FORMAT.samples()];
    let refused = decoder.decode_samples(Standard::H265, &gray, &parameter_sets(), &[&unit], &mut out);
    assert!(refused.is_err());
}

#[test]
fn damage_is_found_before_anything_is_sent() {
    let _turn = turn(Fault::Nothing);
    let device = device();
    let decoder = decoder(&device, LaneSettings::default());
    let blob = recipe().blob();
    for at in 0..blob.len() {
        let mut bad = blob.clone();
        bad[at] ^= 0x10;
        let info = tenfold::inspect(&bad);
        // A header of another shape asks for other memory; what decodes must be what was written.
        if info.is_ok_and(|i| i.shape == [1280, 256] && i.dtype == Dtype::Bf16) {
            let error = decode_as(&decoder, &bad, Dtype::Bf16).expect_err("a flipped bit");
            assert_eq!(error.kind(), ErrorKind::Data, "byte {at}: {error}");
        }
    }
    for len in 0..blob.len() {
        let memory = Buffer::new(&device, 1280 * 256 * 2).unwrap();
        let output = Output { memory: memory.slice(), dtype: Dtype::Bf16 };
        // SAFETY: the buffer outlives the call.
        let cut = unsafe {
            decoder.decode_into(&blob[..len], output, &DecodeOptions::default(), CudaStream::DEFAULT)
        };
        assert!(cut.is_err(), "{len} bytes");
    }
    assert_eq!(world().packets, 0);
    // Parameter sets of pictures of another size, and a second set in mid-stream.
    let other = tenfold_video::codec::Format { width: 128, ..FORMAT };
    let unit = access_unit(1);
    let mut out = vec![0; other.samples()];
    assert!(decoder.decode_samples(Standard::H265, &other, &parameter_sets(), &[&unit], &mut out).is_err());
    let changed = [parameter_sets(), unit].concat();
    let mut out = vec![0; FORMAT.samples()];
    assert!(
        decoder.decode_samples(Standard::H265, &FORMAT, &parameter_sets(), &[&changed], &mut out).is_err()
    );
    assert_eq!(world().packets, 0);
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    let _turn = turn(Fault::Nothing);
    let device = device();
    let decoder = decoder(&device, LaneSettings::default());
    let memory = Buffer::new(&device, 1280 * 256 * 4).unwrap();
    let try_it = |at: usize, len: usize, dtype: Dtype| {
        let output = Output { memory: memory.slice().part(at, len).unwrap(), dtype };
        let options = DecodeOptions::default();
        // SAFETY: the buffer outlives the call.
        unsafe { decoder.decode_into(&recipe().blob(), output, &options, CudaStream::DEFAULT) }
    };
    let bytes = 1280 * 256 * 2;
    assert!(try_it(0, bytes, Dtype::Bf16).is_ok());
    for (at, len, dtype) in
        [(0, bytes - 2, Dtype::Bf16), (2, bytes, Dtype::Bf16), (0, bytes, Dtype::I16), (0, bytes, Dtype::F32)]
    {
        assert_eq!(try_it(at, len, dtype).unwrap_err().kind(), ErrorKind::Caller);
    }
    // A blob of tenfold's own codec is for another decoder.
    let view = tenfold::TensorView::from_slice(&[1f32; 64], &[8, 8]).unwrap();
    let native = tenfold::encode(&view, &tenfold::EncodeOptions::new(tenfold::Goal::Bits(3.0))).unwrap();
    assert!(decode_as(&decoder, &native, Dtype::F32).is_err());
}

#[test]
fn an_engine_that_does_not_answer_times_out() {
    let slow = Duration::from_secs(3);
    let _turn = turn(Fault::Slow(slow));
    let device = device();
    let patience = Duration::from_secs(1);
    let decoder = decoder(&device, LaneSettings::default().with_lanes(1).with_patience(patience));
    let recipe = Recipe::new(Dtype::Bf16, 64, 256, Some(Scaling::Tensor));
    let error = decode(&decoder, &recipe).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Environment);
    // The lane comes back, and is good for the next. A busy machine may need several seconds for that.
    set(Fault::Nothing);
    let found = (0..30).find_map(|_| decode(&decoder, &recipe).ok());
    assert!(found == Some(recipe.tensor().data));
}
