//! What a session is set up for: presets out, settings in.

use tenfold::Effort;
use tenfold_nvcodec::nvenc::abi::{
    Config, Guid, InitializeParams, PresetConfig, ReconfigureParams, Versioned, av1, codec, format, h264,
    hevc, preset, profile, status,
};
use tenfold_video::Standard;
use tenfold_video::codec::{Chroma, Format, Quality, Settings};

use super::check_version;
use super::limits::{Limits, limits};
use super::session::{Session, Setup};
use crate::faults::{self, Fault};

/// A preset as NVIDIA's are: made for film, so that a caller must change what it wants otherwise.
pub(super) fn fill_preset(of: Guid, quality: Guid, tuning: u32, out: &mut PresetConfig) -> Result<(), i32> {
    const CALL: &str = "NvEncGetEncodePresetConfigEx";
    check_version::<PresetConfig>(CALL, out.version)?;
    check_version::<Config>(CALL, out.config.version)?;
    if limits(of).is_none()
        || ![preset::P1, preset::P4, preset::P7].contains(&quality)
        || !(1..=4).contains(&tuning)
    {
        return Err(status::UNSUPPORTED_PARAM);
    }
    let config = &mut out.config;
    *config = Config::versioned();
    (config.gop_length, config.frame_interval_p, config.frame_field_mode) = (250, 3, 1);
    config.rc.version = tenfold_nvcodec::nvenc::abi::RcParams::VERSION;
    // A variable bit rate with adaptive quantisers and lookahead.
    (config.rc.rate_control_mode, config.rc.average_bit_rate, config.rc.flags) =
        (1, 10_000_000, 1 << 3 | 1 << 5);
    config.rc.lookahead_depth = 16;
    match of {
        codec::H264 => config.codec.h264.chroma_format_idc = 1,
        codec::HEVC => config.codec.hevc.flags = hevc::CHROMA_420,
        _ => config.codec.av1.flags = av1::CHROMA_420,
    }
    Ok(())
}

/// Checks what a session shall be, and keeps it.
///
/// # Safety
/// `params` points to its configuration.
pub(super) unsafe fn initialize(session: &mut Session, params: &InitializeParams) -> Result<(), i32> {
    const CALL: &str = "NvEncInitializeEncoder";
    if session.setup.is_some() {
        return Err(
            session.refuse(status::INVALID_CALL, &format!("{CALL}: the session is initialised already"))
        );
    }
    if faults::happens(Fault::InitializeFails) {
        return Err(session.fail(status::GENERIC, "the engine did not start"));
    }
    // SAFETY: the caller's promise.
    session.setup = Some(unsafe { read(session, params, CALL)? });
    Ok(())
}

/// Changes what may change: the quantiser.
///
/// # Safety
/// As of [`initialize`].
pub(super) unsafe fn reconfigure(session: &mut Session, params: &ReconfigureParams) -> Result<(), i32> {
    const CALL: &str = "NvEncReconfigureEncoder";
    check_version::<ReconfigureParams>(CALL, params.version)?;
    let old = session.setup(CALL)?;
    if faults::happens(Fault::ReconfigureFails) {
        return Err(session.fail(status::UNSUPPORTED_PARAM, "this cannot be changed"));
    }
    // SAFETY: the caller's promise.
    let new = unsafe { read(session, &params.init, CALL)? };
    if new.codec != old.codec || new.settings.format != old.settings.format {
        return Err(session.refuse(status::INVALID_PARAM, &format!("{CALL}: another codec or picture")));
    }
    if !session.order.is_empty() {
        return Err(session.refuse(status::INVALID_CALL, &format!("{CALL}: pictures wait")));
    }
    session.setup = Some(new);
    session.pictures = 0;
    Ok(())
}

unsafe fn read(session: &mut Session, params: &InitializeParams, call: &str) -> Result<Setup, i32> {
    check_version::<InitializeParams>(call, params.version)?;
    let mut refuse = |what: &str| session.refuse(status::INVALID_PARAM, &format!("{call}: {what}"));
    let limits = limits(params.codec).ok_or_else(|| refuse("an unknown codec"))?;
    if params.enable_encode_async != 0 {
        return Err(refuse("events are for Windows"));
    }
    if params.enable_ptd != 1 || params.frame_rate_num == 0 || params.frame_rate_den == 0 {
        return Err(refuse("no decision on picture types, or no frame rate"));
    }
    let (width, height) = (params.width, params.height);
    if width < limits.min.0 || height < limits.min.1 || width.max(height) > limits.max {
        let what = format!("pictures of {width} x {height}");
        return Err(session.fail(status::UNSUPPORTED_PARAM, &what));
    }
    let effort = match params.preset {
        preset::P1 => Effort::Fast,
        preset::P4 => Effort::Balanced,
        preset::P7 => Effort::Best,
        _ => return Err(refuse("an unknown preset")),
    };
    if !(1..=4).contains(&params.tuning) {
        return Err(refuse("no tuning"));
    }
    // SAFETY: the caller's promise.
    let config = unsafe { params.config.as_ref() }.ok_or_else(|| refuse("no configuration"))?;
    check_version::<Config>(call, config.version)?;
    if config.gop_length != 1 || config.frame_interval_p > 1 {
        let what = "this library has intra pictures alone";
        return Err(session.fail(status::UNSUPPORTED_PARAM, what));
    }
    if config.rc.rate_control_mode != 0 || config.rc.flags != 0 {
        let what = "this library has a constant quantiser alone";
        return Err(session.fail(status::UNSUPPORTED_PARAM, what));
    }
    let (depth, repeats_sets, bypass) = options(&limits, config).map_err(&mut refuse)?;
    let lossless = params.tuning == InitializeParams::LOSSLESS;
    let qp = config.rc.const_qp.intra;
    if lossless && (!limits.lossless || qp != 0 || (limits.standard == Standard::H264 && !bypass)) {
        return Err(refuse("lossless coding without all that it takes"));
    }
    if qp > if limits.standard == Standard::Av1 { 255 } else { 51 } {
        return Err(refuse("a quantiser beyond the largest"));
    }
    let chroma = if config.monochrome_encoding != 0 { Chroma::None } else { Chroma::Constant };
    if chroma == Chroma::None && limits.value(tenfold_nvcodec::nvenc::abi::caps::MONOCHROME) == 0 {
        return Err(refuse("luma alone"));
    }
    let format = Format { width: width as usize, height: height as usize, depth, chroma };
    let quality = if lossless { Quality::Lossless } else { Quality::Qp(qp) };
    Ok(Setup {
        codec: params.codec,
        standard: limits.standard,
        settings: Settings { format, quality, effort, inter: false },
        format: if depth == 8 { format::NV12 } else { format::P010 },
        repeats_sets,
    })
}

/// Depth, whether parameter sets are repeated, whether transforms are bypassed.
fn options(limits: &Limits, config: &Config) -> Result<(u8, bool, bool), &'static str> {
    // SAFETY: the standard says which of the three it is; all bits are numbers.
    unsafe {
        match limits.standard {
            Standard::H264 => {
                let options = &config.codec.h264;
                let bypass = options.flags & h264::TRANSFORM_BYPASS != 0;
                let profile = if bypass { profile::H264_HIGH_444 } else { profile::H264_HIGH };
                if config.profile != profile || options.chroma_format_idc != 1 || options.idr_period != 1 {
                    return Err("a profile, chroma or IDR period that does not fit");
                }
                Ok((8, options.flags & h264::REPEAT_SETS != 0, bypass))
            }
            Standard::H265 => {
                let options = &config.codec.hevc;
                let ten = options.flags & hevc::DEPTH == hevc::DEPTH_10;
                let profile = if ten { profile::HEVC_MAIN10 } else { profile::HEVC_MAIN };
                let chroma = options.flags & hevc::CHROMA_FORMAT;
                if config.profile != profile || chroma != hevc::CHROMA_420 || options.idr_period != 1 {
                    return Err("a profile, chroma or IDR period that does not fit");
                }
                Ok((if ten { 10 } else { 8 }, options.flags & hevc::REPEAT_SETS != 0, false))
            }
            Standard::Av1 => {
                let options = &config.codec.av1;
                let ten = options.flags & av1::DEPTH == av1::DEPTH_10;
                let input = options.flags & av1::INPUT_DEPTH == av1::INPUT_DEPTH_10;
                let chroma = options.flags & av1::CHROMA_FORMAT;
                if config.profile != profile::AV1_MAIN || chroma != av1::CHROMA_420 || ten != input {
                    return Err("a profile, chroma or depth that does not fit");
                }
                if options.idr_period != 1 || options.flags & av1::ANNEX_B != 0 {
                    return Err("an IDR period or framing that tenfold has no use for");
                }
                Ok((if ten { 10 } else { 8 }, options.flags & av1::REPEAT_HEADER != 0, false))
            }
        }
    }
}
