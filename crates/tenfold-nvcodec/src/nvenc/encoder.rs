//! NVENC of one device: pictures of the host or of the device in, coded pictures out.

use std::sync::Arc;
use std::time::Duration;

use tenfold_cuda::{Device, DeviceSlice, Stream};
use tenfold_video::Standard;
use tenfold_video::codec::{Coded, Settings, stream};

use super::api::Nvenc;
use super::caps::Encodes;
use super::handle::{Handle, Opened};
use super::pool::{Lease, Pool};
use super::session::DEPTH;
use super::setup;
use crate::error::{Error, Result};

/// How long to wait for a session or a picture.
const LIMIT: Duration = Duration::from_secs(10);

/// The encoding engines of a device. Cheap to clone; sessions are shared, and kept until the last clone is dropped.
#[derive(Clone)]
pub struct Encoder {
    pool: Arc<Pool>,
    encodes: Vec<Encodes>,
}

impl Encoder {
    /// The engines of a device. Fails with [`Error::NoEngine`] where it has none, and says what is missing elsewhere.
    pub fn new(device: &Device) -> Result<Encoder> {
        Encoder::with_limit(device, LIMIT)
    }

    /// The same with another time to wait for a session or a picture than 10 seconds.
    pub fn with_limit(device: &Device, limit: Duration) -> Result<Encoder> {
        let encodes = super::encodes(device)?;
        let engines = encodes.iter().map(|e| e.engines).max().unwrap_or(1);
        let pool = Pool::new(Nvenc::get()?, device, engines, limit);
        Ok(Encoder { pool: Arc::new(pool), encodes })
    }

    /// What they encode.
    pub fn encodes(&self) -> &[Encodes] {
        &self.encodes
    }

    /// What they encode of a standard.
    pub fn can(&self, standard: Standard) -> Result<&Encodes> {
        self.encodes.iter().find(|e| e.standard == standard).ok_or_else(|| {
            Error::NoEngine(format!("the NVENC engine of this GPU does not encode {standard}"))
        })
    }

    /// Codes pictures of the host, on as many engines as are free.
    pub fn encode(&self, standard: Standard, settings: &Settings, pictures: &[&[u16]]) -> Result<Coded> {
        let largest = u32::from(u16::MAX) >> (16 - u32::from(settings.format.depth.min(16)));
        for picture in pictures {
            if picture.len() != settings.format.samples() {
                let (have, need) = (picture.len(), settings.format.samples());
                return Err(Error::InvalidArgument(format!(
                    "a picture of {have} samples in place of {need}"
                )));
            }
            if let Some(sample) = picture.iter().find(|&&s| u32::from(s) > largest) {
                let depth = settings.format.depth;
                return Err(Error::InvalidArgument(format!("a sample of {sample} at {depth} bits")));
            }
        }
        // 1. One session, and more if there are pictures for them.
        let mut lanes = vec![self.start(standard, settings)?];
        let engines = self.can(standard)?.engines as usize;
        while lanes.len() < engines.min(pictures.len() / 2) {
            match self.pool.take(standard, settings, false)? {
                Some(lease) => lanes.push(Lane::new(lease)?),
                None => break,
            }
        }
        // 2. Pictures in turn; a lane that is full gives one first.
        let mut coded: Vec<Option<Vec<u8>>> = vec![None; pictures.len()];
        let (count, mut taken) = (lanes.len(), vec![0; lanes.len()]);
        let mut take = |lane: &mut Lane, at: usize| -> Result<()> {
            let picture = lane.result()?;
            coded[taken[at] * count + at] = picture;
            taken[at] += 1;
            Ok(())
        };
        for (i, picture) in pictures.iter().enumerate() {
            let (at, lane) = (i % count, &mut lanes[i % count]);
            if lane.is_full() {
                take(lane, at)?;
            }
            lane.submit_samples(picture)?;
        }
        for (at, lane) in lanes.iter_mut().enumerate() {
            while lane.in_flight() > 0 {
                take(lane, at)?;
            }
        }
        // 3. All of them, with one and the same parameter sets.
        let sets = lanes[0].parameter_sets().to_vec();
        if lanes.iter().any(|l| l.parameter_sets() != sets) {
            return Err(broken("parameter sets differ between sessions"));
        }
        let pictures: Option<Vec<Vec<u8>>> = coded.into_iter().collect();
        Ok(Coded { parameter_sets: sets, pictures: pictures.ok_or_else(|| broken("a picture is missing"))? })
    }

    /// Takes a session, to submit pictures to it one by one. Waits while all are in use.
    pub fn start(&self, standard: Standard, settings: &Settings) -> Result<Lane> {
        setup::check(self.can(standard)?, settings)?;
        match self.pool.take(standard, settings, true)? {
            Some(lease) => Lane::new(lease),
            None => Err(Error::NoSession),
        }
    }

    /// Closes the sessions that are not in use, so that other programs can have them.
    pub fn release(&self) {
        self.pool.clear();
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("encodes", &self.encodes).finish_non_exhaustive()
    }
}

fn broken(what: &str) -> Error {
    let error = tenfold_video::Error::Codec { name: "nvenc".into(), reason: what.into() };
    error.into()
}

/// A session in use: pictures are submitted without waiting, and come back coded in the same order. It goes back to its
/// [`Encoder`] when dropped.
pub struct Lane {
    lease: Lease,
    sets: Vec<u8>,
}

impl Lane {
    fn new(lease: Lease) -> Result<Lane> {
        let (sets, rest) = split(&lease, &lease.sets)?;
        if sets.is_empty() || !rest.is_empty() {
            return Err(broken("it gave no parameter sets"));
        }
        Ok(Lane { lease, sets })
    }

    /// What every picture needs, once.
    pub fn parameter_sets(&self) -> &[u8] {
        &self.sets
    }

    /// Pictures on their way.
    pub fn in_flight(&self) -> usize {
        self.lease.in_flight()
    }

    /// Whether a result must be taken before the next picture can be submitted.
    pub fn is_full(&self) -> bool {
        self.lease.in_flight() >= DEPTH
    }

    /// Submits samples of the host.
    pub fn submit_samples(&mut self, samples: &[u16]) -> Result<()> {
        if samples.len() != self.lease.settings.format.samples() {
            return Err(Error::InvalidArgument(format!("a picture of {} samples", samples.len())));
        }
        self.lease.submit_samples(samples)
    }

    /// Submits luma that is on the device: a byte a sample, or two at 10 bits, of which the upper ten count; rows without
    /// gaps. The encoder waits for what `stream` has queued, and nobody else does.
    ///
    /// # Safety
    /// `luma` is memory of the encoder's device and stays as it is until the stream has passed this call.
    pub unsafe fn submit(&mut self, luma: DeviceSlice, stream: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.lease.submit_luma(luma, stream) }
    }

    /// Waits for the picture that was submitted first; none where no picture is on its way.
    pub fn result(&mut self) -> Result<Option<Vec<u8>>> {
        if self.lease.in_flight() == 0 {
            return Ok(None);
        }
        let unit = self.lease.receive()?;
        let (sets, picture) = split(&self.lease, &unit)?;
        if !sets.is_empty() && sets != self.sets {
            return Err(broken("the parameter sets changed between pictures"));
        }
        if picture.is_empty() {
            return Err(broken("it gave a picture without slices"));
        }
        Ok(Some(picture))
    }
}

/// Parameter sets and what is of a picture.
fn split(lease: &Lease, unit: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    stream::split(lease.standard, unit).map_err(|reason| broken(&reason))
}

/// What the engines of a device encode; fails with the reason where there is none.
pub(super) fn ask(device: &Device) -> Result<Vec<Encodes>> {
    let handle = match Handle::open(Nvenc::get()?, device)? {
        Opened::Open(handle) => handle,
        Opened::NoneFree => return Err(Error::NoSession),
    };
    let all = [Standard::H264, Standard::H265, Standard::Av1];
    let found = all.into_iter().map(|standard| Encodes::ask(&handle, standard));
    found.filter(|f| !matches!(f, Err(Error::NoEngine(_)))).collect()
}
