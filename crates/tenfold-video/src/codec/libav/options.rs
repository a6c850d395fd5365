//! What each encoder is told in its own words.
//!
//! Always: one thread, a fixed quantiser for every picture, and nothing that serves eyes at the cost of squared
//! error: no loop filters, no psycho-visual terms, no adaptive quantiser. The effort picks the preset.

use tenfold::Effort;

use super::super::{Quality, Settings};
use super::spec::LibavEncoder;

/// Options of an encoder for some settings.
pub(super) fn list(encoder: &LibavEncoder, settings: &Settings) -> Vec<(&'static str, String)> {
    match (encoder.name, encoder.library) {
        (_, "libx264") => x264(settings),
        (_, "libx265") => x265(settings),
        (_, "libaom-av1") => aom(settings),
        (_, "libsvtav1") => svt(settings),
        ("qsv", _) => vec![("preset", pick(settings, ["veryfast", "medium", "veryslow"]))],
        ("amf", _) => {
            let qp = qp(settings).to_string();
            vec![("rc", "cqp".into()), ("qp_i", qp.clone()), ("qp_p", qp)]
        }
        ("vaapi", _) => vec![("rc_mode", "CQP".into())],
        _ => vec![("rc_mode", "cqp".into()), ("qp", qp(settings).to_string())],
    }
}

/// Length of a group of pictures: 1 where each stands alone.
fn keyint(settings: &Settings) -> u32 {
    if settings.inter { 250 } else { 1 }
}

/// The quantiser; lossless modes have options of their own beside it.
pub(super) fn qp(settings: &Settings) -> u32 {
    match settings.quality {
        Quality::Qp(qp) => qp,
        Quality::Lossless => 0,
    }
}

fn is_lossless(settings: &Settings) -> bool {
    settings.quality == Quality::Lossless
}

fn pick(settings: &Settings, [fast, balanced, best]: [&str; 3]) -> String {
    match settings.effort {
        Effort::Fast => fast,
        Effort::Balanced => balanced,
        Effort::Best => best,
    }
    .to_string()
}

/// x264 takes a quantiser of 0 as lossless.
fn x264(settings: &Settings) -> Vec<(&'static str, String)> {
    let parameters = format!(
        "qp={}:keyint={}:scenecut=0:bframes=0:ipratio=1:no-deblock=1:psy=0:aq-mode=0:mbtree=0:weightp=0:\
         rc-lookahead=0:sync-lookahead=0:threads=1:sliced-threads=0",
        qp(settings),
        keyint(settings)
    );
    vec![("preset", pick(settings, ["veryfast", "medium", "slower"])), ("x264-params", parameters)]
}

fn x265(settings: &Settings) -> Vec<(&'static str, String)> {
    let mut parameters = format!(
        "qp={}:keyint={}:min-keyint=1:bframes=0:scenecut=0:ipratio=1:no-sao=1:no-deblock=1:psy-rd=0:\
         psy-rdoq=0:aq-mode=0:cutree=0:no-strong-intra-smoothing=1:no-info=1:pools=none:frame-threads=1:\
         no-wpp=1:log-level=none",
        qp(settings),
        keyint(settings)
    );
    if is_lossless(settings) {
        parameters.push_str(":lossless=1");
    }
    if settings.effort == Effort::Best {
        // What lowers squared error on noise-like pictures beyond the preset: transform skip.
        parameters.push_str(":tskip=1");
    }
    // Larger coding units than this gain nothing on tensors, and small pictures must hold one.
    let side = settings.format.width.min(settings.format.height);
    parameters.push_str(if side < 32 { ":ctu=16" } else { ":ctu=32" });
    vec![("preset", pick(settings, ["ultrafast", "medium", "slow"])), ("x265-params", parameters)]
}

fn aom(settings: &Settings) -> Vec<(&'static str, String)> {
    let mut parameters = "deltaq-mode=0:loopfilter-control=0:enable-qm=0".to_string();
    if is_lossless(settings) {
        parameters.push_str(":lossless=1");
    }
    vec![
        ("usage", if settings.inter { "good" } else { "allintra" }.into()),
        ("cpu-used", pick(settings, ["8", "6", "4"])),
        ("crf", qp(settings).to_string()),
        ("aq-mode", "0".into()),
        ("enable-cdef", "0".into()),
        ("enable-restoration", "0".into()),
        ("lag-in-frames", "0".into()),
        ("tune", "psnr".into()),
        ("aom-params", parameters),
    ]
}

fn svt(settings: &Settings) -> Vec<(&'static str, String)> {
    vec![
        ("preset", pick(settings, ["12", "8", "4"])),
        ("qp", qp(settings).to_string()),
        (
            "svtav1-params",
            "lp=1:rc=0:aq-mode=0:enable-dlf=0:enable-cdef=0:enable-restoration=0:lookahead=0".into(),
        ),
    ]
}
