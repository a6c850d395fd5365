//! Pages behind a basis: what the CPU writes a device reads, and the other way round, within the bound of the format.

use std::sync::Arc;

use tenfold::engine::{Engine, ErrorKind};
use tenfold::prepare::{Basis, Pairing, Positions, Rope, Rotation, Scaling, Transform};
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal, TensorView};
use tenfold_cuda::{
    Buffer, Code, DecodeRequest, DecodeSettings, DeviceBasis, DeviceSlice, EncodePages, Status, Stream,
    decode_coordinates, decode_pages, decode_pages_workspace_len, decode_workspace_len, encode_pages,
    encode_pages_workspace_len,
};

use crate::Case;
use crate::common::{Random, to_bytes, to_reals};
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("pages: rows of the CPU's blobs".into(), rows),
        ("pages: coordinates".into(), coordinates),
        ("pages: blobs of a device".into(), encoded),
        ("pages: caps are kept to".into(), caps),
        ("pages: keys before their rotary positions".into(), keys),
        ("pages: what is refused".into(), refused),
    ]
}

/// What a device may be off by, of the largest magnitude of a row; twice that where rows are turned behind it.
const BOUND: f64 = 1.0 / 128.0;

/// Orthonormal vectors, means, and deviations that fall.
pub fn basis(cols: usize, rank: usize, scaled: bool, seed: u64) -> Arc<Basis> {
    let mut r = Random::new(seed);
    let mut vectors: Vec<Vec<f64>> = Vec::new();
    while vectors.len() < rank {
        let mut v: Vec<f64> = (0..cols).map(|_| r.normal()).collect();
        for _ in 0..2 {
            for w in &vectors {
                let dot: f64 = v.iter().zip(w).map(|(a, b)| a * b).sum();
                v.iter_mut().zip(w).for_each(|(a, b)| *a -= dot * b);
            }
        }
        let norm = v.iter().map(|a| a * a).sum::<f64>().sqrt();
        vectors.push(v.iter().map(|a| a / norm).collect());
    }
    let means: Vec<f32> = (0..cols).map(|_| 2.0 * r.normal() as f32).collect();
    let flat: Vec<f32> = vectors.iter().flatten().map(|&v| v as f32).collect();
    let basis = Basis::orthonormal(&means, &flat).unwrap();
    let deviations: Vec<f64> = (0..rank).map(|k| deviation(k, rank)).collect();
    Arc::new(if scaled { basis.with_deviations(&deviations).unwrap() } else { basis })
}

fn deviation(k: usize, rank: usize) -> f64 {
    4.0 * (-6.0 * k as f64 / rank as f64).exp2()
}

/// Pages of rows that the basis suits, in bf16.
pub fn page(basis: &Basis, rows: usize, seed: u64) -> Vec<u8> {
    let mut r = Random::new(seed);
    let mut out = Vec::new();
    for _ in 0..rows {
        let mut row: Vec<f64> = basis.means().iter().map(|&m| f64::from(m)).collect();
        for k in 0..basis.rank() {
            let c = r.normal() * deviation(k, basis.rank());
            row.iter_mut().zip(basis.vector(k)).for_each(|(v, &b)| *v += c * f64::from(b));
        }
        out.extend(to_bytes(Dtype::Bf16, &row));
    }
    out
}

fn on_cpu(basis: &Arc<Basis>, page: &[u8], goal: Goal, effort: Effort) -> Vec<u8> {
    let shape = [page.len() / 2 / basis.cols(), basis.cols()];
    let view = TensorView::new(Dtype::Bf16, &shape, page).unwrap();
    let transforms = vec![Transform::Basis(Rotation::named(basis))];
    tenfold::encode(&view, &EncodeOptions::new(goal).with_effort(effort).with_transforms(transforms)).unwrap()
}

pub fn decoded(basis: &Arc<Basis>, blob: &[u8]) -> Vec<f64> {
    let options = DecodeOptions::default().with_bases(vec![basis.clone()]);
    to_reals(Dtype::Bf16, &tenfold::decode(blob, &options).unwrap().data)
}

fn statuses(buffer: &Buffer, count: usize) -> Vec<Status> {
    let mut bytes = vec![0; 16 * count];
    buffer.read(&mut bytes, Stream::DEFAULT).unwrap();
    bytes.chunks(16).map(|b| Status::from_bytes(b.try_into().unwrap())).collect()
}

/// Blobs to rows, on the device.
pub fn decode_on(
    subject: &Subject,
    basis: &DeviceBasis,
    blobs: &[Vec<u8>],
    rows: usize,
) -> (Vec<Status>, Vec<f64>) {
    let device = subject.device();
    let held: Vec<Buffer> = blobs.iter().map(|b| Buffer::from_slice(device, b).unwrap()).collect();
    let slices: Vec<DeviceSlice> = held.iter().map(Buffer::slice).collect();
    let bytes = blobs.len() * rows * basis.columns() * 2;
    let out = Buffer::from_slice(device, &vec![0xa5; bytes]).unwrap();
    let said = Buffer::new(device, 16 * blobs.len()).unwrap();
    let len = decode_pages_workspace_len(basis, &slices, rows).unwrap();
    let workspace = Buffer::new(device, len.next_multiple_of(4096)).unwrap();
    let settings = DecodeSettings::default();
    // SAFETY: all of it is ours and lives to the end of this function.
    unsafe {
        let (said, workspace) = (said.slice(), workspace.slice());
        decode_pages(basis, &slices, rows, out.slice(), &settings, said, workspace, Stream::DEFAULT).unwrap();
    }
    let mut data = vec![0; bytes];
    out.read(&mut data, Stream::DEFAULT).unwrap();
    (statuses(&said, blobs.len()), to_reals(Dtype::Bf16, &data))
}

pub fn hold(found: &[f64], wanted: &[f64], cols: usize, what: &str) {
    hold_within(BOUND, found, wanted, cols, what);
}

fn hold_within(bound: f64, found: &[f64], wanted: &[f64], cols: usize, what: &str) {
    assert_eq!(found.len(), wanted.len());
    let mut worst = 0.0f64;
    for (f, w) in found.chunks(cols).zip(wanted.chunks(cols)) {
        let most = w.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        f.iter().zip(w).for_each(|(f, w)| worst = worst.max((f - w).abs() / most));
    }
    assert!(worst <= bound, "{what}: off by {worst:.5} of a row's largest");
}

pub fn sizes(subject: &Subject) -> (usize, usize, usize, usize) {
    if subject.is_real() { (64, 1024, 512, 600) } else { (16, 48, 32, 5) }
}

fn rows(subject: &Subject) {
    let (rows, cols, rank, count) = sizes(subject);
    for (scaled, effort, goal) in
        [(true, Effort::Balanced, Goal::Bits(2.0)), (false, Effort::Fast, Goal::Step(0.1))]
    {
        let basis = basis(cols, rank, scaled, 1);
        let on_device = DeviceBasis::new(subject.device(), &basis).unwrap();
        let few: Vec<Vec<u8>> =
            (0..5).map(|i| on_cpu(&basis, &page(&basis, rows, i), goal, effort)).collect();
        let blobs: Vec<Vec<u8>> = (0..count).map(|i| few[i % 5].clone()).collect();
        let (said, found) = decode_on(subject, &on_device, &blobs, rows);
        said.iter().for_each(|s| s.check().unwrap());
        let wanted: Vec<Vec<f64>> = few.iter().map(|b| decoded(&basis, b)).collect();
        for (i, found) in found.chunks(rows * cols).enumerate() {
            hold(found, &wanted[i % 5], cols, &format!("page {i}"));
        }
    }
}

fn coordinates(subject: &Subject) {
    let device = subject.device();
    for (cols, rank) in [(48, 32), (40, 40), (130, 129)] {
        let basis = basis(cols, rank, true, 3);
        let on_device = DeviceBasis::new(device, &basis).unwrap();
        let page = page(&basis, 20, 4);
        let blob = on_cpu(&basis, &page, Goal::Step(0.05), Effort::Balanced);
        let held = Buffer::from_slice(device, &blob).unwrap();
        let out = Buffer::new(device, 20 * rank * 4).unwrap();
        let said = Buffer::new(device, 16).unwrap();
        let request = [DecodeRequest::new(held.slice(), out.slice(), Dtype::F32)];
        let workspace = Buffer::new(device, decode_workspace_len(&request)).unwrap();
        let settings = DecodeSettings::default();
        // SAFETY: all of it is ours and lives long enough.
        unsafe {
            let (said, workspace) = (said.slice(), workspace.slice());
            decode_coordinates(&on_device, &request, &settings, said, workspace, Stream::DEFAULT).unwrap();
        }
        statuses(&said, 1)[0].check().unwrap();
        let mut data = vec![0; 20 * rank * 4];
        out.read(&mut data, Stream::DEFAULT).unwrap();
        let found = to_reals(Dtype::F32, &data);
        // Rows of them are those of the CPU.
        let mut rows = Vec::new();
        for c in found.chunks(rank) {
            let mut row: Vec<f64> = basis.means().iter().map(|&m| f64::from(m)).collect();
            for (k, &c) in c.iter().enumerate() {
                row.iter_mut().zip(basis.vector(k)).for_each(|(v, &b)| *v += c * f64::from(b));
            }
            rows.extend(row);
        }
        hold(&rows, &decoded(&basis, &blob), cols, "coordinates");
    }
}

/// Pages to blobs, on the device; what was said and the blobs' slots.
pub fn encode_on(
    subject: &Subject,
    basis: &DeviceBasis,
    pages: &[Vec<u8>],
    options: EncodeOptions,
) -> Vec<Result<Vec<u8>, Status>> {
    encode_with(subject, basis, pages, options, |request| request, None)
}

pub fn encode_with(
    subject: &Subject,
    basis: &DeviceBasis,
    pages: &[Vec<u8>],
    options: EncodeOptions,
    how: impl Fn(EncodePages) -> EncodePages,
    positions: Option<&[u64]>,
) -> Vec<Result<Vec<u8>, Status>> {
    let device = subject.device();
    let all = Buffer::from_slice(device, &pages.concat()).unwrap();
    let rows = pages[0].len() / 2 / basis.columns();
    let slot = pages[0].len() * 2 + 4096;
    let blobs = Buffer::new(device, slot * pages.len()).unwrap();
    let said = Buffer::new(device, 16 * pages.len()).unwrap();
    let mut request = how(EncodePages::new(pages.len(), rows, all.slice(), blobs.slice(), options));
    let positions = positions.map(|p| p.iter().flat_map(|p| p.to_le_bytes()).collect::<Vec<u8>>());
    let positions = positions.map(|p| Buffer::from_slice(device, &p).unwrap());
    if let Some(positions) = &positions {
        request = request.with_positions(positions.slice());
    }
    let slot = request.slot();
    let len = encode_pages_workspace_len(basis, &request).unwrap();
    let workspace = Buffer::new(device, len.next_multiple_of(4096)).unwrap();
    // SAFETY: all of it is ours and lives to the end of this function.
    unsafe { encode_pages(basis, &request, said.slice(), workspace.slice(), Stream::DEFAULT).unwrap() };
    let mut data = vec![0; slot * pages.len()];
    blobs.read(&mut data, Stream::DEFAULT).unwrap();
    let made = |(i, s): (usize, Status)| match s.code {
        0 => Ok(data[i * slot..][..s.size as usize].to_vec()),
        _ => Err(s),
    };
    statuses(&said, pages.len()).into_iter().enumerate().map(made).collect()
}

pub fn nmse(page: &[u8], found: &[f64]) -> f64 {
    let reals = to_reals(Dtype::Bf16, page);
    let mean = reals.iter().sum::<f64>() / reals.len() as f64;
    let (mut error, mut power) = (0.0, 0.0);
    for (a, b) in reals.iter().zip(found) {
        error += (a - b).powi(2);
        power += (a - mean).powi(2);
    }
    error / power
}

fn encoded(subject: &Subject) {
    let (rows, cols, rank, count) = sizes(subject);
    let basis = basis(cols, rank, false, 1);
    let on_device = DeviceBasis::new(subject.device(), &basis).unwrap();
    let mut pages: Vec<Vec<u8>> = (0..count as u64).map(|i| page(&basis, rows, 100 + i % 7)).collect();
    // The means themselves: all coordinates are about zero.
    let means: Vec<f64> = basis.means().iter().map(|&m| f64::from(m)).collect();
    pages[1] = to_bytes(Dtype::Bf16, &means.repeat(rows));
    pages[3][1] = 0x7f;
    pages[3][0] = 0xc0;
    for effort in [Effort::Fast, Effort::Balanced] {
        let options = EncodeOptions::new(Goal::Step(0.2)).with_effort(effort);
        for (i, made) in encode_on(subject, &on_device, &pages, options).into_iter().enumerate() {
            if i == 3 {
                let said = made.unwrap_err();
                assert_eq!(said.code, Code::NotFinite as u32);
                assert_eq!(said.check().unwrap_err().kind(), ErrorKind::Caller);
                continue;
            }
            let blob = made.unwrap_or_else(|s| panic!("page {i}: {:?}", s.check()));
            let found = nmse(&pages[i], &decoded(&basis, &blob));
            let ours = on_cpu(&basis, &pages[i], Goal::Step(0.2), effort);
            let wanted = nmse(&pages[i], &decoded(&basis, &ours));
            // Few values say little of what a level costs, and measured tables take their toll of the emulator's tiny pages.
            let (worse, more) = if subject.is_real() { (1.05, 1.1) } else { (1.3, 1.5) };
            assert!(found <= wanted * worse + 1e-5, "page {i}, {effort:?}: nmse {found:.6}, not {wanted:.6}");
            let (bytes, least) = (blob.len(), ours.len());
            assert!(bytes as f64 <= least as f64 * more + 100.0, "page {i}: {bytes} bytes, not {least}");
            if i > 5 {
                break;
            }
        }
    }
}

fn caps(subject: &Subject) {
    let (rows, cols, rank, count) = sizes(subject);
    let basis = basis(cols, rank, true, 1);
    let on_device = DeviceBasis::new(subject.device(), &basis).unwrap();
    let pages: Vec<Vec<u8>> = (0..count as u64).map(|i| page(&basis, rows, i % 7)).collect();
    let least = if subject.is_real() { 0.5 } else { 4.0 };
    for bits in [least, 2.0 * least] {
        let cap = (rows * cols) as f64 * bits / 8.0;
        let options = EncodeOptions::new(Goal::MaxBytes(cap as usize)).with_effort(Effort::Balanced);
        let made = encode_on(subject, &on_device, &pages, options);
        let blobs: Vec<Vec<u8>> =
            made.into_iter().map(|b| b.unwrap_or_else(|s| panic!("{:?}", s.check()))).collect();
        assert!(blobs.iter().all(|b| b.len() <= cap as usize));
        // And back, all on the device.
        let (said, found) = decode_on(subject, &on_device, &blobs, rows);
        said.iter().for_each(|s| s.check().unwrap());
        for (i, found) in found.chunks(rows * cols).enumerate().take(7) {
            hold(found, &decoded(&basis, &blobs[i]), cols, &format!("page {i}"));
        }
    }
}

fn refused(subject: &Subject) {
    let (mine, other) = (basis(48, 32, false, 1), basis(48, 32, false, 2));
    let on_device = DeviceBasis::new(subject.device(), &mine).unwrap();
    let bytes = page(&mine, 16, 1);
    let good = on_cpu(&mine, &bytes, Goal::Step(0.1), Effort::Fast);
    let view = TensorView::new(Dtype::Bf16, &[16, 48], &bytes).unwrap();
    let plain = tenfold::encode(&view, &EncodeOptions::new(Goal::Bits(4.0))).unwrap();
    let held = EncodeOptions::new(Goal::Step(0.1))
        .with_transforms(vec![Transform::Basis(Rotation::embedded(&mine))]);
    let held = tenfold::encode(&view, &held).unwrap();
    let named = on_cpu(&other, &bytes, Goal::Step(0.1), Effort::Fast);
    let blobs = [good.clone(), plain, named, held, good[..good.len() / 2].to_vec(), good.clone()];
    let (said, found) = decode_on(subject, &on_device, &blobs, 16);
    let kinds: Vec<Option<ErrorKind>> = said.iter().map(|s| s.check().err().map(|e| e.kind())).collect();
    use ErrorKind::{Caller, Data, Unsupported};
    assert_eq!(kinds, [None, Some(Caller), Some(Caller), Some(Unsupported), Some(Data), None]);
    // Neighbours do not suffer.
    let wanted = decoded(&mine, &good);
    hold(&found[..16 * 48], &wanted, 48, "first");
    hold(&found[5 * 16 * 48..], &wanted, 48, "last");
    // Without a basis the blob is not decoded at all.
    let error = subject.engine().decode(&good, &DecodeOptions::default()).unwrap_err();
    assert!(matches!(error, tenfold::Error::MissingBasis { .. }));
}

/// Where plans come from.
const HOW: [fn(EncodePages) -> EncodePages; 3] = [|r| r, |r| r.with_together(true), |r| r.with_ready(true)];

/// Rotary embeddings for heads of 16 columns.
fn ropes() -> [Rope; 3] {
    let llama3 = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192.0 };
    [
        Rope::new(16, 10_000.0).unwrap(),
        Rope::new(16, 500_000.0).unwrap().with_scaling(llama3).unwrap(),
        Rope::new(16, 1e4).unwrap().with_pairing(Pairing::Neighbours).with_turned(12).unwrap(),
    ]
}

fn keys(subject: &Subject) {
    let (rows, cols, rank, count) = if subject.is_real() { sizes(subject) } else { (64, 48, 32, 6) };
    let basis = basis(cols, rank, true, 1);
    // Positions of one byte up to five, so that headers differ in length.
    let near = [0u64, 127, 128, 16_384, 1 << 31, 1 << 32];
    let positions: Vec<u64> = (0..count).map(|i| near[i % near.len()]).collect();
    for rope in ropes() {
        let on_device = DeviceBasis::new(subject.device(), &basis).unwrap().with_rope(&rope).unwrap();
        let at = |first: u64| rope.clone().with_positions(Positions::From(first)).unwrap();
        let mut pages = Vec::new();
        for (i, &first) in positions.iter().enumerate() {
            let mut reals = to_reals(Dtype::Bf16, &page(&basis, rows, 300 + i as u64 % 6));
            at(first).inverse(&mut reals, cols, 0);
            pages.push(to_bytes(Dtype::Bf16, &reals));
        }
        let cpu = |i: usize, goal: Goal| {
            let shape = [rows, cols];
            let view = TensorView::new(Dtype::Bf16, &shape, &pages[i]).unwrap();
            let transforms =
                vec![Transform::Rope(at(positions[i])), Transform::Basis(Rotation::named(&basis))];
            let options = EncodeOptions::new(goal).with_effort(Effort::Fast).with_transforms(transforms);
            tenfold::encode(&view, &options).unwrap()
        };
        // What the CPU wrote.
        let few: Vec<Vec<u8>> = (0..6).map(|i| cpu(i, Goal::Step(0.1))).collect();
        let (said, found) = decode_on(subject, &on_device, &few, rows);
        said.iter().for_each(|s| s.check().unwrap());
        for (found, blob) in found.chunks(rows * cols).zip(&few) {
            hold_within(2.0 * BOUND, found, &decoded(&basis, blob), cols, "rows of the CPU's keys");
        }
        // What the device writes, by a plan each, by one for all, and by those that are ready.
        on_device.prepare_plans().unwrap();
        for (how, goal) in [
            (HOW[0], Goal::Step(0.2)),
            (HOW[1], Goal::Step(0.2)),
            (HOW[1], Goal::MaxBytes(rows * cols / 2)),
            (HOW[2], Goal::Step(0.2)),
        ] {
            let options = EncodeOptions::new(goal).with_effort(Effort::Fast);
            let made = encode_with(subject, &on_device, &pages, options, how, Some(&positions));
            let blobs: Vec<Vec<u8>> =
                made.into_iter().map(|b| b.unwrap_or_else(|s| panic!("{:?}", s.check()))).collect();
            for (i, blob) in blobs.iter().enumerate().take(6) {
                let info = tenfold::inspect(blob).unwrap();
                assert_eq!(info.transforms[0], Transform::Rope(at(positions[i])));
                if let Goal::MaxBytes(cap) = goal {
                    assert!(blob.len() <= cap, "page {i}: {} bytes of {cap}", blob.len());
                }
                let ours = nmse(&pages[i], &decoded(&basis, &cpu(i, goal)));
                let found = nmse(&pages[i], &decoded(&basis, blob));
                let worse = if subject.is_real() { 1.1 } else { 1.3 };
                assert!(found <= ours * worse + 1e-5, "page {i}, {goal:?}: nmse {found:.6}, not {ours:.6}");
            }
            let (said, found) = decode_on(subject, &on_device, &blobs, rows);
            said.iter().for_each(|s| s.check().unwrap());
            for (found, blob) in found.chunks(rows * cols).zip(&blobs).take(6) {
                hold_within(2.0 * BOUND, found, &decoded(&basis, blob), cols, "rows of the device's keys");
            }
        }
        // Blobs of other rotary positions, or of none, and the other way round.
        let other = DeviceBasis::new(subject.device(), &basis).unwrap();
        let other = other.with_rope(&Rope::new(16, 20_000.0).unwrap()).unwrap();
        let plain = DeviceBasis::new(subject.device(), &basis).unwrap();
        let without = on_cpu(&basis, &pages[0], Goal::Step(0.1), Effort::Fast);
        for (basis, blob) in [(&other, &few[1]), (&plain, &few[1]), (&on_device, &without)] {
            let said = decode_on(subject, basis, std::slice::from_ref(blob), rows).0[0];
            assert_eq!(said.code, Code::OtherRope as u32);
            assert_eq!(said.check().unwrap_err().kind(), ErrorKind::Caller);
        }
    }
    // A position that no reader takes: that page is refused, the others are not.
    for how in HOW {
        let turned = DeviceBasis::new(subject.device(), &basis).unwrap().with_rope(&ropes()[0]).unwrap();
        let pages: Vec<Vec<u8>> = (0..3).map(|i| page(&basis, rows, i)).collect();
        let options = EncodeOptions::new(Goal::Step(0.2)).with_effort(Effort::Fast);
        let far = [7, (1 << 32) + 1, 9];
        turned.prepare_plans().unwrap();
        let made = encode_with(subject, &turned, &pages, options, how, Some(&far));
        let codes: Vec<u32> = made.iter().map(|m| m.as_ref().map_or_else(|s| s.code, |_| 0)).collect();
        assert_eq!(codes, [0, Code::Position as u32, 0]);
        assert_eq!(made[1].as_ref().unwrap_err().check().unwrap_err().kind(), ErrorKind::Caller);
    }
    // Positions that are missing, or that nobody asked for; heads that do not fit; pages without rows.
    let plain = DeviceBasis::new(subject.device(), &basis).unwrap();
    let turned = DeviceBasis::new(subject.device(), &basis).unwrap().with_rope(&ropes()[0]).unwrap();
    let request = |positions: Option<DeviceSlice>| {
        let options = EncodeOptions::new(Goal::Step(0.1));
        let request =
            EncodePages::new(1, rows, DeviceSlice::new(0, 0), DeviceSlice::new(0, 1 << 20), options);
        positions.map_or(request.clone(), |p| request.with_positions(p))
    };
    let error = encode_pages_workspace_len(&turned, &request(None)).unwrap_err();
    assert!(error.to_string().contains("need the positions"), "{error}");
    let given = request(Some(DeviceSlice::new(256, 8)));
    let error = encode_pages_workspace_len(&plain, &given).unwrap_err();
    assert!(error.to_string().contains("was not told"), "{error}");
    let mut empty = request(None);
    empty.rows = 0;
    let error = encode_pages_workspace_len(&plain, &empty).unwrap_err();
    assert!(error.to_string().contains("one row"), "{error}");
    assert!(decode_pages_workspace_len(&plain, &[DeviceSlice::new(256, 64)], 0).is_err());
    let short = request(Some(DeviceSlice::new(256, 4)));
    assert!(encode_pages_workspace_len(&turned, &short).is_err());
    let error = plain.with_rope(&Rope::new(10, 1e4).unwrap()).unwrap_err();
    assert!(error.to_string().contains("do not divide"), "{error}");
}
