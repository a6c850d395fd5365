//! Pieces of work on a file's tensors, each when its bytes are there, and what becomes of them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tenfold_archive::Written;

use super::Transfer;
use super::plan::Plan;
use crate::error::{Error, Result};
use crate::pipeline::{Stages, run};
use crate::pull::check::Checks;
use crate::pull::decode::{Made, Unit, make, pieces};
use crate::pull::taken::Taken;

/// Pieces that are checked or decoded at once; each may take all threads.
const WORKERS: usize = 2;

impl Transfer<'_> {
    /// Checks and decodes tensors as they arrive.
    pub(super) fn work(&self, plan: &Plan, file: Option<&File>) -> Result<()> {
        let options = self.context.options;
        let checks = Checks {
            spool: &self.spool,
            layout: &plan.layout,
            entry: self.task.entry.as_ref(),
            url: self.task.place.to_string(),
            limits: options.read.decode.limits.clone(),
        };
        let is_output = plan.is_spool();
        run(
            &options.timeline,
            &options.stop,
            || Error::Stopped,
            |stages: Stages<'_, '_, Error>| {
                let (checks, plan) = (&checks, plan);
                let units = stages.source("arrive", WORKERS + 1, move |out| {
                    self.units(plan, checks, &|unit| out.send(unit))?;
                    self.tick();
                    Ok(())
                });
                let name = if is_output { "check" } else { "decode" };
                let made = stages.stage(name, WORKERS, units, move |unit: Unit| {
                    let range = match &unit {
                        Unit::Rows { tiles, .. } => tiles.clone(),
                        Unit::Stored { take, .. } => take.clone(),
                        Unit::Whole { index, .. } => plan.layout.tensors()[*index].stored.clone(),
                    };
                    let (made, bytes) =
                        self.with_again(&range, || make(checks, &unit, &options.read, is_output))?;
                    Ok(((unit.index(), made), bytes))
                });
                match self.context.take {
                    None => stages.sink("write", made, move |(_, made)| self.write(made, file)),
                    Some(take) => stages.sink("take", made, move |(index, made)| {
                        let taken = self.taken(plan, index, made)?;
                        let bytes = taken.data.len() as u64;
                        take(taken).map(|()| bytes)
                    }),
                }
            },
        )
    }

    /// Finds the pieces of work, each when its bytes are there.
    fn units(&self, plan: &Plan, checks: &Checks<'_>, send: &dyn Fn(Unit) -> Result<()>) -> Result<()> {
        let tensors = plan.layout.tensors();
        // A tensor for the caller is one piece, and its size the caller's business.
        let most = Some(self.context.options.max_memory).filter(|_| self.context.take.is_none());
        let decodes = self.context.options.decode || self.context.options.rows.is_some();
        let mut order: Vec<usize> = (0..plan.picks.len()).collect();
        order.sort_by_key(|&i| tensors[plan.picks[i].index].stored.start);
        for i in order {
            let (pick, tensor) = (&plan.picks[i], &tensors[plan.picks[i].index]);
            let to = plan.place(i);
            let index = pick.index;
            if !(decodes && tensor.info.compressed) {
                let take = match &pick.rows {
                    None => tensor.stored.clone(),
                    Some(rows) => {
                        let outer = &tensor.info.shape[..tensor.info.shape.len().saturating_sub(1)];
                        let all = outer.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64));
                        let width = (tensor.stored.end - tensor.stored.start) / all.max(1);
                        let at = |row: usize| tensor.stored.start + row as u64 * width;
                        at(rows.start)..at(rows.end)
                    }
                };
                self.need(take.clone(), pick.rows.is_some())?;
                send(Unit::Stored { index, take, to })?;
                continue;
            }
            // Digests of the manifest are of whole tensors: no tile of one is used before all of it is known to be right.
            let is_checked = checks.digest(index)?.is_some() && pick.rows.is_none();
            if is_checked {
                self.need(tensor.stored.clone(), false)?;
            }
            self.need(checks.fixed_range(index), pick.rows.is_some())?;
            let header = self.with_again(&checks.fixed_range(index), || checks.header_range(index))?;
            self.need(header.clone(), pick.rows.is_some())?;
            // A header whose length is wrong leaves no part of the tensor to trust.
            let units = self.with_again(&tensor.stored, || pieces(checks, pick, to, most))?;
            let is_cut = !matches!(units.as_slice(), [Unit::Whole { .. }]);
            if is_checked && is_cut {
                self.with_again(&tensor.stored, || checks.tensor(index))?;
            }
            for unit in units {
                match &unit {
                    Unit::Rows { tiles, .. } => self.need(tiles.clone(), pick.rows.is_some())?,
                    _ => self.need(tensor.stored.clone(), false)?,
                }
                send(unit)?;
            }
        }
        if plan.is_spool() {
            self.wait(&(0..self.pin.len))?;
        }
        Ok(())
    }

    /// What a piece made, for the caller.
    fn taken(&self, plan: &Plan, index: usize, made: Made) -> Result<Taken> {
        let info = &plan.layout.tensors()[index].info;
        let (data, is_blob) = match made {
            Made::Bytes(_, data) => (data, false),
            Made::Copy(range, _) => {
                let mut data = vec![0; (range.end - range.start) as usize];
                self.spool.read(range.start, &mut data)?;
                (data, info.compressed)
            }
            Made::Nothing => (Vec::new(), false),
        };
        let mut shape = info.shape.clone();
        if let (Some(rows), Some(&cols)) = (&self.context.options.rows, info.shape.last()) {
            shape = vec![rows.end - rows.start, cols];
        }
        let (file, name) = (self.task.name.clone(), info.name.clone());
        Ok(Taken { file, name, dtype: info.dtype, dtype_name: info.dtype_name.clone(), shape, data, is_blob })
    }

    fn write(&self, made: Made, file: Option<&File>) -> Result<u64> {
        let Some(file) = file else { return Ok(0) };
        let path = &self.task.out;
        match made {
            Made::Nothing => Ok(0),
            Made::Bytes(to, bytes) => {
                file.write_all_at(&bytes, to).map_err(Error::io(path))?;
                Ok(bytes.len() as u64)
            }
            Made::Copy(range, mut to) => {
                let bytes = range.end - range.start;
                self.spool.for_each(range, |piece| {
                    file.write_all_at(piece, to).map_err(Error::io(path))?;
                    to += piece.len() as u64;
                    Ok(())
                })?;
                Ok(bytes)
            }
        }
    }
}

/// Starts the output: its head, and room for the rest that takes none yet.
pub(super) fn begin(path: &Path, written: &Written) -> Result<File> {
    let file = File::create(path).map_err(Error::io(path))?;
    file.set_len(written.len).map_err(Error::io(path))?;
    file.write_all_at(&written.head, 0).map_err(Error::io(path))?;
    Ok(file)
}
