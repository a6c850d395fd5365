//! Every encoder and decoder of this build, and the choice among them.

use std::sync::{PoisonError, RwLock};

use crate::codec::{Decoder, Encoder, Standard};
use crate::error::{Error, Result};

/// Codecs of other crates.
static ADDED: RwLock<Added> = RwLock::new(Added { encoders: Vec::new(), decoders: Vec::new() });

struct Added {
    encoders: Vec<&'static dyn Encoder>,
    decoders: Vec<&'static dyn Decoder>,
}

/// Makes encoders of another crate known to this process; they come after those of this build.
pub fn add_encoders(encoders: &[&'static dyn Encoder]) {
    ADDED.write().unwrap_or_else(PoisonError::into_inner).encoders.extend(encoders);
}

/// Makes decoders of another crate known to this process; they come after those of this build.
pub fn add_decoders(decoders: &[&'static dyn Decoder]) {
    ADDED.write().unwrap_or_else(PoisonError::into_inner).decoders.extend(decoders);
}

/// Features that would bring a codec.
fn features(standard: Standard) -> &'static str {
    match standard {
        Standard::Av1 => "`av1` (permissive licences, no system package) or `video` (the system's FFmpeg)",
        _ => "`video` (the system's FFmpeg)",
    }
}

/// Every encoder of this build, whether or not this machine can run it; the preferred first.
pub fn encoders() -> Vec<&'static dyn Encoder> {
    let routes: &[&[&'static dyn Encoder]] = &[
        #[cfg(feature = "video")]
        &crate::codec::libav::encoders().iter().map(|e| e as &dyn Encoder).collect::<Vec<_>>(),
        #[cfg(feature = "av1")]
        &[&crate::codec::av1::Rav1e],
    ];
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    routes.iter().copied().chain([&added.encoders[..]]).flatten().copied().collect()
}

/// Every decoder of this build, whether or not this machine can run it; the preferred first.
pub fn decoders() -> Vec<&'static dyn Decoder> {
    let routes: &[&[&'static dyn Decoder]] = &[
        #[cfg(feature = "video")]
        &crate::codec::libav::decoders().iter().map(|d| d as &dyn Decoder).collect::<Vec<_>>(),
        #[cfg(feature = "av1")]
        &[&crate::codec::av1::Rav1d],
    ];
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    routes.iter().copied().chain([&added.decoders[..]]).flatten().copied().collect()
}

/// The encoder of a name, or the first that runs here.
pub(crate) fn encoder(standard: Standard, name: Option<&str>) -> Result<&'static dyn Encoder> {
    let all: Vec<_> = encoders().into_iter().filter(|e| e.standard() == standard).collect();
    let names = || all.iter().map(|e| e.name()).collect::<Vec<_>>().join(", ");
    choose(&all, standard, "encoder", name, |e| e.name(), |e| e.abilities().map(|_| ()), names)
}

/// The decoder of a name, or the first that runs here.
pub(crate) fn decoder(standard: Standard, name: Option<&str>) -> Result<&'static dyn Decoder> {
    let all: Vec<_> = decoders().into_iter().filter(|d| d.standard() == standard).collect();
    let names = || all.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ");
    choose(&all, standard, "decoder", name, |d| d.name(), |d| d.probe(), names)
}

fn choose<T: Copy>(
    all: &[T],
    standard: Standard,
    role: &'static str,
    name: Option<&str>,
    name_of: impl Fn(T) -> &'static str,
    probe: impl Fn(T) -> Result<()>,
    names: impl Fn() -> String,
) -> Result<T> {
    if all.is_empty() {
        return Err(Error::NotBuilt { standard, role, features: features(standard) });
    }
    if let Some(name) = name {
        let found = all.iter().copied().find(|&c| name_of(c) == name);
        let found = found.ok_or_else(|| Error::Refused {
            name: name.to_string(),
            reason: format!("this build has no {standard} {role} of that name; it has: {}", names()),
        })?;
        return probe(found).map(|()| found);
    }
    let mut first = None;
    for &candidate in all {
        match probe(candidate) {
            Ok(()) => return Ok(candidate),
            Err(e) => first = first.or(Some(e)),
        }
    }
    Err(first.unwrap_or(Error::NotBuilt { standard, role, features: features(standard) }))
}
