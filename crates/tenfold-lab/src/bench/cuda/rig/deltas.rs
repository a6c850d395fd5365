//! A delta and its tensor on a device, applied again and again: before each call the tensor becomes old again, which is not timed.

use std::time::Instant;

use anyhow::{Result, ensure};
use tenfold::Dtype;
use tenfold::delta::{self, DeltaLayout, DeltaOptions, TileRoom, Verify};
use tenfold::engine::Limits;
use tenfold_cuda::{
    Buffer, DeltaApplier, DeltaPlan, DeltaRequest, DeviceSlice, Pinned, Status, Stream, Timer, apply_delta,
    delta_workspace_len,
};

use super::{Rig, Times, WARM};
use crate::bench::delta::cases::Versions;

/// A tensor before and after, and what leads from one to the other.
pub(in super::super) struct Change {
    pub versions: Versions,
    pub blob: Vec<u8>,
    /// Values that change.
    pub changed: u64,
}

/// A change on a device.
pub(in super::super) struct Deltas<'a> {
    rig: &'a Rig,
    change: &'a Change,
    plan: DeltaPlan,
    old: Buffer,
    tensor: Buffer,
    applier: DeltaApplier,
    pinned: Pinned,
}

fn options(threads: usize) -> DeltaOptions {
    DeltaOptions::default()
        .with_threads(threads)
        .with_verify(Verify::Touched)
        .with_limits(Limits::default().with_max_bytes(u64::MAX))
}

impl<'a> Deltas<'a> {
    pub fn new(rig: &'a Rig, change: &'a Change) -> Result<Deltas<'a>> {
        let old = Buffer::from_slice(&rig.device, &change.versions.old)?;
        let tensor = Buffer::new(&rig.device, change.versions.old.len())?;
        let mut pinned = Pinned::new(&rig.device, change.blob.len())?;
        pinned.copy_from_slice(&change.blob);
        let plan = DeltaPlan::new(&change.blob, &options(0).limits)?;
        let applier = DeltaApplier::new(&rig.device)?;
        Ok(Deltas { rig, change, plan, old, tensor, applier, pinned })
    }

    /// Makes the tensor old again, and waits for that.
    fn restore(&self) -> Result<()> {
        self.set(&self.old)
    }

    /// Makes the tensor what a buffer holds, and waits for that.
    fn set(&self, to: &Buffer) -> Result<()> {
        let stream = self.rig.stream.stream();
        // SAFETY: both are ours and of the same length, and live until the wait.
        unsafe { self.rig.device.copy(self.tensor.slice(), to.slice(), stream)? };
        self.rig.device.synchronize(stream)?;
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let mut found = vec![0; self.change.versions.new.len()];
        self.tensor.read(&mut found, self.rig.stream.stream())?;
        ensure!(found == self.change.versions.new, "the device's tensor is not the new one");
        Ok(())
    }

    fn target(&self) -> (DeviceSlice, Dtype, &'a [usize]) {
        (self.tensor.slice(), self.change.versions.dtype, &self.change.versions.shape)
    }

    /// Milliseconds by the host's clock, to the end of the device's work.
    fn wall(&mut self, mut call: impl FnMut(&mut Self, Stream) -> Result<()>) -> Result<Times> {
        let stream = self.rig.stream.stream();
        let mut times = Vec::new();
        for i in 0..WARM + self.rig.repeats {
            self.restore()?;
            let start = Instant::now();
            call(self, stream)?;
            self.rig.device.synchronize(stream)?;
            if i >= WARM {
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        self.check()?;
        Ok(Times(times))
    }

    /// The delta, its tables and its tiles are on the device: the device's own clock.
    pub fn on_device(&self) -> Result<Times> {
        let (times, said) = self.queued(&self.old)?;
        ensure!(self.plan.check(said)?.written == self.plan.changed(), "not all was written");
        self.check()?;
        Ok(times)
    }

    /// Two parts of that: of a tensor that is new already, where places alone are decoded; and of one with another value where the last
    /// change is, which is decoded, but for a tile, and not written.
    pub fn parts(&self) -> Result<[Times; 2]> {
        let Versions { dtype, old, new, .. } = &self.change.versions;
        let (again, said) = self.queued(&Buffer::from_slice(&self.rig.device, new)?)?;
        ensure!(self.plan.check(said)?.written == 0, "something was written to a tensor that is new");
        let mut other = old.clone();
        let last = old.iter().zip(new).rposition(|(old, new)| old != new);
        if let Some(last) = last {
            let value = last / dtype.size() * dtype.size();
            other[value..][..dtype.size()].iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        let (refused, said) = self.queued(&Buffer::from_slice(&self.rig.device, &other)?)?;
        ensure!(last.is_none() || self.plan.check(said).is_err(), "another tensor was not noticed");
        Ok([again, refused])
    }

    /// Applications to what a buffer holds, and what was said of the last.
    fn queued(&self, to: &Buffer) -> Result<(Times, Status)> {
        let (device, stream) = (&self.rig.device, self.rig.stream.stream());
        let blob = Buffer::from_slice(device, &self.change.blob)?;
        let setup = Buffer::from_slice(device, self.plan.setup())?;
        let request = [DeltaRequest::new(&self.plan, blob.slice(), setup.slice(), self.tensor.slice())];
        let workspace = Buffer::new(device, delta_workspace_len(&request))?;
        let status = Buffer::new(device, size_of::<Status>())?;
        let mut times = Vec::new();
        for i in 0..WARM + self.rig.repeats {
            self.set(to)?;
            let timer = Timer::new(device)?;
            timer.start(stream)?;
            // SAFETY: all of it lives until the timer has waited.
            unsafe { apply_delta(device, &request, status.slice(), workspace.slice(), stream)? };
            timer.stop(stream)?;
            let took = f64::from(timer.milliseconds()?);
            if i >= WARM {
                times.push(took);
            }
        }
        let mut said = [0; size_of::<Status>()];
        status.read(&mut said, stream)?;
        Ok((Times(times), Status::from_bytes(said)))
    }

    /// The delta is in pinned memory of the host: header, copy, application, verdict.
    pub fn sent(&mut self) -> Result<Times> {
        let limits = options(0).limits;
        self.wall(|this, stream| {
            let (to, len) = (this.target(), this.pinned.len());
            // SAFETY: `check` waits, and all of it lives until then.
            unsafe { this.applier.queue(&this.pinned, len, to, &limits, stream)? };
            this.applier.check(stream)?;
            Ok(())
        })
    }

    /// The host decodes while the device takes what is done.
    pub fn hybrid(&mut self, threads: usize) -> Result<Times> {
        let options = options(threads);
        self.wall(|this, stream| {
            let (to, change) = (this.target(), this.change);
            // SAFETY: as above.
            unsafe { this.applier.apply_decoded(&change.blob, &change.versions.old, to, &options, stream)? };
            Ok(())
        })
    }

    /// The host's part of that alone.
    pub fn decode(&self, threads: usize) -> Result<Times> {
        let (change, options) = (self.change, options(threads));
        let size = change.versions.dtype.size();
        let mut times = Vec::new();
        let mut room = vec![0; (4 + size) * self.plan.changed() as usize];
        for i in 0..WARM + self.rig.repeats {
            let start = Instant::now();
            let layout = DeltaLayout::read(&change.blob, &options.limits)?;
            let (mut rest, mut rooms) = (&mut room[..], Vec::new());
            for (tile, of) in layout.tiles().iter().enumerate() {
                let (places, behind) = rest.split_at_mut(4 * of.changes);
                let (values, behind) = behind.split_at_mut(size * of.changes);
                rest = behind;
                rooms.push(TileRoom { tile, places, values });
            }
            layout.decode(rooms, &change.versions.old, &options, &|_| ())?;
            if i >= WARM {
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok(Times(times))
    }

    /// The device's part: what the host has decoded comes from pinned memory.
    pub fn copy_lists(&self) -> Result<Times> {
        let bytes = (4 + self.change.versions.dtype.size()) * self.plan.changed() as usize;
        self.rig.time_copy_in(&Pinned::new(&self.rig.device, bytes)?)
    }

    /// The whole new tensor from pinned memory.
    pub fn dense(&mut self) -> Result<Times> {
        let mut all = Pinned::new(&self.rig.device, self.change.versions.new.len())?;
        all.copy_from_slice(&self.change.versions.new);
        self.wall(|this, stream| {
            // SAFETY: both are as long, and live until `wall` has waited.
            unsafe { this.rig.device.copy_in(this.tensor.slice(), &all, stream)? };
            Ok(())
        })
    }

    /// One after the other: the host brings its own copy up to date, in pinned memory, and sends all of it.
    pub fn in_turn(&mut self, threads: usize) -> Result<Times> {
        let options = options(threads);
        let mut all = Pinned::new(&self.rig.device, self.change.versions.new.len())?;
        let stream = self.rig.stream.stream();
        let mut times = Vec::new();
        for i in 0..WARM + self.rig.repeats {
            all.copy_from_slice(&self.change.versions.old);
            self.restore()?;
            let start = Instant::now();
            let Change { blob, versions, .. } = self.change;
            delta::apply_in_place(blob, versions.dtype, &versions.shape, &mut all, &options)?;
            // SAFETY: as above.
            unsafe { self.rig.device.copy_in(self.tensor.slice(), &all, stream)? };
            self.rig.device.synchronize(stream)?;
            if i >= WARM {
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        self.check()?;
        Ok(Times(times))
    }
}
