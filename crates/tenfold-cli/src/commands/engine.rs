//! Opens the engine that `--engine` and `--device` name.

use std::ops::Range;

use tenfold::engine::{Capabilities, Engine, Result, SharedEngine};
use tenfold::format::BlobInfo;
use tenfold::{DecodeOptions, EncodeOptions, Error, Tensor, TensorView};
use tenfold_cuda::CudaEngine;
use tenfold_video::Video;

use crate::args::{EngineArg, EngineArgs};
use crate::exit::Usage;

/// Refuses a device for an engine that has none.
pub fn check(args: &EngineArgs) -> anyhow::Result<()> {
    if args.engine == EngineArg::Cpu && args.device.is_some() {
        return Err(Usage("--device needs --engine cuda".into()).into());
    }
    Ok(())
}

/// The engine that encodes tenfold's own codec. An unavailable one is an error: there is no silent fallback.
pub fn writer(args: &EngineArgs) -> anyhow::Result<SharedEngine> {
    check(args)?;
    Ok(match args.engine {
        EngineArg::Cpu => SharedEngine::default(),
        EngineArg::Cuda => SharedEngine::new(CudaEngine::open(args.device.unwrap_or(0))?),
    })
}

/// An engine that decodes every blob this build can decode, with the engine of `args` for tenfold's own codec.
pub fn reader(args: &EngineArgs, decoder: Option<&str>) -> anyhow::Result<SharedEngine> {
    check(args)?;
    let mut video = Video::reader();
    if let Some(name) = decoder {
        video = video.with_decoder(name);
    }
    Ok(match args.engine {
        EngineArg::Cpu => SharedEngine::new(video),
        EngineArg::Cuda => {
            let first = SharedEngine::new(CudaEngine::open(args.device.unwrap_or(0))?);
            SharedEngine::new(Reader { first, other: SharedEngine::new(video) })
        }
    })
}

/// An engine, and another for the blobs that it cannot decode.
struct Reader {
    first: SharedEngine,
    other: SharedEngine,
}

impl Reader {
    fn ask<T>(&self, blob: &[u8], decode: impl Fn(&dyn Engine) -> Result<T>) -> Result<T> {
        // What has no header that all understand is for the engines to judge.
        if tenfold::inspect(blob).is_ok_and(|info| self.first.can_decode(&info).is_err()) {
            return decode(&*self.other);
        }
        match decode(&*self.first) {
            Err(Error::OtherEngine { .. }) => decode(&*self.other),
            found => found,
        }
    }
}

impl Engine for Reader {
    fn name(&self) -> String {
        self.first.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.first.capabilities()
    }

    fn can_decode(&self, info: &BlobInfo) -> Result<()> {
        self.first.can_decode(info).or_else(|_| self.other.can_decode(info))
    }

    fn encode(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>> {
        self.first.encode(view, options)
    }

    fn decode(&self, blob: &[u8], options: &DecodeOptions) -> Result<Tensor> {
        self.ask(blob, |engine| engine.decode(blob, options))
    }

    fn decode_rows(&self, blob: &[u8], rows: Range<usize>, options: &DecodeOptions) -> Result<Tensor> {
        self.ask(blob, |engine| engine.decode_rows(blob, rows.clone(), options))
    }

    fn verify(&self, blob: &[u8], options: &DecodeOptions) -> Result<()> {
        self.ask(blob, |engine| engine.verify(blob, options))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use tenfold::format::Codec;
    use tenfold::format::carry::Parcel;
    use tenfold::{Dtype, Goal};

    /// The device of this test: reads nothing but its own codec, and says who it was.
    struct Native;

    impl Engine for Native {
        fn name(&self) -> String {
            "native".into()
        }

        fn capabilities(&self) -> Capabilities {
            let mut can = Capabilities::native();
            can.decodes.retain(|codec| *codec != Codec::Layers);
            can
        }

        fn encode(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>> {
            tenfold::encode(view, options)
        }

        fn decode(&self, blob: &[u8], options: &DecodeOptions) -> Result<Tensor> {
            tenfold::format::BlobInfo::read_native(blob, &options.limits)?;
            Err(Error::InvalidArgument("the device was asked".into()))
        }

        fn decode_rows(&self, blob: &[u8], _: Range<usize>, options: &DecodeOptions) -> Result<Tensor> {
            self.decode(blob, options)
        }
    }

    #[test]
    fn native_blobs_go_to_the_device_and_others_to_video() {
        let reader = Reader { first: SharedEngine::new(Native), other: SharedEngine::new(Video::reader()) };
        let options = DecodeOptions::default();
        let view = TensorView::from_slice(&[1.0f32, 2.0], &[2]).unwrap();
        let blob = reader.encode(&view, &EncodeOptions::new(Goal::Lossless)).unwrap();
        let to_device = Error::InvalidArgument("the device was asked".into());
        assert_eq!(reader.decode(&blob, &options).unwrap_err(), to_device);
        assert_eq!(reader.decode_rows(&blob, 0..1, &options).unwrap_err(), to_device);
        assert_eq!(reader.verify(&blob, &options).unwrap_err(), to_device);

        let many: Vec<f32> = (0..600).map(|i| (i as f32).sin()).collect();
        let view = TensorView::from_slice(&many, &[600]).unwrap();
        let layers = EncodeOptions::new(Goal::Bits(3.0)).with_residual(Goal::Bits(3.0));
        let layered = reader.encode(&view, &layers).unwrap();
        assert_eq!(reader.decode(&layered, &options), tenfold::decode(&layered, &options));
        assert_eq!(
            reader.decode_rows(&layered, 0..1, &options),
            tenfold::decode_rows(&layered, 0..1, &options)
        );
        assert_eq!(reader.verify(&layered, &options), Ok(()));

        // No video decoder takes this, but which one refuses it shows who was asked.
        let parcel = Parcel {
            codec: Codec::H265,
            dtype: Dtype::F32,
            shape: vec![2],
            transforms: Vec::new(),
            tile_values: 2,
            params: Vec::new(),
        };
        let pictures = parcel.write(vec![Vec::new()]).unwrap();
        let found = reader.decode(&pictures, &options);
        assert_eq!(found, Video::reader().decode(&pictures, &options));
        assert!(!matches!(found, Err(Error::OtherEngine { .. } | Error::InvalidArgument(_))), "{found:?}");
    }
}
