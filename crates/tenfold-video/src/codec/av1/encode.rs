//! Encoding with `rav1e`.
//!
//! All that is made for the eye is off: no psycho-visual tuning, no segmentation, no CDEF, no loop
//! restoration, no grain. The deblocking filter has no switch; its level is left to the search by squared
//! error, which ends at none on noise (the fast presets would derive a level from the quantiser).

use rav1e::prelude::{
    BlockSize, ChromaSampling, Config, Context, EncoderConfig, EncoderStatus, Frame, Packet, PartitionRange,
    Pixel, PixelRange, SceneDetectionSpeed, SegmentationLevel, SpeedSettings, Tune,
};
use tenfold::Effort;

use crate::codec::stream::obu::{Units, kind};
use crate::codec::{Abilities, Chroma, Coded, Encoder, Format, Quality, Settings, Standard};
use crate::error::{Error, Result};

const NAME: &str = "rav1e";
/// The library's own lower limit.
const MIN_SIDE: usize = 16;
/// The standard's limit is 65536; this one keeps a picture's working memory in bounds.
const MAX_SIDE: usize = 8192;
const MAX_QP: u32 = 255;

/// The encoder `rav1e`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rav1e;

impl Encoder for Rav1e {
    fn name(&self) -> &'static str {
        NAME
    }

    fn standard(&self) -> Standard {
        Standard::Av1
    }

    fn abilities(&self) -> Result<Abilities> {
        Ok(Abilities {
            depths: vec![8, 10, 12],
            chroma: vec![Chroma::None, Chroma::Constant],
            qp: 0..=MAX_QP,
            lossless: false,
            min_side: MIN_SIDE,
            max_side: MAX_SIDE,
        })
    }

    fn encode(&self, settings: &Settings, pictures: &[&[u16]]) -> Result<Coded> {
        let config = configure(settings)?;
        check_pictures(&settings.format, pictures)?;
        if settings.format.depth == 8 {
            encode_as::<u8>(&config, settings, pictures)
        } else {
            encode_as::<u16>(&config, settings, pictures)
        }
    }
}

fn refused(reason: impl Into<String>) -> Error {
    Error::Refused { name: NAME.into(), reason: reason.into() }
}

fn failed(reason: impl Into<String>) -> Error {
    Error::Codec { name: NAME.into(), reason: reason.into() }
}

fn configure(settings: &Settings) -> Result<Config> {
    let Format { width, height, depth, chroma } = settings.format;
    let sides = MIN_SIDE..=MAX_SIDE;
    if !sides.contains(&width) || !sides.contains(&height) {
        let limits = format!("sides are {MIN_SIDE} to {MAX_SIDE}");
        return Err(refused(format!("pictures of {width} × {height}; {limits}")));
    }
    if ![8, 10, 12].contains(&depth) {
        return Err(refused(format!("samples of {depth} bits")));
    }
    let qp = match settings.quality {
        Quality::Qp(qp) if qp <= MAX_QP => qp,
        Quality::Qp(qp) => return Err(refused(format!("quantiser {qp}; the largest is {MAX_QP}"))),
        Quality::Lossless => return Err(refused("it has no lossless mode")),
    };

    let mut config = EncoderConfig {
        width,
        height,
        bit_depth: usize::from(depth),
        chroma_sampling: match chroma {
            Chroma::None => ChromaSampling::Cs400,
            Chroma::Constant => ChromaSampling::Cs420,
        },
        pixel_range: PixelRange::Full,
        quantizer: qp as usize,
        tune: Tune::Psnr,
        low_latency: true,
        // A still's header is the shortest, and its bytes do not depend on its place in a sequence. Decoders in hardware,
        // which chroma is for, are made for sequences.
        still_picture: !settings.inter && chroma == Chroma::None,
        speed_settings: search(settings.effort),
        ..EncoderConfig::default()
    };
    // Nothing but the first picture is a key frame where prediction is on.
    config.set_key_frame_interval(0, 0);
    Ok(Config::new().with_encoder_config(config).with_threads(1))
}

/// What is searched. On noise the library's own presets from 10 down to 6 give the same bits at a third of
/// the speed; what pays is to let smaller blocks choose their transform. Blocks of 64 are never allowed: of
/// their transform AV1 keeps only the lower quarter.
fn search(effort: Effort) -> SpeedSettings {
    let mut speed = SpeedSettings::from_preset(10);
    let (smallest, largest) = match effort {
        Effort::Fast => (BlockSize::BLOCK_32X32, BlockSize::BLOCK_32X32),
        Effort::Balanced => (BlockSize::BLOCK_16X16, BlockSize::BLOCK_16X16),
        Effort::Best => (BlockSize::BLOCK_8X8, BlockSize::BLOCK_16X16),
    };
    speed.partition.partition_range = PartitionRange::new(smallest, largest);
    speed.transform.rdo_tx_decision = effort != Effort::Fast;
    speed.scene_detection_mode = SceneDetectionSpeed::None;
    speed.rdo_lookahead_frames = 1;
    speed.segmentation = SegmentationLevel::Disabled;
    speed.fast_deblock = false;
    speed.cdef = false;
    speed.lrf = false;
    speed
}

fn check_pictures(format: &Format, pictures: &[&[u16]]) -> Result<()> {
    if pictures.is_empty() {
        return Err(refused("no pictures"));
    }
    let largest = (1u16 << format.depth) - 1;
    for picture in pictures {
        if picture.len() != format.samples() {
            let want = format.samples();
            return Err(refused(format!("a picture of {} samples; the format has {want}", picture.len())));
        }
        if let Some(s) = picture.iter().find(|&&s| s > largest) {
            return Err(refused(format!("a sample of {s} at {} bits", format.depth)));
        }
    }
    Ok(())
}

fn encode_as<T: Pixel>(config: &Config, settings: &Settings, pictures: &[&[u16]]) -> Result<Coded> {
    // A context codes one still, or any number of pictures that lean on each other.
    let group = if settings.inter { pictures.len() } else { 1 };
    let mut coded = Coded { parameter_sets: Vec::new(), pictures: Vec::with_capacity(pictures.len()) };
    for group in pictures.chunks(group) {
        for packet in encode_group::<T>(config, &settings.format, group)? {
            let picture = cut(&packet.data, &mut coded.parameter_sets)?;
            coded.pictures.push(picture);
        }
    }
    Ok(coded)
}

/// The packets of pictures that may be predicted from each other, one a picture and in their order.
fn encode_group<T: Pixel>(config: &Config, format: &Format, pictures: &[&[u16]]) -> Result<Vec<Packet<T>>> {
    let mut context: Context<T> = config.new_context().map_err(|e| refused(e.to_string()))?;
    let mut packets = Vec::with_capacity(pictures.len());
    for picture in pictures {
        let frame = fill(context.new_frame(), format, picture);
        context.send_frame(frame).map_err(|e| failed(e.to_string()))?;
        receive(&mut context, &mut packets)?;
    }
    context.flush();
    receive(&mut context, &mut packets)?;
    let in_order = packets.iter().enumerate().all(|(i, p)| p.input_frameno == i as u64);
    if packets.len() != pictures.len() || !in_order {
        return Err(failed(format!("{} packets for {} pictures", packets.len(), pictures.len())));
    }
    Ok(packets)
}

fn receive<T: Pixel>(context: &mut Context<T>, packets: &mut Vec<Packet<T>>) -> Result<()> {
    loop {
        match context.receive_packet() {
            Ok(packet) => packets.push(packet),
            Err(EncoderStatus::Encoded) => {}
            Err(EncoderStatus::NeedMoreData | EncoderStatus::LimitReached) => return Ok(()),
            Err(e) => return Err(failed(e.to_string())),
        }
    }
}

fn fill<T: Pixel>(mut frame: Frame<T>, format: &Format, samples: &[u16]) -> Frame<T> {
    let (luma, chroma) = frame.planes.split_at_mut(1);
    for (row, source) in luma[0].rows_iter_mut().zip(samples.chunks_exact(format.width)) {
        for (to, &from) in row.iter_mut().zip(source) {
            *to = T::cast_from(from);
        }
    }
    let middle = T::cast_from(1u16 << (format.depth - 1));
    for plane in chroma {
        plane.data_origin_mut().fill(middle);
    }
    frame
}

/// The picture's units of a temporal unit. The sequence header goes to `header`, or must be the one there.
fn cut(packet: &[u8], header: &mut Vec<u8>) -> Result<Vec<u8>> {
    let mut picture = Vec::with_capacity(packet.len());
    for unit in Units::new(packet) {
        let unit = unit.map_err(failed)?;
        match unit.kind {
            kind::TEMPORAL_DELIMITER => {}
            kind::SEQUENCE_HEADER if header.is_empty() => header.extend_from_slice(unit.whole),
            kind::SEQUENCE_HEADER if header == unit.whole => {}
            kind::SEQUENCE_HEADER => return Err(failed("the sequence header changed between pictures")),
            _ => picture.extend_from_slice(unit.whole),
        }
    }
    Ok(picture)
}
