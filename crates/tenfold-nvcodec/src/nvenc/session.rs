//! A session: a ring of pictures on their way through an encoder.
//!
//! The caller's thread submits, which does not wait; a thread of the session's takes what is coded, in the same order, as NVIDIA
//! suggests. A picture that does not come in time is an error, and the driver is left with the session until it answers.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use tenfold_cuda::{DeviceSlice, OwnedStream, Stream};
use tenfold_video::Standard;
use tenfold_video::codec::Settings;

use super::abi::{PicParams, ReconfigureParams, SequenceParamPayload, Versioned, pic_flag};
use super::handle::Handle;
use super::setup::{Setup, layout};
use super::slot::{Plane, Slot};
use crate::error::{Error, Result};

/// Pictures that may be on their way in a session.
pub(super) const DEPTH: usize = 8;
/// More bytes than parameter sets ever are.
const MAX_SETS: usize = 4096;

/// The session and its ring; the last owner closes it.
struct Ring {
    // Closed before the memory of the places is freed.
    handle: Handle,
    slots: Vec<Slot>,
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.handle.device.make_current().is_err() {
            return;
        }
        let mut params = PicParams { flags: pic_flag::END_OF_STREAM, ..PicParams::versioned() };
        // SAFETY: the session is open; errors have nowhere to go.
        unsafe { (self.handle.api.encode_picture)(self.handle.raw, &mut params) };
        for slot in &mut self.slots {
            slot.release(&self.handle);
        }
    }
}

/// An initialised session.
pub(super) struct Session {
    ring: Arc<Ring>,
    pub(super) standard: Standard,
    pub(super) settings: Settings,
    plane: Plane,
    /// Parameter sets as the library gives them.
    pub(super) sets: Vec<u8>,
    /// For pictures of the host.
    stream: OwnedStream,
    /// The stream that the session is bound to.
    bound: Option<Stream>,
    submitted: u64,
    in_flight: usize,
    /// Whether an error left it in a state that nobody knows.
    pub(super) broken: bool,
    work: Option<Sender<usize>>,
    done: Receiver<Result<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
    hung: bool,
    limit: Duration,
}

impl Session {
    /// Initialises an open session, and makes its ring.
    pub(super) fn new(
        handle: Handle,
        standard: Standard,
        settings: &Settings,
        limit: Duration,
    ) -> Result<Session> {
        // 1. What it is for.
        let mut setup = Setup::new(&handle, standard, settings)?;
        let mut params = setup.params();
        // SAFETY: both structures live through the call.
        let code = unsafe { (handle.api.initialize_encoder)(handle.raw, &mut params) };
        handle.check("NvEncInitializeEncoder", code)?;
        // 2. The ring; from here on it cleans up after itself.
        let plane = Plane::new(settings.format);
        let stream = OwnedStream::new(&handle.device)?;
        let mut ring = Ring { handle, slots: Vec::with_capacity(DEPTH) };
        for _ in 0..DEPTH {
            ring.slots.push(Slot::new(&ring.handle.device, &plane)?);
        }
        for slot in &mut ring.slots {
            slot.register(&ring.handle, &plane)?;
        }
        // 3. The parameter sets.
        let sets = read_sets(&ring.handle)?;
        // 4. The thread that takes what is coded.
        let ring = Arc::new(ring);
        let (work, submitted) = mpsc::channel();
        let (finished, done) = mpsc::channel();
        let theirs = ring.clone();
        let thread = std::thread::Builder::new().name("nvenc".into()).spawn(move || {
            for slot in submitted {
                let coded = receive(&theirs, slot);
                if finished.send(coded).is_err() {
                    break;
                }
            }
        });
        let thread =
            thread.map_err(|e| Error::InvalidArgument(format!("a thread cannot be started: {e}")))?;
        Ok(Session {
            ring,
            standard,
            settings: *settings,
            plane,
            sets,
            stream,
            bound: None,
            submitted: 0,
            in_flight: 0,
            broken: false,
            work: Some(work),
            done,
            thread: Some(thread),
            hung: false,
            limit,
        })
    }

    /// Whether it could code with other settings: the same pictures, at another quantiser.
    pub(super) fn can_become(&self, standard: Standard, settings: &Settings) -> bool {
        let quality = self.settings.quality;
        let lossless = |q| q == tenfold_video::Quality::Lossless;
        standard == self.standard
            && Settings { quality, ..*settings } == self.settings
            && lossless(quality) == lossless(settings.quality)
    }

    /// Changes the quantiser of an idle session.
    pub(super) fn reconfigure(&mut self, settings: &Settings) -> Result<()> {
        let handle = &self.ring.handle;
        handle.device.make_current()?;
        let mut setup = Setup::new(handle, self.standard, settings)?;
        let mut params =
            ReconfigureParams { init: setup.params(), flags: 3, ..ReconfigureParams::versioned() };
        // SAFETY: all structures live through the call; nothing is on its way.
        let code = unsafe { (handle.api.reconfigure_encoder)(handle.raw, &mut params) };
        handle.check("NvEncReconfigureEncoder", code)?;
        self.sets = read_sets(handle)?;
        self.settings = *settings;
        Ok(())
    }

    /// Lets go of a caller's stream, which may be destroyed while the session waits for its next use.
    pub(super) fn rest(&mut self) {
        let own = self.stream.stream();
        self.broken |= self.bound.is_some() && self.bind(own).is_err();
    }

    /// Pictures on their way.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Submits samples of the host. There must be room for one more.
    pub(super) fn submit_samples(&mut self, samples: &[u16]) -> Result<()> {
        let stream = self.stream.stream();
        self.submit(stream, |ring, slot, plane| slot.upload(&ring.handle.device, plane, samples, stream))
    }

    /// Submits luma of the device, once the stream has come so far. There must be room for one more.
    ///
    /// # Safety
    /// `luma` is memory of the device and stays until the stream has passed this.
    pub(super) unsafe fn submit_luma(&mut self, luma: DeviceSlice, stream: Stream) -> Result<()> {
        self.submit(stream, |ring, slot, plane| {
            // SAFETY: the caller's promise.
            unsafe { slot.copy(&ring.handle.device, plane, luma, stream) }
        })
    }

    fn submit(
        &mut self,
        stream: Stream,
        fill: impl FnOnce(&Ring, &Slot, &Plane) -> Result<()>,
    ) -> Result<()> {
        if self.in_flight >= DEPTH || self.broken {
            return Err(Error::InvalidArgument("a picture for a session that is full or failed".into()));
        }
        let ring = self.ring.clone();
        ring.handle.device.make_current()?;
        let number = (self.submitted % DEPTH as u64) as usize;
        let slot = &ring.slots[number];
        fill(&ring, slot, &self.plane)?;
        let answer = self.bind(stream).and_then(|()| self.send(&ring.handle, slot));
        if let Err(error) = answer {
            self.broken = true;
            slot.unmap(&ring.handle).ok();
            return Err(error);
        }
        self.submitted += 1;
        self.in_flight += 1;
        if self.work.as_ref().is_none_or(|work| work.send(number).is_err()) {
            self.broken = true;
            return Err(Error::InvalidArgument("the thread of an encoding session is gone".into()));
        }
        Ok(())
    }

    /// Makes the encoder wait for a stream, and the stream for the encoder.
    fn bind(&mut self, stream: Stream) -> Result<()> {
        if self.bound == Some(stream) {
            return Ok(());
        }
        let (handle, mut raw) = (&self.ring.handle, stream.0);
        let place: *mut c_void = (&raw mut raw).cast();
        // SAFETY: pointers to a stream's handle, which the library reads in the call.
        let code = unsafe { (handle.api.set_io_cuda_streams)(handle.raw, place, place) };
        handle.check("NvEncSetIOCudaStreams", code)?;
        self.bound = Some(stream);
        Ok(())
    }

    fn send(&self, handle: &Handle, slot: &Slot) -> Result<()> {
        let (input, output) = slot.map(handle)?;
        let mut params = PicParams {
            width: self.plane.format.width as u32,
            height: self.plane.format.height as u32,
            pitch: self.plane.pitch as u32,
            flags: pic_flag::FORCE_IDR,
            frame_idx: self.submitted as u32,
            time_stamp: self.submitted,
            input,
            output,
            format: layout(self.plane.format.depth),
            // A frame, not a field.
            structure: 1,
            ..PicParams::versioned()
        };
        // SAFETY: the structure lives through the call; input and output are left alone until the picture is taken.
        let code = unsafe { (handle.api.encode_picture)(handle.raw, &mut params) };
        handle.check("NvEncEncodePicture", code)
    }

    /// Waits for the picture that was submitted first.
    pub(super) fn receive(&mut self) -> Result<Vec<u8>> {
        if self.in_flight == 0 {
            return Err(Error::InvalidArgument("no picture is on its way".into()));
        }
        let answer = match self.done.recv_timeout(self.limit) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                self.hung = true;
                Err(Error::Timeout { what: "the encoder did not answer", seconds: self.limit.as_secs() })
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::InvalidArgument("the thread of an encoding session is gone".into()))
            }
        };
        self.in_flight -= 1;
        self.broken |= answer.is_err();
        answer
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without work the thread ends, once it has taken what is on its way.
        self.work = None;
        if let Some(thread) = self.thread.take().filter(|_| !self.hung) {
            thread.join().ok();
        }
    }
}

/// One picture, on the session's thread.
fn receive(ring: &Ring, slot: usize) -> Result<Vec<u8>> {
    ring.handle.device.make_current()?;
    ring.slots[slot].receive(&ring.handle)
}

fn read_sets(handle: &Handle) -> Result<Vec<u8>> {
    let (mut sets, mut len) = (vec![0; MAX_SETS], 0);
    let mut params = SequenceParamPayload {
        buffer_size: MAX_SETS as u32,
        buffer: sets.as_mut_ptr().cast(),
        size: &mut len,
        ..SequenceParamPayload::versioned()
    };
    // SAFETY: the buffer is as long as stated; all places live through the call.
    let code = unsafe { (handle.api.get_sequence_params)(handle.raw, &mut params) };
    handle.check("NvEncGetSequenceParams", code)?;
    sets.truncate(len as usize);
    Ok(sets)
}
