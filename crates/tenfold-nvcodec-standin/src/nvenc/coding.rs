//! Pictures in, coded pictures out.
//!
//! A picture is coded when its output is locked: an encoder may read its input until then, and a caller that writes there earlier
//! is found out.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tenfold_nvcodec::nvenc::abi::{LockBitstream, PicParams, SequenceParamPayload, pic_flag, status};
use tenfold_video::Standard;
use tenfold_video::codec::Settings;

use super::check_version;
use super::session::{ENCODED, Output, Registered, Session, Setup, Waiting, hold};
use crate::faults::{self, Fault};
use crate::software;

impl Session {
    pub(super) fn encode(&mut self, params: &PicParams) -> Result<(), i32> {
        const CALL: &str = "NvEncEncodePicture";
        check_version::<PicParams>(CALL, params.version)?;
        let setup = self.setup(CALL)?;
        if params.flags & pic_flag::END_OF_STREAM != 0 {
            self.ended = true;
            return Ok(());
        }
        if faults::happens(Fault::EncodeDeviceLost) {
            return Err(self.fail(status::DEVICE_NOT_EXIST, "the device is lost"));
        }
        if faults::happens(Fault::EncodeFails) {
            return Err(self.fail(status::GENERIC, "the engine failed"));
        }
        let mut refuse = |code, what: &str| Err(self.refuse(code, &format!("{CALL}: {what}")));
        let format = setup.settings.format;
        if (params.width as usize, params.height as usize) != (format.width, format.height) {
            return refuse(status::INVALID_PARAM, "another size than the session's");
        }
        if params.format != setup.format || params.structure != 1 {
            return refuse(status::INVALID_PARAM, "another format than the session's, or no frame");
        }
        if params.flags & pic_flag::FORCE_IDR == 0 {
            return refuse(status::INVALID_PARAM, "a picture that need not stand alone");
        }
        let (input, output) = (params.input as u64, params.output as u64);
        let Some(memory) = self.mapped(input) else {
            return Err(self.refuse(status::RESOURCE_NOT_MAPPED, &format!("{CALL}: the input is not mapped")));
        };
        if params.pitch as usize != memory.pitch {
            return Err(self.refuse(status::INVALID_PARAM, &format!("{CALL}: another pitch than registered")));
        }
        let check = check_of(memory, &setup);
        match self.outputs.get(&output) {
            None => return Err(self.refuse(status::INVALID_PARAM, &format!("{CALL}: no such buffer"))),
            Some(Output::Free) => {}
            Some(_) => {
                return Err(self.refuse(status::INVALID_CALL, &format!("{CALL}: the buffer is in use")));
            }
        }
        let first = self.pictures == 0 || setup.repeats_sets;
        let waiting = Waiting { input, time_stamp: params.time_stamp, check, first };
        self.outputs.insert(output, Output::Waiting(waiting));
        self.waits(output);
        self.pictures += 1;
        self.ended = false;
        Ok(())
    }

    pub(super) fn unlock(&mut self, output: u64) -> Result<(), i32> {
        const CALL: &str = "NvEncUnlockBitstream";
        match self.outputs.get_mut(&output) {
            Some(at @ Output::Locked(_)) => {
                *at = Output::Free;
                Ok(())
            }
            _ => Err(self.refuse(status::INVALID_CALL, &format!("{CALL}: it is not locked"))),
        }
    }

    fn take(&mut self, output: u64) -> Result<(Setup, Waiting, Vec<u16>), i32> {
        const CALL: &str = "NvEncLockBitstream";
        let setup = self.setup(CALL)?;
        if self.order.front() != Some(&output) && self.order.contains(&output) {
            return Err(self.refuse(status::INVALID_CALL, &format!("{CALL}: an earlier picture waits")));
        }
        match self.outputs.get_mut(&output) {
            Some(at @ Output::Waiting(_)) => {
                let Output::Waiting(waiting) = std::mem::replace(at, Output::Busy) else {
                    return Err(status::GENERIC);
                };
                self.order.pop_front();
                let Some(memory) = self.mapped(waiting.input) else {
                    return Err(
                        self.refuse(status::RESOURCE_NOT_MAPPED, &format!("{CALL}: its input is gone"))
                    );
                };
                let changed = check_of(memory, &setup) != waiting.check;
                let samples = read(memory, &setup);
                if changed {
                    self.refuse(0, &format!("{CALL}: the input changed before the picture was coded"));
                }
                match samples {
                    Ok(samples) => Ok((setup, waiting, samples)),
                    Err(what) => Err(self.refuse(status::GENERIC, what)),
                }
            }
            None => Err(self.refuse(status::INVALID_PARAM, &format!("{CALL}: no such buffer"))),
            Some(Output::Free) => {
                Err(self.refuse(status::INVALID_CALL, &format!("{CALL}: nothing is in it")))
            }
            Some(_) => Err(self.refuse(status::LOCK_BUSY, &format!("{CALL}: it is locked"))),
        }
    }
}

/// Codes the picture that a buffer is for, and lends it.
pub(super) fn lock(session: &Arc<Mutex<Session>>, params: &mut LockBitstream) -> Result<(), i32> {
    const CALL: &str = "NvEncLockBitstream";
    check_version::<LockBitstream>(CALL, params.version)?;
    let output = params.output as u64;
    faults::hang(Fault::EncodeHang);
    let (setup, waiting, mut samples) = hold(session).take(output)?;
    if faults::happens(Fault::LockFails) {
        let mut session = hold(session);
        session.outputs.insert(output, Output::Free);
        return Err(session.fail(status::GENERIC, "the engine gave no picture"));
    }
    if faults::happens(Fault::EncodeDamages) {
        let middle = samples.len() / 2;
        samples[middle..].iter_mut().take(64).for_each(|s| *s = 0);
    }
    let coded = software::encode(setup.standard, &setup.settings, &samples);
    let mut session = hold(session);
    let coded = match coded {
        Ok(coded) => coded,
        Err(what) => {
            session.outputs.insert(output, Output::Free);
            return Err(session.fail(status::GENERIC, &what));
        }
    };
    let mut data = Vec::new();
    if setup.standard == Standard::Av1 {
        // A temporal delimiter.
        data.extend_from_slice(&[0x12, 0]);
    }
    if waiting.first {
        data.extend_from_slice(&coded.parameter_sets);
    }
    data.extend(coded.pictures.into_iter().flatten());
    (params.size, params.data) = (data.len() as u32, data.as_mut_ptr().cast());
    (params.time_stamp, params.picture_type, params.structure) = (waiting.time_stamp, 3, 1);
    session.outputs.insert(output, Output::Locked(data));
    ENCODED.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Parameter sets, which come from a picture of middle gray.
///
/// # Safety
/// The buffer has the bytes that `params` says.
pub(super) unsafe fn sequence_params(
    session: &mut Session,
    params: &SequenceParamPayload,
) -> Result<(), i32> {
    const CALL: &str = "NvEncGetSequenceParams";
    check_version::<SequenceParamPayload>(CALL, params.version)?;
    let setup = session.setup(CALL)?;
    if params.buffer.is_null() || params.size.is_null() {
        return Err(session.refuse(status::INVALID_PTR, &format!("{CALL}: no buffer")));
    }
    let sets = match sets_of(&setup) {
        Ok(sets) => sets,
        Err(what) => return Err(session.fail(status::GENERIC, &what)),
    };
    if sets.len() > params.buffer_size as usize {
        return Err(session.fail(status::NOT_ENOUGH_BUFFER, "the buffer is too small"));
    }
    // SAFETY: the caller's promise, and the comparison above.
    unsafe {
        std::ptr::copy_nonoverlapping(sets.as_ptr(), params.buffer.cast(), sets.len());
        params.size.write(sets.len() as u32);
    }
    Ok(())
}

/// Parameter sets for settings, which do not depend on the picture; made once.
fn sets_of(setup: &Setup) -> Result<Vec<u8>, String> {
    static KNOWN: Mutex<Vec<(Standard, Settings, Vec<u8>)>> = Mutex::new(Vec::new());
    let mut known = hold(&KNOWN);
    if let Some(found) = known.iter().find(|k| (k.0, k.1) == (setup.standard, setup.settings)) {
        return Ok(found.2.clone());
    }
    let format = setup.settings.format;
    let gray = vec![1 << (format.depth - 1); format.samples()];
    let sets = software::encode(setup.standard, &setup.settings, &gray)?.parameter_sets;
    known.push((setup.standard, setup.settings, sets.clone()));
    Ok(sets)
}

/// All bytes of a picture, with its chroma and without what is between rows.
fn rows<'a>(memory: &'a Registered, setup: &Setup) -> impl Iterator<Item = &'a [u8]> {
    let format = setup.settings.format;
    let bytes = if format.depth == 8 { 1 } else { 2 };
    let (len, pitch, address) = (format.width.next_multiple_of(2) * bytes, memory.pitch, memory.address);
    (0..format.height + format.height.div_ceil(2)).map(move |y| {
        // SAFETY: registered memory is that large and stays so until it is not registered any more, as whoever registered
        // it promised; device addresses are the process's own here.
        unsafe { std::slice::from_raw_parts((address as usize + y * pitch) as *const u8, len.min(pitch)) }
    })
}

/// A checksum of a picture (FNV-1a).
fn check_of(memory: &Registered, setup: &Setup) -> u32 {
    rows(memory, setup).flatten().fold(0x811c_9dc5, |h, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

/// Luma samples; what stands in the place of colour must be constant.
fn read(memory: &Registered, setup: &Setup) -> Result<Vec<u16>, &'static str> {
    let format = setup.settings.format;
    let mut samples = Vec::with_capacity(format.samples());
    for (y, row) in rows(memory, setup).enumerate() {
        let luma = y < format.height;
        if format.depth == 8 {
            if luma {
                samples.extend(row[..format.width].iter().map(|&b| u16::from(b)));
            } else if row.iter().any(|&b| b != 0x80) {
                return Err("NvEncLockBitstream: chroma is not constant");
            }
            continue;
        }
        let words = row.as_chunks::<2>().0.iter().map(|w| u16::from_le_bytes(*w));
        if luma {
            for word in words.take(format.width) {
                if word & 63 != 0 {
                    return Err("NvEncLockBitstream: samples are not in the upper ten bits");
                }
                samples.push(word >> 6);
            }
        } else if words.into_iter().any(|w| w != 0x8000) {
            return Err("NvEncLockBitstream: chroma is not constant");
        }
    }
    Ok(samples)
}
