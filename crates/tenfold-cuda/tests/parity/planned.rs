//! Pages with plans that are not their own: one for all of a batch, or those that their basis has ready, and what is guessed of sizes from these.

use tenfold::prepare::Basis;
use tenfold::{Dtype, Effort, EncodeOptions, Goal};
use tenfold_cuda::{
    Buffer, Code, DeviceBasis, DeviceSlice, EncodePages, PageSizes, Stream, encode_pages_workspace_len,
    guess_page_sizes, look_at_pages_workspace_len,
};

use crate::Case;
use crate::common::{to_bytes, to_reals};
use crate::device::Subject;
use crate::pages::{basis, decode_on, decoded, encode_on, encode_with, hold, nmse, page, sizes};

pub fn cases() -> Vec<Case> {
    vec![("pages: one plan for all".into(), together), ("pages: plans that a basis has ready".into(), ready)]
}

fn together(subject: &Subject) {
    let (rows, cols, rank, count) = if subject.is_real() { sizes(subject) } else { (128, 48, 32, 12) };
    let basis = basis(cols, rank, true, 1);
    let on_device = DeviceBasis::new(subject.device(), &basis).unwrap();
    let mut pages: Vec<Vec<u8>> = (0..count as u64).map(|i| page(&basis, rows, 200 + i % 7)).collect();
    let means: Vec<f64> = basis.means().iter().map(|&m| f64::from(m)).collect();
    // One that is all means, one with a NaN, and one that is much larger than the others.
    pages[1] = to_bytes(Dtype::Bf16, &means.repeat(rows));
    pages[3][..2].copy_from_slice(&[0xc0, 0x7f]);
    let large: Vec<f64> = to_reals(Dtype::Bf16, &pages[4])
        .iter()
        .enumerate()
        .map(|(i, v)| means[i % cols] + 30.0 * (v - means[i % cols]))
        .collect();
    pages[4] = to_bytes(Dtype::Bf16, &large);

    let bytes = rows * cols / 4;
    for goal in
        [Goal::Step(0.2), Goal::MaxBytes(bytes), Goal::Bits(bytes as f64 * 8.0 / (rows * cols) as f64)]
    {
        let options = EncodeOptions::new(goal).with_effort(Effort::Fast);
        let own = encode_on(subject, &on_device, &pages, options.clone());
        let made = encode_with(subject, &on_device, &pages, options, |r| r.with_together(true), None);
        for (i, made) in made.iter().enumerate() {
            if i == 3 {
                assert_eq!(made.as_ref().unwrap_err().code, Code::NotFinite as u32);
                continue;
            }
            let blob = made.as_ref().unwrap_or_else(|s| panic!("page {i}, {goal:?}: {:?}", s.check()));
            let alone = own[i].as_ref().unwrap();
            match goal {
                Goal::MaxBytes(cap) => {
                    assert!(blob.len() <= cap, "page {i}: {} bytes of {cap}", blob.len());
                    // The cap is made use of, but for the page that has nothing to say.
                    assert!(i == 1 || blob.len() * 100 >= cap * 97, "page {i}: {} of {cap}", blob.len());
                }
                Goal::Bits(_) if i != 1 => {
                    let off = blob.len() as f64 / bytes as f64 - 1.0;
                    assert!(off.abs() < 0.02, "page {i}: {off:.3} off");
                }
                _ => {}
            }
            // What a page of its own plan gets: its step is the same, or its bytes.
            let (found, wanted) =
                (nmse(&pages[i], &decoded(&basis, blob)), nmse(&pages[i], &decoded(&basis, alone)));
            let worse = if subject.is_real() { 1.1 } else { 1.3 };
            assert!(found <= wanted * worse + 1e-5, "page {i}, {goal:?}: nmse {found:.6}, not {wanted:.6}");
            assert_eq!(tenfold::inspect(blob).unwrap().states, Some(1));
            if i > 8 {
                break;
            }
        }
        // And back, all on the device.
        let good: Vec<Vec<u8>> = made.into_iter().filter_map(Result::ok).take(7).collect();
        let (said, found) = decode_on(subject, &on_device, &good, rows);
        said.iter().for_each(|s| s.check().unwrap());
        for (found, blob) in found.chunks(rows * cols).zip(&good) {
            hold(found, &decoded(&basis, blob), cols, "rows");
        }
    }

    // A cap that a header alone exceeds, and what no plan for many is made for.
    let options = EncodeOptions::new(Goal::MaxBytes(40)).with_effort(Effort::Fast);
    let made = encode_with(subject, &on_device, &pages[..2], options, |r| r.with_together(true), None);
    assert!(made.iter().all(|m| m.as_ref().unwrap_err().code == Code::DoesNotFit as u32));
    let all = Buffer::from_slice(subject.device(), &pages[..2].concat()).unwrap();
    let blobs = Buffer::new(subject.device(), 2 * bytes + 4096).unwrap();
    let plain = DeviceBasis::new(subject.device(), &crate::pages::basis(cols, rank, false, 1)).unwrap();
    let step = Goal::Step(0.2);
    for (basis, goal, effort) in [
        (&on_device, step, Effort::Balanced),
        (&on_device, Goal::Nmse(0.01), Effort::Fast),
        (&plain, step, Effort::Fast),
    ] {
        let options = EncodeOptions::new(goal).with_effort(effort);
        let request = EncodePages::new(2, rows, all.slice(), blobs.slice(), options).with_together(true);
        let error = encode_pages_workspace_len(basis, &request).unwrap_err();
        assert!(error.to_string().contains("planned together"), "{error}");
    }
}

fn ready(subject: &Subject) {
    let (rows, cols, rank, count) = if subject.is_real() { sizes(subject) } else { (128, 48, 32, 12) };
    let basis = basis(cols, rank, true, 1);
    let on_device = DeviceBasis::new(subject.device(), &basis).unwrap();
    let mut pages: Vec<Vec<u8>> = (0..count as u64).map(|i| page(&basis, rows, 200 + i % 7)).collect();
    let means: Vec<f64> = basis.means().iter().map(|&m| f64::from(m)).collect();
    pages[1] = to_bytes(Dtype::Bf16, &means.repeat(rows));
    pages[3][..2].copy_from_slice(&[0xc0, 0x7f]);
    let ready = |r: EncodePages| r.with_ready(true);
    let at = |step: f64| EncodeOptions::new(Goal::Step(step)).with_effort(Effort::Fast);

    // Nobody has made them yet.
    let all = Buffer::from_slice(subject.device(), &pages.concat()).unwrap();
    let blobs = Buffer::new(subject.device(), 2 * pages.concat().len()).unwrap();
    let request = EncodePages::new(count, rows, all.slice(), blobs.slice(), at(0.2));
    let error = encode_pages_workspace_len(&on_device, &ready(request)).unwrap_err();
    assert!(error.to_string().contains("prepare_plans"), "{error}");
    assert!(on_device.prepare_plans().unwrap());
    let plain = DeviceBasis::new(subject.device(), &crate::pages::basis(cols, rank, false, 1)).unwrap();
    assert!(!plain.prepare_plans().unwrap());

    // Coarse and fine: nearly all zeros, and levels in the thousands.
    for step in [20.0, 1.0, 0.2, 0.01, 1e-4] {
        let own = encode_on(subject, &on_device, &pages, at(step));
        let made = encode_with(subject, &on_device, &pages, at(step), ready, None);
        let alone = encode_with(subject, &on_device, &pages[5..6], at(step), ready, None);
        assert_eq!(made[5].as_ref().unwrap(), alone[0].as_ref().unwrap(), "whatever is beside it");
        assert_eq!(made[3].as_ref().unwrap_err().code, Code::NotFinite as u32);
        for (i, made) in made.iter().enumerate().filter(|(i, _)| *i != 3).take(8) {
            let blob = made.as_ref().unwrap_or_else(|s| panic!("page {i}, {step}: {:?}", s.check()));
            let searched = own[i].as_ref().unwrap();
            let (found, wanted) =
                (nmse(&pages[i], &decoded(&basis, blob)), nmse(&pages[i], &decoded(&basis, searched)));
            // What a plan of its own would save: little, but for a page that has nothing to say.
            let (bytes, least) = (blob.len() as f64, searched.len() as f64);
            let more = if subject.is_real() { 1.03 } else { 1.1 };
            assert!(i == 1 || bytes <= least * more + 100.0, "page {i}, {step}: {bytes} bytes, not {least}");
            assert!(found <= wanted * 1.15 + 1e-5, "page {i}, {step}: nmse {found:.6}, not {wanted:.6}");
        }
        let good: Vec<Vec<u8>> = made.into_iter().filter_map(Result::ok).take(7).collect();
        let (said, found) = decode_on(subject, &on_device, &good, rows);
        said.iter().for_each(|s| s.check().unwrap());
        for (found, blob) in found.chunks(rows * cols).zip(&good) {
            hold(found, &decoded(&basis, blob), cols, "rows");
        }
    }

    // Each at a step of its own, which multiplies that of all.
    let steps: Vec<f64> = (0..count).map(|i| [2.0, 0.5, 0.04][i % 3]).collect();
    let bytes: Vec<u8> = steps.iter().flat_map(|step| step.to_le_bytes()).collect();
    let steps_there = Buffer::from_slice(subject.device(), &bytes).unwrap();
    let own = |r: EncodePages| r.with_ready(true).with_steps(steps_there.slice());
    let made = encode_with(subject, &on_device, &pages, at(0.5), own, None);
    for (i, page) in pages.iter().enumerate().filter(|(i, _)| *i != 3).take(6) {
        let options = at(0.5 * steps[i]);
        let alone = encode_with(subject, &on_device, std::slice::from_ref(page), options, ready, None);
        assert_eq!(made[i].as_ref().unwrap(), alone[0].as_ref().unwrap(), "page {i}");
    }
    let request = EncodePages::new(count, rows, all.slice(), blobs.slice(), at(0.2));
    let error = encode_pages_workspace_len(&on_device, &request.with_steps(steps_there.slice())).unwrap_err();
    assert!(error.to_string().contains("steps of their own"), "{error}");
    guessed(subject, (&basis, &on_device, &plain), &pages, rows);

    // What no plan is ready for.
    for (basis, goal, effort) in
        [(&on_device, Goal::Step(0.2), Effort::Balanced), (&on_device, Goal::MaxBytes(4000), Effort::Fast)]
    {
        let options = EncodeOptions::new(goal).with_effort(effort);
        let request = EncodePages::new(count, rows, all.slice(), blobs.slice(), options);
        let error = encode_pages_workspace_len(basis, &ready(request)).unwrap_err();
        assert!(error.to_string().contains("has plans ready"), "{error}");
    }
}

/// What is guessed of a page's size is about what it takes, at any step.
fn guessed(
    subject: &Subject,
    (basis, on_device, plain): (&Basis, &DeviceBasis, &DeviceBasis),
    pages: &[Vec<u8>],
    rows: usize,
) {
    let at = |step: f64| EncodeOptions::new(Goal::Step(step)).with_effort(Effort::Fast);
    let all = Buffer::from_slice(subject.device(), &pages.concat()).unwrap();
    let none = DeviceSlice::new(0, 0);
    let request = EncodePages::new(pages.len(), rows, all.slice(), none, at(1.0));
    let sizes = Buffer::new(subject.device(), PageSizes::BYTES * pages.len()).unwrap();
    let len = look_at_pages_workspace_len(on_device, &request).unwrap();
    let work = Buffer::new(subject.device(), len).unwrap();
    let mut found = vec![0; sizes.slice().len];
    // SAFETY: all of it is ours and lives until it has been read back.
    unsafe {
        let (to, work) = (sizes.slice(), work.slice());
        guess_page_sizes(on_device, &request, to, work, Stream::DEFAULT).unwrap();
        sizes.read(&mut found, Stream::DEFAULT).unwrap();
        let error = guess_page_sizes(plain, &request, to, work, Stream::DEFAULT).unwrap_err();
        assert!(error.to_string().contains("ready"), "{error}");
    }
    let guessed: Vec<PageSizes> = found.as_chunks().0.iter().map(|b| PageSizes::from_bytes(*b)).collect();
    for step in [1.5, 0.4, 0.09, 0.02] {
        let made = encode_with(subject, on_device, pages, at(step), |r| r.with_ready(true), None);
        for (i, made) in made.iter().enumerate().filter(|(i, _)| ![1, 3].contains(i)) {
            let (guess, took) = (guessed[i].bits_at(step) / 8.0, made.as_ref().unwrap().len() as f64);
            let off = guess / took - 1.0;
            assert!(off.abs() < 0.015, "page {i}, {step}: {guess} bytes guessed, {took} taken");
        }
        let values = (rows * basis.rank()) as f64;
        assert!(guessed[0].bits_at(1e-9) > 20.0 * values, "the finest steps");
    }
    assert!(guessed[3].bits_at(0.1).is_nan() || guessed[3].bits_at(0.1) >= 0.0);
}
