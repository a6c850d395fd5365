//! What a session is told: intra pictures alone, a constant quantiser, nothing that serves eyes.

use tenfold::Effort;
use tenfold_video::codec::{Chroma, Quality, Settings};
use tenfold_video::{Error as VideoError, Standard};

use super::abi::{
    Config, Guid, InitializeParams, PresetConfig, Qp, RcParams, Versioned, av1, format, h264, hevc, preset,
    profile,
};
use super::caps::{Encodes, codec_of};
use super::handle::Handle;
use crate::error::{Error, Result};

/// The largest quantiser of a standard.
pub(super) fn max_qp(standard: Standard) -> u32 {
    if standard == Standard::Av1 { 255 } else { 51 }
}

fn refused(reason: String) -> Error {
    VideoError::Refused { name: "nvenc".into(), reason }.into()
}

/// Holds settings against what the engine can do.
pub(super) fn check(can: &Encodes, settings: &Settings) -> Result<()> {
    let picture = settings.format;
    let fits = |side: usize, min: u32, max: u32| (min as usize..=max as usize).contains(&side);
    if !fits(picture.width, can.min.0, can.max.0) || !fits(picture.height, can.min.1, can.max.1) {
        let (min, max) = (can.min, can.max);
        return Err(refused(format!(
            "pictures of {} × {}; this GPU's {} go from {} × {} to {} × {}",
            picture.width, picture.height, can.standard, min.0, min.1, max.0, max.1
        )));
    }
    if !(picture.width.is_multiple_of(2) && picture.height.is_multiple_of(2)) {
        return Err(refused("pictures with odd sides".into()));
    }
    match picture.depth {
        8 => {}
        10 if can.ten_bits => {}
        depth => return Err(refused(format!("{} of {depth} bits", can.standard))),
    }
    if picture.chroma == Chroma::None && !can.monochrome {
        return Err(refused("pictures of luma alone (4:0:0)".into()));
    }
    if settings.inter {
        return Err(refused("pictures that are predicted from others".into()));
    }
    match settings.quality {
        Quality::Lossless if !can.lossless => Err(refused(format!("lossless {}", can.standard))),
        Quality::Qp(qp) if qp > max_qp(can.standard) => {
            Err(refused(format!("a quantiser of {qp}; the coarsest is {}", max_qp(can.standard))))
        }
        _ => Ok(()),
    }
}

/// NVIDIA's layout for pictures of a depth.
pub(super) fn layout(depth: u8) -> u32 {
    if depth == 8 { format::NV12 } else { format::P010 }
}

fn preset_of(effort: Effort) -> Guid {
    match effort {
        Effort::Fast => preset::P1,
        Effort::Balanced => preset::P4,
        Effort::Best => preset::P7,
    }
}

/// All that a session is initialised with; the parameters point to the configuration beside them.
pub(super) struct Setup {
    config: Box<Config>,
    params: InitializeParams,
}

impl Setup {
    /// Starts from the preset and changes what tensors want otherwise.
    pub(super) fn new(handle: &Handle, standard: Standard, settings: &Settings) -> Result<Setup> {
        let lossless = settings.quality == Quality::Lossless;
        let tuning = if lossless { InitializeParams::LOSSLESS } else { InitializeParams::HIGH_QUALITY };
        let (codec, preset) = (codec_of(standard), preset_of(settings.effort));
        let mut found = PresetConfig::versioned();
        found.config.version = Config::VERSION;
        // SAFETY: the structure lives through the call.
        let code = unsafe {
            (handle.api.get_encode_preset_config_ex)(handle.raw, codec, preset, tuning, &mut found)
        };
        handle.check("NvEncGetEncodePresetConfigEx", code)?;
        let mut config = Box::new(found.config);
        config.version = Config::VERSION;
        // Every picture is an IDR picture.
        (config.gop_length, config.frame_interval_p) = (1, 0);
        config.frame_field_mode = 1;
        config.monochrome_encoding = (settings.format.chroma == Chroma::None).into();
        let qp = match settings.quality {
            Quality::Qp(qp) => qp,
            Quality::Lossless => 0,
        };
        // No adaptive quantiser and no lookahead either: the bits of a picture depend on it alone.
        config.rc =
            RcParams { const_qp: Qp { inter_p: qp, inter_b: qp, intra: qp }, ..RcParams::versioned() };
        set_options(&mut config, standard, settings.format.depth, lossless);
        let (width, height) = (settings.format.width as u32, settings.format.height as u32);
        let params = InitializeParams {
            codec,
            preset,
            width,
            height,
            dar_width: width,
            dar_height: height,
            frame_rate_num: 30,
            frame_rate_den: 1,
            enable_ptd: 1,
            // Engines take whole pictures: parts would be slices, which cost bits.
            flags: if standard == Standard::H264 { 0 } else { InitializeParams::SPLIT_DISABLED },
            tuning,
            ..InitializeParams::versioned()
        };
        Ok(Setup { config, params })
    }

    /// The parameters, good as long as this is borrowed.
    pub(super) fn params(&mut self) -> InitializeParams {
        InitializeParams { config: &raw mut *self.config, ..self.params }
    }
}

/// The codec's own options.
fn set_options(config: &mut Config, standard: Standard, depth: u8, lossless: bool) {
    // SAFETY: the preset filled in the options of this standard, all of which are numbers and pointers.
    unsafe {
        match standard {
            Standard::H264 => {
                let options = &mut config.codec.h264;
                config.profile = if lossless { profile::H264_HIGH_444 } else { profile::H264_HIGH };
                options.flags &= !(h264::OUTPUT_AUD | h264::REPEAT_SETS | h264::TRANSFORM_BYPASS);
                options.flags |= if lossless { h264::TRANSFORM_BYPASS } else { 0 };
                (options.idr_period, options.chroma_format_idc) = (1, 1);
                options.disable_deblocking_filter_idc = 1;
                // CABAC.
                options.entropy_coding_mode = 1;
                (options.slice_mode, options.slice_mode_data) = (3, 1);
            }
            Standard::H265 => {
                let options = &mut config.codec.hevc;
                config.profile = if depth == 10 { profile::HEVC_MAIN10 } else { profile::HEVC_MAIN };
                options.flags &= !(hevc::OUTPUT_AUD | hevc::REPEAT_SETS | hevc::CHROMA_FORMAT | hevc::DEPTH);
                options.flags |= hevc::CHROMA_420 | if depth == 10 { hevc::DEPTH_10 } else { 0 };
                options.idr_period = 1;
                (options.slice_mode, options.slice_mode_data) = (3, 1);
            }
            Standard::Av1 => {
                let options = &mut config.codec.av1;
                config.profile = profile::AV1_MAIN;
                let kept =
                    !(av1::ANNEX_B | av1::REPEAT_HEADER | av1::CHROMA_FORMAT | av1::DEPTH | av1::INPUT_DEPTH);
                options.flags &= kept;
                let ten = if depth == 10 { av1::DEPTH_10 | av1::INPUT_DEPTH_10 } else { 0 };
                options.flags |= av1::CHROMA_420 | ten;
                options.idr_period = 1;
                // The full range, as the software encoder has it.
                options.color_range = 1;
            }
        }
    }
}
