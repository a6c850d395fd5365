//! Many blobs in one call, some of them bad; memory that is not there; a device that is lost.

use std::process::Command;

use tenfold::prepare::Preparation;
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal};
use tenfold_cuda::{
    Buffer, CudaEngine, DecodeRequest, DecodeSettings, Device, DeviceSlice, Error, Status, Stream, decode,
    decode_workspace_len,
};

use crate::Case;
use crate::common::{Kind, Sample};
use crate::device::Subject;

/// Set in a process that loses its device on purpose.
const LOSE: &str = "TENFOLD_LOSE_DEVICE";

pub fn cases() -> Vec<Case> {
    vec![
        ("many blobs in one call, each with its own status".into(), batch),
        ("more memory than there is".into(), memory),
        ("a lost device is an error".into(), lost),
    ]
}

fn batch(subject: &Subject) {
    let device = subject.device();
    let dtypes = [Dtype::Bf16, Dtype::F32, Dtype::F16, Dtype::F8E4M3, Dtype::F64];
    // More than one launch has room for in its arguments.
    let blobs: Vec<(Dtype, Vec<u8>)> = (0..73u64)
        .map(|i| {
            let dtype = dtypes[i as usize % dtypes.len()];
            let sample = Sample::make(dtype, &[3 + i as usize % 7, 500], Kind::Rows, i);
            let goal = if i % 4 == 3 { Goal::Lossless } else { Goal::Bits(2.0) };
            let effort = if i % 2 == 0 { Effort::Fast } else { Effort::Balanced };
            let options = EncodeOptions::new(goal).with_effort(effort).with_prepare(Preparation::None);
            let mut blob = tenfold::encode(&sample.view(), &options).unwrap();
            if i % 10 == 9 {
                let at = blob.len() - 7;
                blob[at] ^= 0x10;
            }
            (dtype, blob)
        })
        .collect();
    let on_device: Vec<Buffer> = blobs.iter().map(|b| Buffer::from_slice(device, &b.1).unwrap()).collect();
    let outs: Vec<Buffer> = blobs
        .iter()
        .map(|(dtype, blob)| {
            let values = tenfold::inspect(blob).unwrap().values as usize;
            Buffer::new(device, values * dtype.size()).unwrap()
        })
        .collect();
    let requests: Vec<DecodeRequest> = blobs
        .iter()
        .zip(on_device.iter().zip(&outs))
        .map(|((dtype, _), (blob, out))| DecodeRequest::new(blob.slice(), out.slice(), *dtype))
        .collect();
    let status = Buffer::new(device, requests.len() * size_of::<Status>()).unwrap();
    let workspace = Buffer::new(device, decode_workspace_len(&requests)).unwrap();
    let settings = DecodeSettings::default();
    // SAFETY: all of it is ours and lives to the end of this function.
    unsafe {
        decode(device, &requests, &settings, status.slice(), workspace.slice(), Stream::DEFAULT).unwrap();
        let less = DeviceSlice::new(workspace.slice().address, workspace.slice().len - 16);
        let refused = decode(device, &requests, &settings, status.slice(), less, Stream::DEFAULT);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    }
    let mut said = vec![0; status.slice().len];
    status.read(&mut said, Stream::DEFAULT).unwrap();
    for (i, ((_, blob), (said, out))) in blobs.iter().zip(said.as_chunks().0.iter().zip(&outs)).enumerate() {
        let said = Status::from_bytes(*said).check();
        match tenfold::decode(blob, &DecodeOptions::default()) {
            Ok(wanted) => {
                said.unwrap_or_else(|e| panic!("blob {i}: {e}"));
                let mut found = vec![0; out.slice().len];
                out.read(&mut found, Stream::DEFAULT).unwrap();
                assert!(found == wanted.data, "blob {i}");
            }
            Err(wanted) => assert_eq!(said.unwrap_err().kind(), wanted.kind(), "blob {i}"),
        }
    }
}

fn memory(subject: &Subject) {
    let asked = subject.device().properties().memory as usize * 4;
    let refused = Buffer::new(subject.device(), asked).unwrap_err();
    assert_eq!(refused, Error::OutOfMemory { asked: asked as u64 });
    // And life goes on.
    Buffer::from_slice(subject.device(), &[1, 2, 3]).unwrap();
}

/// A kernel that reads where nothing is takes its device away from the process; it must not take the process too.
fn lost(subject: &Subject) {
    if !subject.is_real() {
        // The emulator has no device to lose.
        return;
    }
    let run = Command::new(std::env::current_exe().unwrap()).env(LOSE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && said.contains("is lost"),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

/// What that process does instead of tests.
pub fn lose_device() -> bool {
    if std::env::var_os(LOSE).is_none() {
        return false;
    }
    let device = Device::open(0).unwrap();
    let out = Buffer::new(&device, 1 << 16).unwrap();
    let nowhere = DeviceSlice::new(0x10, 1 << 16);
    let requests = [DecodeRequest::new(nowhere, out.slice(), Dtype::F32)];
    let status = Buffer::new(&device, size_of::<Status>()).unwrap();
    let workspace = Buffer::new(&device, decode_workspace_len(&requests)).unwrap();
    let settings = DecodeSettings::default();
    // SAFETY: it is not safe, on purpose: the blob is not memory. Nothing of this device is used after.
    let queued =
        unsafe { decode(&device, &requests, &settings, status.slice(), workspace.slice(), Stream::DEFAULT) };
    let seen = queued.and_then(|()| device.synchronize(Stream::DEFAULT)).unwrap_err();
    assert!(matches!(seen, Error::DeviceLost(_)), "{seen:?}");
    // Whatever is asked of it from now on says the same.
    assert!(CudaEngine::new(device.clone()).is_err() || Buffer::new(&device, 16).is_err());
    println!("{seen}");
    true
}
