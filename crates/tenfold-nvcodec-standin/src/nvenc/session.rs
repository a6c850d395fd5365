//! Sessions by their handles, and what each holds.

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenfold_nvcodec::nvenc::abi::{Guid, status};
use tenfold_video::codec::Settings;

use crate::control::{Counts, violation};
use crate::faults::{self, Fault};

/// Device memory that a session knows.
pub(super) struct Registered {
    pub address: u64,
    pub pitch: usize,
    /// The handle under which it is mapped, or 0.
    pub mapped: u64,
}

/// A picture to be coded.
pub(super) struct Waiting {
    /// The mapped input.
    pub input: u64,
    pub time_stamp: u64,
    /// Checksum of the input when it came.
    pub check: u32,
    /// Whether it goes with its parameter sets.
    pub first: bool,
}

/// A buffer for coded pictures.
pub(super) enum Output {
    Free,
    Waiting(Waiting),
    /// A call is about to fill it.
    Busy,
    Locked(#[allow(dead_code)] Vec<u8>), // the caller has a pointer to it
}

/// What a session was initialised with.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub codec: Guid,
    pub standard: tenfold_video::Standard,
    pub settings: Settings,
    /// The layout of inputs.
    pub format: u32,
    pub repeats_sets: bool,
}

#[derive(Default)]
pub(super) struct Session {
    pub setup: Option<Setup>,
    pub registered: HashMap<u64, Registered>,
    pub outputs: HashMap<u64, Output>,
    /// Outputs in the order in which pictures came.
    pub order: VecDeque<u64>,
    pub pictures: u64,
    pub ended: bool,
    pub error: CString,
}

type Sessions = HashMap<u64, Arc<Mutex<Session>>>;

static SESSIONS: Mutex<Option<Sessions>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(0x2000_0000);
static OPENED: AtomicU64 = AtomicU64::new(0);
static MOST: AtomicU64 = AtomicU64::new(0);
static IN_FLIGHT: AtomicU64 = AtomicU64::new(0);
pub(super) static ENCODED: AtomicU64 = AtomicU64::new(0);

pub(super) fn hold<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that was not a handle before.
pub(super) fn new_handle() -> u64 {
    NEXT.fetch_add(16, Ordering::Relaxed)
}

pub(super) fn count(counts: &mut Counts) {
    let open: Vec<_> = hold(&SESSIONS).get_or_insert_default().values().cloned().collect();
    counts.sessions = open.len() as u64;
    for session in open {
        let session = hold(&session);
        counts.registered += session.registered.len() as u64;
        counts.mapped += session.registered.values().filter(|r| r.mapped != 0).count() as u64;
        counts.buffers += session.outputs.len() as u64;
        counts.locked += session.outputs.values().filter(|o| matches!(o, Output::Locked(_))).count() as u64;
    }
    counts.sessions_opened = OPENED.load(Ordering::Relaxed);
    counts.most_sessions = MOST.load(Ordering::Relaxed);
    counts.most_in_flight = IN_FLIGHT.load(Ordering::Relaxed);
    counts.encoded = ENCODED.load(Ordering::Relaxed);
}

pub(super) fn open() -> Result<u64, i32> {
    let mut all = hold(&SESSIONS);
    let all = all.get_or_insert_default();
    if all.len() as i64 >= faults::get(Fault::MaxSessions) {
        return Err(status::OUT_OF_MEMORY);
    }
    let handle = new_handle();
    all.insert(handle, Arc::default());
    OPENED.fetch_add(1, Ordering::Relaxed);
    MOST.fetch_max(all.len() as u64, Ordering::Relaxed);
    Ok(handle)
}

pub(super) fn find(handle: u64, call: &str) -> Result<Arc<Mutex<Session>>, i32> {
    hold(&SESSIONS).get_or_insert_default().get(&handle).cloned().ok_or_else(|| {
        violation(format!("{call}: no such session"));
        status::INVALID_ENCODERDEVICE
    })
}

pub(super) fn destroy(handle: u64) -> Result<(), i32> {
    let session = find(handle, "NvEncDestroyEncoder")?;
    {
        let session = hold(&session);
        if session.registered.values().any(|r| r.mapped != 0) {
            violation("NvEncDestroyEncoder: input is still mapped");
        }
        if !session.registered.is_empty() {
            violation("NvEncDestroyEncoder: memory is still registered");
        }
        if !session.outputs.is_empty() {
            violation("NvEncDestroyEncoder: buffers are left");
        }
        if session.pictures > 0 && !session.ended {
            violation("NvEncDestroyEncoder: the stream was not ended");
        }
    }
    hold(&SESSIONS).get_or_insert_default().remove(&handle);
    Ok(())
}

impl Session {
    /// An error of the caller's: recorded, and kept for `NvEncGetLastErrorString`.
    pub(super) fn refuse(&mut self, code: i32, what: &str) -> i32 {
        violation(what);
        self.fail(code, what)
    }

    /// An error of nobody's.
    pub(super) fn fail(&mut self, code: i32, what: &str) -> i32 {
        self.error = CString::new(what).unwrap_or_default();
        code
    }

    pub(super) fn setup(&mut self, call: &str) -> Result<Setup, i32> {
        self.setup.ok_or_else(|| {
            self.refuse(status::ENCODER_NOT_INITIALIZED, &format!("{call}: the session is not initialised"))
        })
    }

    pub(super) fn waits(&mut self, output: u64) {
        self.order.push_back(output);
        IN_FLIGHT.fetch_max(self.order.len() as u64, Ordering::Relaxed);
    }

    /// Registered memory by the handle it is mapped under.
    pub(super) fn mapped(&self, handle: u64) -> Option<&Registered> {
        self.registered.values().find(|r| r.mapped == handle && handle != 0)
    }
}
