//! NVENC: pictures coded by the GPU's encoding engines.
//!
//! `api` binds the driver's library, `handle` is an open session, `setup` what it is told, `slot` and `session` a ring of pictures
//! on their way through it, `pool` the sessions of a device, [`Encoder`] what callers see. `adapter` makes it one encoder of
//! `tenfold-video` among others.
//!
//! Data-centre GPUs have no encoding engine, and none of the machines that tenfold was developed on has one: a stand-in library
//! holds every call against NVIDIA's rules, and codes in software. `tenfold engines --selftest` tests a real engine.

#[doc(hidden)]
pub mod abi;
mod adapter;
mod api;
mod caps;
mod encoder;
mod handle;
mod pool;
mod session;
mod setup;
mod slot;

use tenfold_cuda::Device;

pub(crate) use adapter::register;
#[doc(hidden)]
pub use adapter::use_device;
pub(crate) use adapter::use_encoder;
pub use caps::Encodes;
pub use encoder::{Encoder, Lane};

use crate::error::Result;

/// How many sessions of encoders can be open at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sessions {
    /// Those that the driver opened beside what other programs have.
    pub free: u32,
    /// Whether it refused another; otherwise there was no need to ask for more.
    pub limited: bool,
}

/// Counts the sessions that can be opened now: no driver tells its limit, so they are opened, up to `most`, and closed. Fails as
/// [`encodes`] does.
pub fn sessions(device: &Device, most: u32) -> Result<Sessions> {
    let api = api::Nvenc::get()?;
    let mut open = Vec::new();
    while open.len() < most as usize {
        match handle::Handle::open(api, device)? {
            handle::Opened::Open(handle) => open.push(handle),
            handle::Opened::NoneFree => return Ok(Sessions { free: open.len() as u32, limited: true }),
        }
    }
    Ok(Sessions { free: most, limited: false })
}

/// What the encoding engines of a device can do; an error says why there are none.
pub fn encodes(device: &Device) -> Result<Vec<Encodes>> {
    encoder::ask(device)
}
