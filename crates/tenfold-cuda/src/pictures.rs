//! Pictures that a video engine has decoded, on their way into a tensor: `kernels/pictures.cu`.
//!
//! What a sample means is the caller's to say ([`Samples`]); nothing here knows of codecs or blobs.

use tenfold::Dtype;

use crate::abi::{self, Kernel, PICTURES_THREADS, PictureArgs, PictureSpecial, SpecialArgs};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};
use crate::memory::Buffer;

/// A picture in the device's memory, as a video engine leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Luma {
    /// Address of the first sample.
    pub address: u64,
    /// Bytes from a line to the next.
    pub pitch: u32,
    /// Samples of a line: an even number.
    pub width: u32,
    /// Lines.
    pub height: u32,
    /// Bits of a sample. Up to 8 it is a byte; above, the high bits of two.
    pub depth: u32,
}

/// Who shares a centre and a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// The whole tensor.
    Tensor,
    /// Groups of so many rows.
    Rows(u64),
    /// Columns.
    Columns,
    /// Nobody: a sample is an element of one byte.
    Bytes,
}

/// What samples of a tensor's pictures mean: value = base · centre + unit · step · (sample − middle).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Samples {
    /// Who shares a centre and a step.
    pub sharing: Sharing,
    /// Factor of the centres.
    pub base: f64,
    /// Factor of the steps.
    pub unit: f64,
    /// Centre and step of each part, as bf16 each, on the device; nothing for [`Sharing::Tensor`].
    pub parts: DeviceSlice,
    /// Columns of the tensor.
    pub columns: u64,
}

/// Which values of a picture go where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PictureValues {
    /// Number of the first value in the tensor.
    pub first: u64,
    /// Samples of the picture before it.
    pub skip: u32,
    /// Values.
    pub count: u32,
    /// Dtype of the elements.
    pub dtype: Dtype,
    /// Where they go.
    pub to: DeviceSlice,
}

impl Samples {
    fn check(&self, luma: &Luma, values: &PictureValues) -> Result<()> {
        let invalid = |what: String| Err(Error::InvalidArgument(what));
        let samples = u64::from(luma.width) * u64::from(luma.height);
        let line = u64::from(luma.width) * if luma.depth > 8 { 2 } else { 1 };
        if !luma.width.is_multiple_of(2) || !(1..=16).contains(&luma.depth) || u64::from(luma.pitch) < line {
            return invalid(format!("a picture of {} × {} samples", luma.width, luma.height));
        }
        let end = u64::from(values.skip) + u64::from(values.count);
        if samples > 1 << 31 || end > samples {
            return invalid(format!("value {end} of a picture with {samples} samples"));
        }
        let bytes = values.count as usize * values.dtype.size();
        let aligned = values.to.address.is_multiple_of(values.dtype.size() as u64);
        if values.to.len != bytes || !aligned {
            return invalid(format!(
                "{bytes} bytes for a picture's elements are needed, {} given",
                values.to.len
            ));
        }
        let last = values.first + u64::from(values.count);
        let parts = match self.sharing {
            Sharing::Tensor => 0,
            Sharing::Rows(0) => return invalid("groups of no rows".into()),
            Sharing::Rows(group) => last.div_ceil(self.columns.max(1)).div_ceil(group),
            Sharing::Columns => self.columns,
            Sharing::Bytes if values.dtype.size() != 1 => {
                return invalid("samples of larger elements".into());
            }
            Sharing::Bytes => 0,
        };
        if self.columns == 0 || (self.parts.len as u64) / 4 < parts {
            return invalid(format!("{parts} centres and steps are needed"));
        }
        Ok(())
    }
}

/// Queues the elements of a picture, and the checksum of all its samples, which is added to the word `check`; that starts as
/// zero.
///
/// # Safety
/// The memory is the device's and is left alone until the stream has passed this call.
pub unsafe fn store_picture(
    device: &Device,
    luma: &Luma,
    samples: &Samples,
    values: &PictureValues,
    check: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    samples.check(luma, values)?;
    let check = check.part(0, 4)?;
    let (scaling, group) = match samples.sharing {
        Sharing::Tensor => (abi::PICTURE_TENSOR, 1),
        Sharing::Rows(group) => (abi::PICTURE_ROWS, group),
        Sharing::Columns => (abi::PICTURE_COLUMNS, 1),
        Sharing::Bytes => (abi::PICTURE_BYTES, 1),
    };
    let args = PictureArgs {
        luma: luma.address.into(),
        to: values.to.into(),
        parts: samples.parts.into(),
        check: check.into(),
        base: samples.base,
        unit: samples.unit,
        first: values.first,
        columns: samples.columns,
        group,
        pitch: luma.pitch,
        width: luma.width,
        height: luma.height,
        depth: luma.depth,
        skip: values.skip,
        count: values.count,
        dtype: u32::from(values.dtype.id()),
        scaling,
    };
    let words = luma.width / 2 * luma.height;
    // SAFETY: the caller's; sizes were held against each other.
    unsafe {
        launch(device, abi::pictures_values, &args, values.count, stream)?;
        // A warp takes a part of the checksum, which is some thousand words.
        launch(device, abi::pictures_check, &args, words.div_ceil(64), stream)
    }
}

unsafe fn launch<A: abi::CType>(
    device: &Device,
    kernel: Kernel<A>,
    args: &A,
    threads: u32,
    stream: Stream,
) -> Result<()> {
    let most = device.properties().multiprocessors * 16;
    let grid = threads.div_ceil(PICTURES_THREADS).clamp(1, most);
    // SAFETY: the caller's.
    unsafe { device.launch(kernel, Shape::new(grid, PICTURES_THREADS, 0), args, stream) }
}

/// Elements of a tensor that no sample holds, on a device.
#[derive(Debug)]
pub struct Specials {
    device: Device,
    table: Buffer,
    count: u32,
    from: Dtype,
    /// One more than the last position.
    end: usize,
}

impl Specials {
    /// Copies positions and elements of a dtype to the device.
    pub fn new(device: &Device, from: Dtype, specials: &[(usize, Vec<u8>)]) -> Result<Specials> {
        let one = |(at, element): &(usize, Vec<u8>)| {
            let mut bits = [0u8; 8];
            bits.iter_mut().zip(element).for_each(|(b, e)| *b = *e);
            PictureSpecial { at: *at as u64, bits: u64::from_le_bytes(bits) }
        };
        let table: Vec<PictureSpecial> = specials.iter().map(one).collect();
        let count = u32::try_from(table.len())
            .map_err(|_| Error::InvalidArgument("more kept elements than a device takes".into()))?;
        let end = specials.iter().map(|s| s.0 + 1).max().unwrap_or(0);
        Ok(Specials { device: device.clone(), table: Buffer::from_values(device, &table)?, count, from, end })
    }

    /// Queues putting them into a tensor of a dtype.
    ///
    /// # Safety
    /// `to` is memory of the device and is left alone until the stream has passed this call; so is this.
    pub unsafe fn put(&self, to: DeviceSlice, dtype: Dtype, stream: Stream) -> Result<()> {
        let floats = dtype.is_float() && dtype.size() <= 4 && self.from != Dtype::F64;
        if to.len / dtype.size() < self.end || !(dtype == self.from || floats) {
            let (from, len) = (self.from, to.len);
            return Err(Error::InvalidArgument(format!("elements of {from} for {len} bytes of {dtype}")));
        }
        let args = SpecialArgs {
            to: to.into(),
            specials: self.table.slice().into(),
            count: self.count,
            from: u32::from(self.from.id()),
            dtype: u32::from(dtype.id()),
            unused: 0,
        };
        // SAFETY: the caller's; every position is within the tensor.
        unsafe { launch(&self.device, abi::pictures_specials, &args, self.count, stream) }
    }
}
