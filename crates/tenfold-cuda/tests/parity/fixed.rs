//! A lossy blob's plan, read from its header, so that a device can be given the same.

use tenfold::{DecodeOptions, EncodeOptions, Goal};
use tenfold_cuda::{Buffer, EncodeRequest, FixedPlan, Status, Stream, encode_fixed, fixed_workspace_len};

use crate::common::Sample;
use crate::device::Subject;

/// What the header of a lossy blob says of its quantiser.
#[derive(Debug, Clone)]
pub struct Plan {
    pub nu: u32,
    pub step: f64,
    pub bound: Option<f64>,
    pub offsets: [i8; 8],
    pub low: Vec<u8>,
    pub thresholds: Vec<u8>,
    pub width: usize,
    pub rows: (Vec<u8>, u32),
    pub cols: (Vec<u8>, u32),
    pub log: u32,
    pub paired: bool,
}

impl Plan {
    /// One class, no low bits.
    pub fn simple(nu: u32, step: f64) -> Plan {
        Plan {
            nu,
            step,
            bound: None,
            offsets: [0; 8],
            low: vec![0],
            thresholds: Vec::new(),
            width: 1,
            rows: (Vec::new(), 0),
            cols: (Vec::new(), 0),
            log: 12,
            paired: false,
        }
    }

    /// Classes by the rows of a matrix: scale and thresholds.
    pub fn by_rows(mut self, width: usize, scales: Vec<u8>, bits: u32, thresholds: &[u8]) -> Plan {
        self.low = vec![0; thresholds.len() + 1];
        self.thresholds = thresholds.to_vec();
        self.width = width;
        self.rows = (scales, bits);
        self
    }

    /// Reads a header as docs/format.md has it; none for a lossless blob.
    pub fn read(blob: &[u8], sample: &Sample) -> Option<Plan> {
        let mut at = 12;
        let byte = |at: &mut usize| {
            *at += 1;
            blob[*at - 1]
        };
        let varint = |at: &mut usize| {
            let (mut v, mut shift) = (0usize, 0);
            loop {
                *at += 1;
                v |= ((blob[*at - 1] & 0x7f) as usize) << shift;
                shift += 7;
                if blob[*at - 1] < 0x80 {
                    return v;
                }
            }
        };
        if blob[5] != 2 && blob[5] != 5 {
            return None;
        }
        sample.shape.iter().for_each(|&n| assert_eq!(varint(&mut at), n));
        assert_eq!(byte(&mut at), 0);
        let nu = byte(&mut at) as u32;
        byte(&mut at);
        varint(&mut at);
        let log = byte(&mut at) as u32;
        let wide = sample.dtype == tenfold::Dtype::F64;
        let scale = match wide {
            true => f64::from_le_bytes(blob[at..at + 8].try_into().unwrap()),
            false => f32::from_le_bytes(blob[at..at + 4].try_into().unwrap()) as f64,
        };
        at += if wide { 8 } else { 4 };
        let mut plan = Plan::simple(nu, scale * 64.0);
        plan.log = log;
        plan.paired = blob[5] == 5;
        for i in 0..byte(&mut at) as usize {
            plan.offsets[i] = byte(&mut at) as i8;
        }
        let classes = byte(&mut at) as usize;
        if classes > 1 {
            plan.width = varint(&mut at);
            let bits = byte(&mut at) as u32;
            plan.thresholds = (1..classes).map(|_| byte(&mut at)).collect();
            let mut list = |count: usize, bits: u32| {
                let bit = |i: usize| (blob[at + i / 8] >> (i % 8) & 1) << (i % bits.max(1) as usize);
                let of = |i: usize| (0..bits as usize).map(|b| bit(i * bits as usize + b)).sum();
                let scales: Vec<u8> = if bits == 0 { Vec::new() } else { (0..count).map(of).collect() };
                at += (count * bits as usize).div_ceil(8);
                scales
            };
            plan.rows = (list(sample.len().div_ceil(plan.width), bits & 15), bits & 15);
            plan.cols = (list(plan.width, bits >> 4), bits >> 4);
        }
        plan.low = (0..classes).map(|_| byte(&mut at)).collect();
        Some(plan)
    }
}

/// Encodes on a device by a plan, with so many passes and so much room; nothing past the room may change.
pub fn encode_by(
    subject: &Subject,
    sample: &Sample,
    plan: &Plan,
    lane_values: u32,
    passes: u32,
    room: usize,
) -> tenfold::engine::Result<Vec<u8>> {
    let device = subject.device();
    let tensor = Buffer::from_slice(device, &sample.data).unwrap();
    let guard = 4096;
    let out = Buffer::from_slice(device, &vec![0xa5; room + guard]).unwrap();
    let status = Buffer::new(device, 16).unwrap();
    let scales = |list: &[u8]| Buffer::from_slice(device, if list.is_empty() { &[0] } else { list }).unwrap();
    let (rows, cols) = (scales(&plan.rows.0), scales(&plan.cols.0));
    let fixed = FixedPlan {
        nu: plan.nu,
        step: plan.step,
        bound: plan.bound,
        offsets: plan.offsets,
        low: plan.low.clone(),
        thresholds: plan.thresholds.clone(),
        width: plan.width as u64,
        rows: plan.rows.0.len() as u64,
        row_scales: (rows.slice().address, plan.rows.1),
        col_scales: (cols.slice().address, plan.cols.1),
        log: plan.log,
        paired: plan.paired,
        passes,
    };
    let mut slice = out.slice();
    slice.len = room;
    let options = EncodeOptions::new(Goal::Step(plan.step)).with_lane_values(lane_values);
    let request = EncodeRequest::new(tensor.slice(), sample.dtype, &sample.shape, slice, options);
    let workspace = Buffer::new(device, fixed_workspace_len(device, &request, &fixed).unwrap()).unwrap();
    // SAFETY: all of it is ours and lives to the end of this function.
    unsafe {
        encode_fixed(device, &request, &fixed, status.slice(), workspace.slice(), Stream::DEFAULT).unwrap();
    }
    let mut said = [0; 16];
    status.read(&mut said, Stream::DEFAULT).unwrap();
    let mut bytes = vec![0; room + guard];
    out.read(&mut bytes, Stream::DEFAULT).unwrap();
    assert!(bytes[room..].iter().all(|&b| b == 0xa5), "written past the buffer");
    let said = Status::from_bytes(said);
    said.check()?;
    bytes.truncate(said.size as usize);
    Ok(bytes)
}

/// The reals that a blob decodes to on the CPU, once that has accepted every part of it.
pub fn decoded(sample: &Sample, blob: &[u8], what: &str) -> Vec<f64> {
    let back = tenfold::decode(blob, &DecodeOptions::default());
    let back = back.unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!((back.dtype, &back.shape), (sample.dtype, &sample.shape), "{what}");
    crate::common::to_reals(back.dtype, &back.data)
}
