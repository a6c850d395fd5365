//! What a lossy blob's header holds beyond dtype and shape. Normative: docs/format.md, 'Levels'.

use crate::blob::Geometry;
use crate::blob::bytes::{Reader, put_varint};
use crate::entropy::class::ClassMap;
use crate::entropy::table::{Freqs, LOG_RANGE};
use crate::entropy::table_code::{self, Alphabet, Coded};
use crate::entropy::{MAX_LANES, MAX_LOW_BITS};
use crate::error::{Error, Result};
use crate::quant::machine::Machine;
use crate::view::Dtype;

use super::low::LowBits;

/// Reconstruction units of a step: offsets and scale count in 1/64 steps.
pub const UNITS: i32 = 64;
/// Magnitudes with a reconstruction offset of their own; larger ones share the last.
pub const OFFSETS: usize = 8;

/// Parameters of a lossy blob.
#[derive(Debug, Clone)]
pub(crate) struct LevelsParams {
    /// Whether tiles are coded in pairs of levels.
    pub paired: bool,
    pub machine: Machine,
    pub geometry: Geometry,
    /// log2 of the sum of a table's frequencies.
    pub log: u32,
    /// Raw low bits of the levels of each class.
    pub low: LowBits,
    /// Value of 1/64 step. An f32 unless the dtype is f64.
    pub scale: f64,
    /// How far towards zero multiples 1, 2, … of the step are reconstructed, in 1/64 steps.
    pub offsets: [i8; OFFSETS],
    pub classes: Option<ClassMap>,
    /// For each class: the table of quantiser 0, then that of quantiser 1 (trellis only).
    pub tables: Vec<Coded>,
    /// The same, expanded: always two a class.
    pub freqs: Vec<Freqs>,
}

impl LevelsParams {
    pub(crate) fn class_count(&self) -> usize {
        self.classes.as_ref().map_or(1, ClassMap::classes)
    }

    /// Alphabets of the stored tables.
    pub(crate) fn alphabets(log: u32, low: &LowBits, classes: usize, per_class: usize) -> Vec<Alphabet> {
        (0..classes as u8).flat_map(|c| vec![Alphabet::levels(log, low.get(c)); per_class]).collect()
    }

    /// Tables stored for each class.
    pub(crate) fn tables_per_class(machine: Machine) -> usize {
        if machine == Machine::SCALAR { 1 } else { 2 }
    }

    pub(crate) fn write(&self, dtype: Dtype, out: &mut Vec<u8>) {
        out.push(self.machine.log2_states);
        self.geometry.write(out);
        out.push(self.log as u8);
        match dtype {
            Dtype::F64 => out.extend_from_slice(&self.scale.to_le_bytes()),
            _ => out.extend_from_slice(&(self.scale as f32).to_le_bytes()),
        }
        let used = self.offsets.iter().rposition(|&o| o != 0).map_or(0, |i| i + 1);
        out.push(used as u8);
        out.extend(self.offsets[..used].iter().map(|&o| o as u8));
        out.push(self.class_count() as u8);
        if let Some(map) = &self.classes {
            map.write(out);
        }
        out.extend_from_slice(self.low.as_slice(self.class_count()));
        let per_class = LevelsParams::tables_per_class(self.machine);
        let alphabets = LevelsParams::alphabets(self.log, &self.low, self.class_count(), per_class);
        let tables = table_code::write(self.tables.iter().zip(alphabets));
        put_varint(out, tables.len() as u64);
        out.extend_from_slice(&tables);
    }

    pub(crate) fn read(
        r: &mut Reader<'_>,
        paired: bool,
        dtype: Dtype,
        values: usize,
        rank: Option<usize>,
    ) -> Result<LevelsParams> {
        if !dtype.is_float() {
            return Err(Error::Corrupt("levels of a dtype that is not a float"));
        }
        let states = r.u8()?;
        let machine =
            Machine::new(states).ok_or(Error::UnsupportedFeature { what: "trellis", id: states as u64 })?;
        let geometry = Geometry::read(r)?;
        if paired && (geometry.lanes != MAX_LANES || geometry.ticks % 2 != 0) {
            return Err(Error::Corrupt("tile geometry"));
        }
        let log = r.u8()? as u32;
        if !LOG_RANGE.contains(&log) {
            return Err(Error::Corrupt("size of the tables"));
        }
        let scale = match dtype {
            Dtype::F64 => f64::from_le_bytes(r.array()?),
            _ => f32::from_le_bytes(r.array()?) as f64,
        };
        if !scale.is_finite() || scale <= 0.0 {
            return Err(Error::Corrupt("the step is not a positive number"));
        }
        let mut offsets = [0i8; OFFSETS];
        let used = r.u8()? as usize;
        let stored = r.take(used)?;
        let room = offsets.get_mut(..used).ok_or(Error::Corrupt("number of reconstruction offsets"))?;
        room.iter_mut().zip(stored).for_each(|(o, &b)| *o = b as i8);
        let classes = match r.u8()? {
            1 => None,
            n => Some(ClassMap { paired, ..ClassMap::read(r, n as usize, values, rank)? }),
        };
        let count = classes.as_ref().map_or(1, ClassMap::classes);
        let low = LowBits::new(r.take(count)?);
        if low.most() > if paired { 0 } else { MAX_LOW_BITS } {
            return Err(Error::Corrupt("number of low bits"));
        }
        let len = usize::try_from(r.varint()?).map_err(|_| Error::Corrupt("length of the tables"))?;
        let per_class = LevelsParams::tables_per_class(machine);
        let alphabets = LevelsParams::alphabets(log, &low, count, per_class);
        let stored = table_code::read(r.take(len)?, &alphabets)?;
        let freqs = LevelsParams::expand_freqs(stored, per_class);
        Ok(LevelsParams {
            paired,
            machine,
            geometry,
            log,
            low,
            scale,
            offsets,
            classes,
            tables: Vec::new(),
            freqs,
        })
    }

    /// A scalar quantiser stores one table a class; decoders index two.
    pub(crate) fn expand_freqs(stored: Vec<Freqs>, per_class: usize) -> Vec<Freqs> {
        if per_class == 2 {
            return stored;
        }
        stored.into_iter().flat_map(|f| [f.clone(), f]).collect()
    }
}
