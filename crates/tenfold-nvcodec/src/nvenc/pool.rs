//! Sessions of a device: kept for the next call, shared by threads, as many as there are engines to keep busy.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenfold_cuda::Device;
use tenfold_video::Standard;
use tenfold_video::codec::Settings;

use super::api::Nvenc;
use super::handle::{Handle, Opened};
use super::session::Session;
use crate::error::{Error, Result};

/// Sessions of an engine: while one uploads, the other encodes.
const PER_ENGINE: usize = 2;

pub(super) struct Pool {
    api: &'static Nvenc,
    device: Device,
    /// How long to wait for a session, or for a picture.
    limit: Duration,
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    /// The one used last at the end.
    idle: Vec<Session>,
    /// All that are open, in use or idle.
    open: usize,
    /// The most that may be open; less once the driver refused one.
    most: usize,
}

/// A session in use; goes back when dropped.
pub(super) struct Lease {
    pool: Arc<Pool>,
    session: Option<Session>,
}

impl Pool {
    pub(super) fn new(api: &'static Nvenc, device: &Device, engines: u32, limit: Duration) -> Pool {
        let most = (engines as usize).clamp(1, 16) * PER_ENGINE;
        let state = Mutex::new(State { idle: Vec::new(), open: 0, most });
        Pool { api, device: device.clone(), limit, state, freed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session for pictures. Waits for one where all are in use, unless told not to: then there is none.
    pub(super) fn take(
        self: &Arc<Pool>,
        standard: Standard,
        settings: &Settings,
        waits: bool,
    ) -> Result<Option<Lease>> {
        let end = Instant::now() + self.limit;
        let mut state = self.lock();
        loop {
            // 1. One that is set up so, or that can be.
            let same = |s: &Session| s.standard == standard && s.settings == *settings;
            let found = state.idle.iter().rposition(same);
            let found = found.or_else(|| state.idle.iter().rposition(|s| s.can_become(standard, settings)));
            if let Some(at) = found {
                let session = state.idle.remove(at);
                drop(state);
                return self.change(session, standard, settings).map(Some);
            }
            // 2. A new one, in the place of an idle one if need be.
            let evicted = if state.open >= state.most { state.evict() } else { None };
            if state.open < state.most || evicted.is_some() {
                state.open += usize::from(evicted.is_none());
                drop(state);
                drop(evicted);
                match self.open(standard, settings)? {
                    Some(lease) => return Ok(Some(lease)),
                    None => state = self.refused()?,
                }
                continue;
            }
            // 3. Whatever comes back first.
            let left = end.saturating_duration_since(Instant::now());
            if !waits {
                return Ok(None);
            }
            if left.is_zero() {
                let seconds = self.limit.as_secs();
                return Err(Error::Timeout { what: "no encoding session was free", seconds });
            }
            state = self.freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lease(self: &Arc<Pool>, session: Session) -> Lease {
        Lease { pool: self.clone(), session: Some(session) }
    }

    /// Sets an idle session up. One that a driver will not change is closed, and another opened in its place.
    fn change(
        self: &Arc<Pool>,
        mut session: Session,
        standard: Standard,
        settings: &Settings,
    ) -> Result<Lease> {
        if session.settings == *settings || session.reconfigure(settings).is_ok() {
            return Ok(self.lease(session));
        }
        drop(session);
        match self.open(standard, settings)? {
            Some(lease) => Ok(lease),
            None => {
                self.close_one();
                Err(Error::NoSession)
            }
        }
    }

    /// Opens a session that is counted already; none where the driver allows no more. After an error it is not counted.
    fn open(self: &Arc<Pool>, standard: Standard, settings: &Settings) -> Result<Option<Lease>> {
        let opened = match Handle::open(self.api, &self.device) {
            Ok(Opened::Open(handle)) => Session::new(handle, standard, settings, self.limit).map(Some),
            Ok(Opened::NoneFree) => Ok(None),
            Err(error) => Err(error),
        };
        if opened.is_err() {
            self.close_one();
        }
        Ok(opened?.map(|session| self.lease(session)))
    }

    /// The driver allows no more: makes do with those that are open.
    fn refused(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        state.open -= 1;
        if state.open == 0 {
            // They are other programs'; later there may be some.
            return Err(Error::NoSession);
        }
        state.most = state.open;
        Ok(state)
    }

    fn close_one(&self) {
        self.lock().open -= 1;
        self.freed.notify_one();
    }

    fn give_back(&self, mut session: Session) {
        session.rest();
        if session.broken || session.in_flight() > 0 {
            // Pictures may still be on their way: closing waits for them.
            drop(session);
            return self.close_one();
        }
        self.lock().idle.push(session);
        self.freed.notify_one();
    }

    /// Closes idle sessions.
    pub(super) fn clear(&self) {
        let idle = {
            let mut state = self.lock();
            state.open -= state.idle.len();
            std::mem::take(&mut state.idle)
        };
        drop(idle);
    }
}

impl State {
    /// The session that was used longest ago, to be closed by the caller.
    fn evict(&mut self) -> Option<Session> {
        (!self.idle.is_empty()).then(|| self.idle.remove(0))
    }
}

impl Deref for Lease {
    type Target = Session;

    #[allow(clippy::expect_used)] // taken out in `drop` alone
    fn deref(&self) -> &Session {
        self.session.as_ref().expect("a session in use")
    }
}

impl DerefMut for Lease {
    #[allow(clippy::expect_used)] // as above
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("a session in use")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.pool.give_back(session);
        }
    }
}
