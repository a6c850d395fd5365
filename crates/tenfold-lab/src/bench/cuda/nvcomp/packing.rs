//! A tensor on the device through nvCOMP's ANS and back, call after call.
#![allow(unsafe_code)]

use std::ptr;

use anyhow::{Result, ensure};
use bytemuck::Pod;
use tenfold_cuda::{Buffer, Device, Stream};

use super::error::NvcompError;
use super::ffi::{DevicePointer, Status};
use super::library::Nvcomp;
use super::setting::{Setting, Way};
use crate::bench::cuda::rig::{Rig, Times, is_repeated, repeat};

/// What memory of a device starts at a multiple of.
const ALIGNED: usize = 256;
/// Byte that is neither a status of success nor a likely size, and no output of ours.
const UNTOUCHED: u8 = 0xa5;

/// How a tensor is cut.
struct Cut {
    /// Bytes of the tensor.
    total: usize,
    /// Bytes of each chunk but the last.
    chunk: usize,
    count: usize,
    /// Bytes between compressed chunks.
    slot: usize,
}

/// One copy of the tensor, with room for what it compresses to. The first two are what the tables point at.
struct Set {
    _tensor: Buffer,
    _slots: Buffer,
    tensor_table: Buffer,
    slot_table: Buffer,
    /// Bytes of each compressed chunk.
    bytes: Buffer,
    statuses: Buffer,
}

/// One tensor, as often as calls rotate over.
pub(super) struct Packing<'a> {
    rig: &'a Rig,
    library: &'a Nvcomp,
    setting: Setting,
    cut: Cut,
    /// Bytes of each chunk of the tensor.
    lens: Buffer,
    temp: Temp,
    sets: Vec<Set>,
}

impl<'a> Packing<'a> {
    /// `once`, repeated `times` times.
    pub fn new(
        rig: &'a Rig,
        library: &'a Nvcomp,
        setting: Setting,
        once: &[u8],
        times: usize,
    ) -> Result<Packing<'a>> {
        let device = &rig.device;
        let options = setting.compress();
        for way in Way::ALL {
            let asked = library.alignment(options, setting.decompress(way))?;
            if !ALIGNED.is_multiple_of(asked) {
                return Err(NvcompError::Alignment(asked).into());
            }
        }
        let total = once.len() * times;
        let chunk = setting.chunk.min(total);
        ensure!(chunk > 0, "there is nothing to compress");
        let count = total.div_ceil(chunk);
        let slot = library.max_output(chunk, options)?.next_multiple_of(ALIGNED);
        let cut = Cut { total, chunk, count, slot };

        let mut lens = vec![chunk as u64; count];
        lens[count - 1] = (total - (count - 1) * chunk) as u64;
        let lens = Buffer::from_slice(device, bytemuck::cast_slice(&lens))?;
        let stream = rig.stream.stream().0;
        let temp = Temp::new(device, library.compress_temp((count, chunk), total, options, stream)?)?;
        let set = || -> Result<Set> {
            let tensor = repeat(device, once, times)?;
            let slots = Buffer::new(device, slot * count)?;
            Ok(Set {
                tensor_table: table(device, &tensor, chunk, count)?,
                slot_table: table(device, &slots, slot, count)?,
                _tensor: tensor,
                _slots: slots,
                bytes: allocate_statuses::<u64>(device, count)?,
                statuses: allocate_statuses::<Status>(device, count)?,
            })
        };
        let sets = (0..rig.sets(total)).map(|_| set()).collect::<Result<_>>()?;
        Ok(Packing { rig, library, setting, cut, lens, temp, sets })
    }

    /// Compresses call after call, each another copy of the tensor in turn. Times, and bytes of all compressed chunks
    /// together.
    pub fn compress(&self) -> Result<(Times, usize)> {
        const CALL: &str = "nvcompBatchedANSCompressAsync";
        let options = self.setting.compress();
        let times = self.rig.time(|i, stream| {
            let set = &self.sets[i % self.sets.len()];
            // SAFETY: tables of `count` entries each, that point at chunks of `lens` bytes and at slots of what nvCOMP
            // said it needs; all of it is ours, used by one stream alone, and lives until `time` has waited.
            let status = unsafe {
                (self.library.compress)(
                    at(&set.tensor_table),
                    at(&self.lens),
                    self.cut.chunk,
                    self.cut.count,
                    self.temp.pointer(),
                    self.temp.bytes,
                    at(&set.slot_table),
                    at(&set.bytes),
                    options,
                    at(&set.statuses),
                    stream.0,
                )
            };
            Ok(self.library.check(CALL, status)?)
        })?;
        let mut packed = 0;
        for set in self.sets_in_use() {
            self.library.check_chunks(CALL, &read::<Status>(&set.statuses, self.cut.count)?)?;
            let bytes = read::<u64>(&set.bytes, self.cut.count)?;
            ensure!(
                bytes.iter().all(|&b| b > 0 && b <= self.cut.slot as u64),
                "{CALL}: a chunk of {:?} bytes, with room for {}",
                bytes.iter().max(),
                self.cut.slot
            );
            packed = usize::try_from(bytes.iter().sum::<u64>())?;
        }
        Ok((times, packed))
    }

    /// Decompresses what `compress` made, call after call, each to an output of its own in turn, and holds every
    /// output against `once` over and over.
    pub fn decompress(&self, way: Way, once: &[u8]) -> Result<Times> {
        const CALL: &str = "nvcompBatchedANSDecompressAsync";
        let (device, cut, library) = (&self.rig.device, &self.cut, self.library);
        let options = self.setting.decompress(way);
        let stream = self.rig.stream.stream().0;
        let needed = library.decompress_temp((cut.count, cut.chunk), cut.total, options, stream)?;
        let temp = Temp::new(device, needed)?;
        // Memory may still hold the output of an earlier case.
        let blank = vec![UNTOUCHED; once.len()];
        let rooms: Vec<Room> = (0..self.sets.len())
            .map(|_| Room::new(device, repeat(device, &blank, cut.total / once.len())?, cut))
            .collect::<Result<_>>()?;

        let times = self.rig.time(|i, stream| {
            let (set, room) = (&self.sets[i % self.sets.len()], &rooms[i % rooms.len()]);
            // SAFETY: tables of `count` entries each, that point at what was compressed and at room for `lens` bytes;
            // all of it is ours, used by one stream alone, and lives until `time` has waited.
            let status = unsafe {
                (library.decompress)(
                    at(&set.slot_table),
                    at(&set.bytes),
                    at(&self.lens),
                    at(&room.bytes),
                    cut.count,
                    temp.pointer(),
                    temp.bytes,
                    at(&room.table),
                    options,
                    at(&room.statuses),
                    stream.0,
                )
            };
            Ok(library.check(CALL, status)?)
        })?;
        let lens = read::<u64>(&self.lens, cut.count)?;
        for room in rooms.iter().take(self.rig.repeats) {
            let mut statuses = read::<Status>(&room.statuses, cut.count)?;
            let mut bytes = read::<u64>(&room.bytes, cut.count)?;
            if way == Way::Unchecked {
                // Who checks nothing may have nothing to tell; the output does.
                statuses.retain(|&s| s != Status::from_ne_bytes([UNTOUCHED; 4]));
                if bytes.iter().all(|&b| b == u64::from_ne_bytes([UNTOUCHED; 8])) {
                    bytes.clone_from(&lens);
                }
            }
            library.check_chunks(CALL, &statuses)?;
            if bytes != lens || !is_repeated(&room.out, once)? {
                let what = format!("{}, {}", self.setting.name(), way.name());
                return Err(NvcompError::RoundTrip(what).into());
            }
        }
        Ok(times)
    }

    /// The sets that calls came to.
    fn sets_in_use(&self) -> impl Iterator<Item = &Set> {
        self.sets.iter().take(self.rig.repeats)
    }
}

/// Room for what is decompressed.
struct Room {
    out: Buffer,
    table: Buffer,
    /// Bytes that were written for each chunk.
    bytes: Buffer,
    statuses: Buffer,
}

impl Room {
    fn new(device: &Device, out: Buffer, cut: &Cut) -> Result<Room> {
        Ok(Room {
            table: table(device, &out, cut.chunk, cut.count)?,
            bytes: allocate_statuses::<u64>(device, cut.count)?,
            statuses: allocate_statuses::<Status>(device, cut.count)?,
            out,
        })
    }
}

/// Temporary memory; a null pointer where none is needed.
struct Temp {
    buffer: Option<Buffer>,
    bytes: usize,
}

impl Temp {
    fn new(device: &Device, bytes: usize) -> Result<Temp> {
        let buffer = if bytes > 0 { Some(Buffer::new(device, bytes)?) } else { None };
        Ok(Temp { buffer, bytes })
    }

    fn pointer(&self) -> DevicePointer {
        self.buffer.as_ref().map_or(ptr::null_mut(), at)
    }
}

fn at(buffer: &Buffer) -> DevicePointer {
    buffer.slice().address as DevicePointer
}

/// Addresses of parts of a buffer, on the device.
fn table(device: &Device, buffer: &Buffer, stride: usize, count: usize) -> Result<Buffer> {
    let start = buffer.slice().address;
    let addresses: Vec<u64> = (0..count).map(|i| start + (i * stride) as u64).collect();
    Ok(Buffer::from_slice(device, bytemuck::cast_slice(&addresses))?)
}

/// Room for an answer a chunk, none of which is a good one yet.
fn allocate_statuses<T: Pod>(device: &Device, count: usize) -> Result<Buffer> {
    Ok(Buffer::from_slice(device, &vec![UNTOUCHED; count * size_of::<T>()])?)
}

fn read<T: Pod>(buffer: &Buffer, count: usize) -> Result<Vec<T>> {
    let mut out = vec![T::zeroed(); count];
    buffer.read(bytemuck::cast_slice_mut(&mut out), Stream::DEFAULT)?;
    Ok(out)
}
