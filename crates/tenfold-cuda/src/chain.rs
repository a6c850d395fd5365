//! Chains of preparation steps on a device: a tensor is made working values, each step is a kernel or a product over all of
//! them, and what comes of it is encoded as a tensor of its own; decoding goes the other way.

use tenfold::prepare::{Axis, EIGHTHS, Positions, Real, Rotation, Step};
use tenfold::{Codec, Dtype, Goal, format};

use crate::decode::{self, DecodeRequest, DecodeSettings, decode_with, decode_workspace_len};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Matrix, Product, Shape, Stream};
use crate::encode::{Behind, EncodeRequest, encode, encode_workspace_len};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::pages::{PRODUCT_BYTES, packed};
use crate::pieces::{ALIGN, Pieces, bytes_of};
use crate::rope::{DeviceRope, Runs, Turning};

/// Threads of a block, and log2 of the columns up to which a warp rotates a block of a row by itself.
const THREADS: u32 = 256;
const WARP_LOG: u32 = 10;
/// Blocks that add up squares, and so sums of them.
const POWERS: u32 = 256;

/// As the kernels have it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Args {
    from: u64,
    to: u64,
    table: u64,
    rows: u64,
    first: u64,
    columns: u32,
    kind: u32,
    by: u32,
    count: u32,
    turning: Turning,
}

/// A step with its numbers on the device.
enum Link {
    Weights {
        rows: bool,
        forward: Buffer,
        inverse: Buffer,
    },
    Means {
        values: Buffer,
    },
    Hadamard {
        log2: u32,
        signs: Buffer,
    },
    Dct {
        log2: u32,
        forward: Buffer,
        inverse: Buffer,
    },
    /// Where runs of rows start, and how many rows a run has.
    Rope {
        rope: DeviceRope,
        starts: Buffer,
        run: u64,
    },
    Delta {
        group: u32,
    },
    Basis {
        means: Buffer,
        vectors: Buffer,
        forward: Option<Buffer>,
        rank: usize,
        measured: bool,
    },
}

/// A chain of preparation steps on a device, for tensors of one dtype and shape.
///
/// Weights, means and differences give the same bits as on the CPU. Hadamard, DCT and rotary positions agree with it within
/// 2^-18 (f64: 2^-40) of the largest magnitude that a value is made of, a basis within 2^-16 of the sum of magnitudes, as
/// docs/format.md has it.
pub struct DeviceChain {
    device: Device,
    dtype: Dtype,
    shape: Vec<usize>,
    rows: usize,
    columns: usize,
    /// Columns behind all steps, and the most there are between any two.
    width: usize,
    most: usize,
    /// Rows that cannot be undone without each other.
    group: usize,
    /// Columns before each.
    links: Vec<(usize, Link)>,
    kept: Option<(Buffer, u32)>,
    /// As the host has them, and as a header does.
    steps: Vec<Step>,
    stored: Buffer,
    /// Scales of the last step's columns: side by side, and a byte each.
    scales: Option<(Buffer, Buffer)>,
}

impl std::fmt::Debug for DeviceChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let steps: Vec<&str> = self.steps.iter().map(Step::name).collect();
        write!(f, "DeviceChain of {} for {} × {} values", steps.join(" + "), self.rows, self.columns)
    }
}

fn bytes<T: Copy, const N: usize>(values: &[T], of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&v| of(v)).collect()
}

fn floats(device: &Device, values: &[f32]) -> Result<Buffer> {
    Buffer::from_slice(device, &bytes(values, f32::to_le_bytes))
}

/// 2^(eighths / 8), as the core has it.
fn power(eighths: i32) -> f32 {
    let bits = EIGHTHS[eighths.rem_euclid(8) as usize].to_bits() as i32 + (eighths.div_euclid(8) << 23);
    f32::from_bits(bits as u32)
}

/// A DCT's matrices in the working precision.
fn matrices(dct: &tenfold::prepare::Dct, inverse: bool, wide: bool) -> Vec<u8> {
    fn flat<R: Real>(matrices: Vec<Vec<R>>) -> Vec<R> {
        matrices.into_iter().flatten().collect()
    }
    match wide {
        true => bytes(&flat(dct.matrices::<f64>(inverse)), f64::to_le_bytes),
        false => bytes(&flat(dct.matrices::<f32>(inverse)), f32::to_le_bytes),
    }
}

impl Link {
    /// A step for a tensor of so many columns; none for kept elements, which are no link of the chain.
    fn new(device: &Device, step: &Step, columns: usize, wide: bool) -> Result<Option<Link>> {
        let copy = |bytes: &[u8]| Buffer::from_slice(device, bytes);
        Ok(Some(match step {
            Step::Weights(w) => {
                let factors = |sign: i32| -> Vec<f32> {
                    w.eighths().iter().map(|&e| power(sign * i32::from(e))).collect()
                };
                Link::Weights {
                    rows: w.axis() == Axis::Rows,
                    forward: floats(device, &factors(1))?,
                    inverse: floats(device, &factors(-1))?,
                }
            }
            Step::Means(m) => Link::Means { values: floats(device, m.values())? },
            Step::Hadamard(h) => Link::Hadamard {
                log2: u32::from(h.log2()).min(columns.max(1).ilog2()),
                signs: floats(device, &h.signs::<f32>(columns))?,
            },
            Step::Dct(d) => Link::Dct {
                log2: u32::from(d.log2()),
                forward: copy(&matrices(d, false, wide))?,
                inverse: copy(&matrices(d, true, wide))?,
            },
            Step::Rope(r) => {
                // One run of all rows, or a run for each.
                let (starts, run) = match r.positions() {
                    Positions::From(first) => (vec![*first], u64::MAX),
                    Positions::List(list) => (list.clone(), 1),
                };
                let starts = copy(&bytes(&starts, u64::to_le_bytes))?;
                Link::Rope { rope: DeviceRope::new(device, r)?, starts, run }
            }
            Step::Delta(d) => Link::Delta { group: d.group() as u32 },
            Step::Basis(rotation) => Link::basis(device, rotation, wide)?,
            Step::Kept(_) => return Ok(None),
            _ => {
                let why = format!("preparation step {} is not for a device", step.name());
                return Err(Error::InvalidArgument(why));
            }
        }))
    }

    fn basis(device: &Device, rotation: &Rotation, wide: bool) -> Result<Link> {
        if !wide {
            device.driver.can_multiply()?;
        }
        let Some(basis) = rotation.basis() else {
            return Err(Error::InvalidArgument("a basis that a blob names is not there".into()));
        };
        let forward = match basis.can_encode() {
            true => Some(floats(device, basis.forward_columns())?),
            false => None,
        };
        Ok(Link::Basis {
            means: floats(device, basis.means())?,
            vectors: floats(device, basis.vectors())?,
            forward,
            rank: basis.rank(),
            measured: basis.is_orthonormal() && basis.rank() < basis.cols(),
        })
    }
}

/// Memory that a chain works in.
#[derive(Clone, Copy)]
struct Room {
    /// Two places for rows, and one for products.
    here: DeviceSlice,
    other: DeviceSlice,
    scratch: DeviceSlice,
}

impl DeviceChain {
    /// Copies the numbers of steps to a device, for tensors of this dtype and shape. Kept elements may be the first of the
    /// steps: they are put back when the others are undone, and taken for zeros when they are done. Fails with
    /// [`Error::NoDevice`] where a basis needs cuBLAS and there is none.
    pub fn new(device: &Device, dtype: Dtype, shape: &[usize], steps: &[Step]) -> Result<DeviceChain> {
        if !dtype.is_float() {
            return Err(Error::InvalidArgument(format!("{dtype} tensors have no preparation steps")));
        }
        // Refuses shapes whose size overflows.
        tenfold::max_encoded_len(dtype, shape)?;
        let columns = shape.last().copied().unwrap_or(1);
        let values = if shape.contains(&0) { 0 } else { shape.iter().product::<usize>() };
        let rows = values / columns.max(1);
        format::check_steps(steps, rows, columns)?;
        if u32::try_from(columns).is_err() {
            return Err(Error::InvalidArgument(format!("{columns} columns are too many for a device")));
        }
        let wide = dtype == Dtype::F64;
        let (mut links, mut width, mut most) = (Vec::new(), columns, columns);
        for step in steps {
            if let Some(link) = Link::new(device, step, width, wide)? {
                links.push((width, link));
            }
            width = step.width(width);
            most = most.max(width);
        }
        let kept = match steps.first() {
            Some(Step::Kept(kept)) => {
                // As the kernels have it: where a run starts, its element, its length.
                let run = |(start, len, bits): (u64, u32, u64)| {
                    [start, bits, u64::from(len)].into_iter().flat_map(u64::to_le_bytes)
                };
                let runs: Vec<u8> = kept.runs().flat_map(run).collect();
                let count = u32::try_from(kept.runs().len())
                    .map_err(|_| Error::InvalidArgument("more kept elements than a device takes".into()))?;
                Some((Buffer::from_slice(device, &runs)?, count))
            }
            _ => None,
        };
        let scales = match steps.last() {
            Some(Step::Basis(b)) => b.basis().map(|b| b.scales()).filter(|s| !s.is_empty()),
            _ => None,
        };
        let scales = match scales {
            Some(s) => Some((Buffer::from_slice(device, &packed(s))?, Buffer::from_slice(device, s)?)),
            None => None,
        };
        Ok(DeviceChain {
            device: device.clone(),
            dtype,
            shape: shape.to_vec(),
            rows,
            columns,
            width,
            most,
            group: steps.iter().map(Step::group).max().unwrap_or(1),
            links,
            kept,
            stored: Buffer::from_slice(device, &format::steps(steps)?)?,
            steps: steps.to_vec(),
            scales,
        })
    }

    /// The dtype of working values.
    fn working(&self) -> Dtype {
        if self.dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 }
    }

    fn has_basis(&self) -> bool {
        self.links.iter().any(|(_, l)| matches!(l, Link::Basis { .. }))
    }

    /// Bytes of the places for so many rows.
    fn room_len(&self, rows: usize, forward: bool) -> Result<[usize; 3]> {
        let place = bytes_of(rows, self.most, self.working().size())?;
        let moves = |(_, link): &(usize, Link)| match link {
            Link::Basis { .. } => true,
            Link::Delta { .. } => forward,
            _ => false,
        };
        let other = if self.links.iter().any(moves) { place } else { 0 };
        Ok([place, other, if self.has_basis() { PRODUCT_BYTES } else { 0 }])
    }

    fn room(&self, workspace: DeviceSlice, pieces: &mut Pieces, rows: usize, forward: bool) -> Result<Room> {
        let [here, other, scratch] = self.room_len(rows, forward)?;
        let mut take = |len: usize| workspace.part(pieces.take(len), len);
        Ok(Room { here: take(here)?, other: take(other)?, scratch: take(scratch)? })
    }

    unsafe fn launch(&self, kernels: [&'static str; 2], args: &Args, stream: Stream) -> Result<()> {
        let work = (args.rows.saturating_mul(u64::from(args.columns))).div_ceil(u64::from(THREADS)).max(1);
        let grid = work.min(u64::from(self.device.properties().multiprocessors) * 16) as u32;
        // SAFETY: the caller's.
        unsafe { self.device.launch(self.kernel(kernels), Shape::new(grid, THREADS, 0), args, stream) }
    }

    fn kernel(&self, [narrow, wide]: [&'static str; 2]) -> &'static str {
        if self.dtype == Dtype::F64 { wide } else { narrow }
    }

    unsafe fn hadamard(&self, args: &Args, stream: Stream) -> Result<()> {
        let warps = args.kind <= WARP_LOG;
        let blocks = if warps { THREADS / 32 } else { 1 };
        let shared = (self.working().size() as u32 * blocks) << args.kind;
        let properties = self.device.properties();
        if shared > properties.shared_per_block.saturating_sub(1 << 10) {
            let columns = 1u32 << args.kind;
            return Err(Error::NoDevice(format!(
                "this device has too little shared memory to rotate blocks of {columns} columns"
            )));
        }
        let grid = properties.multiprocessors * (properties.shared_per_block / shared.max(1)).clamp(1, 8);
        let args = Args { count: warps as u32, ..*args };
        let kernel = self.kernel(["chain_hadamard_4", "chain_hadamard_8"]);
        // SAFETY: the caller's.
        unsafe { self.device.launch(kernel, Shape::new(grid, THREADS, shared), &args, stream) }
    }

    /// Queues a product of rows with a matrix of so many rows and columns, to another place.
    unsafe fn multiply(&self, args: &Args, room: &Room, bias: u64, stream: Stream) -> Result<()> {
        if self.dtype == Dtype::F64 {
            // SAFETY: the caller's.
            return unsafe { self.launch(["chain_product_8"; 2], args, stream) };
        }
        let product = Product {
            left: args.from,
            right: args.table,
            to: args.to,
            rows: args.rows as usize,
            inner: args.count as usize,
            columns: args.columns as usize,
            of: Matrix::F32,
            out: Matrix::F32,
            bias,
            workspace: room.scratch,
        };
        // SAFETY: the caller's.
        unsafe { self.device.driver.multiply(&product, stream) }
    }

    /// Queues the steps on the rows in `room.here`; returns where the working values are then. Squares of what a basis
    /// leaves out go to `powers`, if they are asked for: twice [`POWERS`] sums a basis.
    unsafe fn forward(&self, mut room: Room, powers: Option<DeviceSlice>, stream: Stream) -> Result<u64> {
        let mut powers = powers.map(|p| p.address);
        for (columns, link) in &self.links {
            let here = room.here.address;
            let args = Args {
                from: here,
                to: here,
                rows: self.rows as u64,
                columns: *columns as u32,
                ..Args::default()
            };
            // SAFETY: the caller's; the places do not overlap.
            unsafe {
                match link {
                    Link::Weights { rows, forward, .. } => {
                        let args = Args { table: forward.slice().address, by: *rows as u32, ..args };
                        self.launch(["chain_weigh_4", "chain_weigh_8"], &args, stream)?;
                    }
                    Link::Means { values } => {
                        let args = Args { table: values.slice().address, by: 1, ..args };
                        self.launch(["chain_add_4", "chain_add_8"], &args, stream)?;
                    }
                    Link::Hadamard { log2, signs } => {
                        self.hadamard(&Args { table: signs.slice().address, kind: *log2, ..args }, stream)?;
                    }
                    Link::Dct { log2, forward, .. } => {
                        let args = Args { table: forward.slice().address, kind: *log2, ..args };
                        self.launch(["chain_cosines_4", "chain_cosines_8"], &args, stream)?;
                    }
                    Link::Rope { rope, starts, run } => {
                        let runs = Runs::new(starts.slice(), *run);
                        let args = Args { turning: rope.turning(runs, 0, true), ..args };
                        self.launch(["chain_turn_4", "chain_turn_8"], &args, stream)?;
                    }
                    Link::Delta { group } => {
                        let args = Args { to: room.other.address, count: *group, ..args };
                        self.launch(["chain_differ_4", "chain_differ_8"], &args, stream)?;
                        std::mem::swap(&mut room.here, &mut room.other);
                    }
                    Link::Basis { means, forward, rank, measured, .. } => {
                        let Some(forward) = forward else {
                            let why = "a basis out of a blob is for decoding only";
                            return Err(Error::InvalidArgument(why.into()));
                        };
                        let centered = Args { table: means.slice().address, by: 1, ..args };
                        self.launch(["chain_add_4", "chain_add_8"], &centered, stream)?;
                        let to = room.other.address;
                        let table = forward.slice().address;
                        let product =
                            Args { to, table, columns: *rank as u32, count: *columns as u32, ..args };
                        self.multiply(&product, &room, 0, stream)?;
                        if let Some(sums) = powers.as_mut().filter(|_| *measured) {
                            self.power(&Args { to: *sums, ..args }, stream)?;
                            let after = *sums + u64::from(POWERS) * 8;
                            self.power(&Args { from: to, to: after, columns: *rank as u32, ..args }, stream)?;
                            *sums = after + u64::from(POWERS) * 8;
                        }
                        std::mem::swap(&mut room.here, &mut room.other);
                    }
                }
            }
        }
        Ok(room.here.address)
    }

    unsafe fn power(&self, args: &Args, stream: Stream) -> Result<()> {
        let kernel = self.kernel(["chain_power_4", "chain_power_8"]);
        // SAFETY: the caller's.
        unsafe { self.device.launch(kernel, Shape::new(POWERS, THREADS, 0), args, stream) }
    }

    /// Queues the undoing of all steps on so many rows in `room.here`, the first of which is row `first` and begins a group;
    /// returns where they are then.
    unsafe fn inverse(&self, mut room: Room, rows: usize, first: usize, stream: Stream) -> Result<u64> {
        for (columns, link) in self.links.iter().rev() {
            let here = room.here.address;
            let args = Args {
                from: here,
                to: here,
                rows: rows as u64,
                first: first as u64,
                columns: *columns as u32,
                ..Args::default()
            };
            // SAFETY: the caller's; the places do not overlap.
            unsafe {
                match link {
                    Link::Weights { rows, inverse, .. } => {
                        let args = Args { table: inverse.slice().address, by: *rows as u32, ..args };
                        self.launch(["chain_weigh_4", "chain_weigh_8"], &args, stream)?;
                    }
                    Link::Means { values } => {
                        let args = Args { table: values.slice().address, ..args };
                        self.launch(["chain_add_4", "chain_add_8"], &args, stream)?;
                    }
                    Link::Hadamard { log2, signs } => {
                        let table = signs.slice().address;
                        self.hadamard(&Args { table, kind: *log2, by: 1, ..args }, stream)?;
                    }
                    Link::Dct { log2, inverse, .. } => {
                        let args = Args { table: inverse.slice().address, kind: *log2, ..args };
                        self.launch(["chain_cosines_4", "chain_cosines_8"], &args, stream)?;
                    }
                    Link::Rope { rope, starts, run } => {
                        let runs = Runs::new(starts.slice(), *run);
                        let args = Args { turning: rope.turning(runs, first as u64, false), ..args };
                        self.launch(["chain_turn_4", "chain_turn_8"], &args, stream)?;
                    }
                    Link::Delta { group } => {
                        let args = Args { count: *group, ..args };
                        self.launch(["chain_sum_4", "chain_sum_8"], &args, stream)?;
                    }
                    Link::Basis { means, vectors, rank, .. } => {
                        let (to, table) = (room.other.address, vectors.slice().address);
                        let product = Args { to, table, count: *rank as u32, ..args };
                        self.multiply(&product, &room, means.slice().address, stream)?;
                        if self.dtype == Dtype::F64 {
                            let table = means.slice().address;
                            let args = Args { from: to, to, table, ..args };
                            self.launch(["chain_add_8"; 2], &args, stream)?;
                        }
                        std::mem::swap(&mut room.here, &mut room.other);
                    }
                }
            }
        }
        Ok(room.here.address)
    }

    /// Bytes that what a basis leaves out is measured in.
    pub(crate) fn powers_len(&self) -> usize {
        let measured = |(_, link): &&(usize, Link)| matches!(link, Link::Basis { measured: true, .. });
        self.links.iter().filter(measured).count() * 2 * POWERS as usize * 8
    }

    /// The squared error that no codec can make good, by sums of squares as [`encode_measured`] leaves them.
    pub(crate) fn lost(powers: &[u8]) -> f64 {
        let half = POWERS as usize * 8;
        let sum = |bytes: &[u8]| bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).sum::<f64>();
        powers.chunks_exact(2 * half).map(|p| (sum(&p[..half]) - sum(&p[half..])).max(0.0)).sum()
    }

    /// The goal for the working values. Which error a goal relative to the tensor's variance asks for only who knows it can
    /// say.
    pub(crate) fn goal(
        &self,
        goal: Goal,
        lost: f64,
        variance: impl FnOnce() -> tenfold::Result<f64>,
    ) -> Result<Option<Goal>> {
        Ok(format::goal_behind(&self.steps, goal, (self.rows, self.columns), lost, variance)?)
    }

    /// The request for the working values, which lie at an address.
    fn request(&self, request: &EncodeRequest, at: u64, goal: Goal) -> Result<EncodeRequest> {
        if request.dtype != self.dtype || request.shape != self.shape || self.rows == 0 || self.columns == 0 {
            return Err(Error::InvalidArgument(format!(
                "the chain is for {} tensors of shape {:?} that have values",
                self.dtype, self.shape
            )));
        }
        let need = bytes_of(self.rows, self.columns, self.dtype.size())?;
        if request.tensor.len != need || !request.tensor.address.is_multiple_of(16) {
            return Err(Error::InvalidArgument(format!(
                "{need} bytes of a tensor at a multiple of 16 are needed, {} given",
                request.tensor.len
            )));
        }
        let mut shape = self.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = self.width;
        }
        let working = self.working();
        let tensor = DeviceSlice::new(at, bytes_of(self.rows, self.width, working.size())?);
        let mut options = request.options.clone();
        options.goal = goal;
        let mut inner = EncodeRequest::new(tensor, working, &shape, request.out, options);
        inner.behind = Some(Behind {
            dtype: self.dtype,
            columns: self.columns,
            steps: self.stored.slice(),
            scales: self.scales.as_ref().map_or(0, |s| s.1.slice().address),
            positions: None,
        });
        Ok(inner)
    }

    /// Queues the steps on a tensor, and hands on what is left to encode: the request for the working values and the
    /// workspace for that.
    ///
    /// # Safety
    /// As for [`encode_prepared`].
    pub(crate) unsafe fn prepare(
        &self,
        request: &EncodeRequest,
        powers: Option<DeviceSlice>,
        workspace: DeviceSlice,
        stream: Stream,
    ) -> Result<(EncodeRequest, DeviceSlice)> {
        // Says what is wrong before anything is queued.
        self.request(request, 0, request.options.goal)?;
        let workspace = aligned(workspace)?;
        let mut pieces = Pieces::default();
        let room = self.room(workspace, &mut pieces, self.rows, true)?;
        let args = Args {
            from: request.tensor.address,
            to: room.here.address,
            rows: self.rows as u64,
            columns: self.columns as u32,
            kind: self.dtype.id() as u32,
            by: self.kept.is_some() as u32,
            ..Args::default()
        };
        // SAFETY: the caller's; the pieces of the workspace do not overlap.
        let at = unsafe {
            self.launch(["chain_load_4", "chain_load_8"], &args, stream)?;
            self.forward(room, powers, stream)?
        };
        let rest = workspace.part(pieces.at.min(workspace.len), workspace.len.saturating_sub(pieces.at))?;
        Ok((self.request(request, at, request.options.goal)?, rest))
    }

    /// Rows that must be undone for some values: the first and how many.
    fn rows_of(&self, first: u64, count: u64) -> Result<(usize, usize)> {
        let values = (self.rows * self.columns) as u64;
        if first > values || count > values - first {
            return Err(Error::InvalidArgument(format!(
                "values {first} to {} of a tensor with {values}",
                first.saturating_add(count)
            )));
        }
        let columns = self.columns.max(1);
        let (start, end) = (first as usize / columns, (first + count).div_ceil(columns as u64) as usize);
        let start = if count == 0 { 0 } else { start / self.group * self.group };
        Ok((start, if count == 0 { 0 } else { end - start }))
    }

    /// The values that a request is for.
    fn wanted(&self, request: &DecodeRequest) -> Result<(u64, u64)> {
        let all = (self.rows * self.columns) as u64;
        let (first, count) = request.values;
        let count = count.unwrap_or(all.saturating_sub(first));
        let floats = request.dtype == self.dtype
            || (request.dtype.is_float() && request.dtype.size() <= 4 && self.dtype != Dtype::F64);
        let need = count.saturating_mul(request.dtype.size() as u64);
        if !floats || request.out.len as u64 != need || !request.out.address.is_multiple_of(16) {
            return Err(Error::InvalidArgument(format!(
                "{need} bytes of {} at a multiple of 16 are decoded, {} of {} given",
                self.dtype, request.out.len, request.dtype
            )));
        }
        Ok((first, count))
    }

    /// The request for working values of some rows.
    fn inner(&self, request: &DecodeRequest, at: u64, first: usize, rows: usize) -> DecodeRequest {
        let working = self.working();
        let out = DeviceSlice::new(at, rows * self.width * working.size());
        DecodeRequest::new(request.blob, out, working)
            .with_values((first * self.width) as u64, (rows * self.width) as u64)
            .with_codec(Codec::Levels)
    }
}

/// What of a workspace pieces are dealt out of.
fn aligned(workspace: DeviceSlice) -> Result<DeviceSlice> {
    let skipped = workspace.address.next_multiple_of(ALIGN as u64) - workspace.address;
    workspace.part(skipped as usize, workspace.len.saturating_sub(skipped as usize))
}

/// Bytes of workspace that [`encode_prepared`] needs.
pub fn encode_prepared_workspace_len(chain: &DeviceChain, request: &EncodeRequest) -> Result<usize> {
    let mut pieces = Pieces::default();
    for len in chain.room_len(chain.rows, true)? {
        pieces.take(len);
    }
    let inner = chain.request(request, 0, request.options.goal)?;
    pieces.take(encode_workspace_len(&chain.device, &inner)?);
    Ok(pieces.at + ALIGN)
}

/// Queues the encoding of a tensor behind a chain of steps: as [`encode`] does it, for lossy goals. Goals that are errors
/// must not depend on what only a look at the tensor tells: relative to its variance they are for chains with weights, whose errors
/// are relative anyway, and with a basis that leaves something out they are not for a device. A tensor with values that are not finite
/// is refused in its status, unless the chain keeps these.
///
/// # Safety
/// As for [`encode`]; so is the chain.
pub unsafe fn encode_prepared(
    chain: &DeviceChain,
    request: &EncodeRequest,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let unknown = || {
        let why = "what an error is relative to is not known before the device has seen the tensor: ask for Goal::Mse";
        Err(tenfold::Error::InvalidArgument(why.into()))
    };
    if chain.powers_len() > 0 && matches!(request.options.goal, Goal::Mse(_) | Goal::Nmse(_)) {
        let why = "what a basis leaves out is not known before the device has seen the tensor: ask for bytes or a step";
        return Err(Error::InvalidArgument(why.into()));
    }
    let Some(goal) = chain.goal(request.options.goal, 0.0, unknown)? else {
        return Err(Error::InvalidArgument("an error of nothing is for a lossless blob".into()));
    };
    // SAFETY: the caller's.
    unsafe {
        let (mut inner, rest) = chain.prepare(request, None, workspace, stream)?;
        inner.options.goal = goal;
        encode(&chain.device, &inner, status, rest, stream)
    }
}

/// Bytes of workspace that [`decode_prepared`] needs.
pub fn decode_prepared_workspace_len(chain: &DeviceChain, request: &DecodeRequest) -> Result<usize> {
    let (first, count) = chain.wanted(request)?;
    let (start, rows) = chain.rows_of(first, count)?;
    let mut pieces = Pieces::default();
    for len in chain.room_len(rows, false)? {
        pieces.take(len);
    }
    pieces.take(decode_workspace_len(&[chain.inner(request, 0, start, rows)]));
    Ok(pieces.at + ALIGN)
}

/// Queues the decoding of a blob that has exactly the steps of a chain, for a tensor of the chain's dtype and shape: as
/// [`decode`](crate::decode()) does it for others.
///
/// # Safety
/// As for [`decode`](crate::decode()); so is the chain.
pub unsafe fn decode_prepared(
    chain: &DeviceChain,
    request: &DecodeRequest,
    settings: &DecodeSettings,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let (first, count) = chain.wanted(request)?;
    let (start, rows) = chain.rows_of(first, count)?;
    let workspace = aligned(workspace)?;
    let mut pieces = Pieces::default();
    let room = chain.room(workspace, &mut pieces, rows, false)?;
    let requests = [chain.inner(request, room.here.address, start, rows)];
    let work = workspace.part(pieces.at, decode_workspace_len(&requests))?;
    let behind = decode::Behind {
        columns: chain.columns as u32,
        rank: chain.width as u32,
        scales: chain.scales.as_ref().map_or(0, |s| s.0.slice().address),
        before: decode::STEPS_KNOWN,
        known: chain.stored.slice().address,
        known_len: chain.stored.slice().len as u64,
        ..decode::Behind::NOTHING
    };
    // SAFETY: the caller's; the pieces of the workspace do not overlap.
    unsafe {
        decode_with(&chain.device, &requests, &behind, settings, status, work, stream)?;
        if count == 0 {
            return Ok(());
        }
        let at = chain.inverse(room, rows, start, stream)?;
        let skipped = first - (start * chain.columns) as u64;
        // As one row of all values that are wanted.
        let args = Args {
            from: at + skipped * chain.working().size() as u64,
            to: request.out.address,
            rows: count,
            first,
            columns: 1,
            kind: request.dtype.id() as u32,
            ..Args::default()
        };
        chain.launch(["chain_store_4", "chain_store_8"], &args, stream)?;
        if let Some((runs, count)) = &chain.kept {
            let (kind, by) = (chain.dtype.id() as u32, request.dtype.id() as u32);
            let args = Args { table: runs.slice().address, kind, by, count: *count, ..args };
            chain.launch(["chain_keep"; 2], &args, stream)?;
        }
    }
    Ok(())
}
