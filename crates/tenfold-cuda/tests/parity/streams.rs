//! The low-level calls as docs/cuda.md shows them: streams, pinned memory, workspaces, statuses, timers.

use tenfold::{DecodeOptions, Dtype, EncodeOptions, Goal};
use tenfold_cuda::{
    Buffer, DecodeRequest, DecodeSettings, DeviceSlice, EncodeRequest, Error, OwnedStream, Pinned, Status,
    Timer, Upload, decode, decode_workspace_len, encode, encode_workspace_len,
};

use crate::Case;
use crate::common::{Kind, Sample};
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("blobs of the host, on two streams".into(), two_streams),
        ("a tensor to a blob and back, on one stream".into(), there_and_back),
        ("copies of the wrong size".into(), wrong_sizes),
        ("blobs of the host, piece by piece".into(), pieces),
    ]
}

fn status_of(status: &Buffer, stream: &OwnedStream) -> Status {
    let mut bytes = [0; size_of::<Status>()];
    status.read(&mut bytes, stream.stream()).unwrap();
    Status::from_bytes(bytes)
}

fn two_streams(subject: &Subject) {
    let device = subject.device();
    let tensors: Vec<Sample> =
        (0..4).map(|i| Sample::make(Dtype::Bf16, &[40 + i, 256], Kind::Gaussian, i as u64)).collect();
    let options = EncodeOptions::new(Goal::Bits(2.5)).with_lane_values(64);
    let blobs: Vec<Pinned> = tensors
        .iter()
        .map(|t| {
            let blob = tenfold::encode(&t.view(), &options).unwrap();
            let mut pinned = Pinned::new(device, blob.len()).unwrap();
            pinned.copy_from_slice(&blob);
            pinned
        })
        .collect();
    let streams = [(); 2].map(|()| OwnedStream::new(device).unwrap());
    let timer = Timer::new(device).unwrap();
    timer.start(streams[0].stream()).unwrap();
    let mut queued = Vec::new();
    for (i, blob) in blobs.iter().enumerate() {
        let stream = streams[i % 2].stream();
        let on_device = Buffer::new(device, blob.len()).unwrap();
        let out = Buffer::new(device, tensors[i].view().data().len()).unwrap();
        let status = Buffer::new(device, size_of::<Status>()).unwrap();
        let requests = [DecodeRequest::new(on_device.slice(), out.slice(), Dtype::Bf16)];
        let workspace = Buffer::new(device, decode_workspace_len(&requests)).unwrap();
        let settings = DecodeSettings::default();
        // SAFETY: all of it lives in `queued` until both streams have been waited for.
        unsafe {
            device.copy_in(on_device.slice(), blob, stream).unwrap();
            decode(device, &requests, &settings, status.slice(), workspace.slice(), stream).unwrap();
        }
        queued.push((on_device, out, status, workspace));
    }
    timer.stop(streams[0].stream()).unwrap();
    assert!(timer.milliseconds().unwrap() >= 0.0);
    for (i, (_, out, status, _)) in queued.iter().enumerate() {
        let stream = &streams[i % 2];
        assert_eq!(status_of(status, stream).check(), Ok(()));
        let mut found = vec![0; out.slice().len];
        out.read(&mut found, stream.stream()).unwrap();
        let wanted = tenfold::decode(&blobs[i], &DecodeOptions::default()).unwrap();
        assert!(found == wanted.data, "blob {i}");
    }
}

fn there_and_back(subject: &Subject) {
    let device = subject.device();
    let stream = OwnedStream::new(device).unwrap();
    let sample = Sample::make(Dtype::Bf16, &[33, 300], Kind::Laplace, 7);
    let (view, shape) = (sample.view(), [33, 300]);
    let tensor = Buffer::from_slice(device, view.data()).unwrap();
    let blob = Buffer::new(device, tenfold::format::max_encoded_len(Dtype::Bf16, &shape).unwrap()).unwrap();
    let status = Buffer::new(device, size_of::<Status>()).unwrap();
    let options = EncodeOptions::new(Goal::Lossless);
    let request = EncodeRequest::new(tensor.slice(), Dtype::Bf16, &shape, blob.slice(), options);
    let workspace = Buffer::new(device, encode_workspace_len(device, &request).unwrap()).unwrap();
    // SAFETY: all of it is ours and lives to the end of this function.
    let time = device.time(stream.stream(), || unsafe {
        encode(device, &request, status.slice(), workspace.slice(), stream.stream())
    });
    assert!(time.unwrap() >= 0.0);
    let said = status_of(&status, &stream);
    said.check().unwrap();

    // What was written stays where it is; only its length comes to the host.
    let written = DeviceSlice::new(blob.slice().address, usize::try_from(said.size).unwrap());
    let out = Buffer::new(device, view.data().len()).unwrap();
    let requests = [DecodeRequest::new(written, out.slice(), Dtype::Bf16)];
    let workspace = Buffer::new(device, decode_workspace_len(&requests)).unwrap();
    let again = Buffer::new(device, view.data().len()).unwrap();
    let settings = DecodeSettings::default();
    // SAFETY: as above.
    unsafe {
        decode(device, &requests, &settings, status.slice(), workspace.slice(), stream.stream()).unwrap();
        device.copy(again.slice(), out.slice(), stream.stream()).unwrap();
    }
    status_of(&status, &stream).check().unwrap();
    let mut found = vec![0; view.data().len()];
    again.read(&mut found, stream.stream()).unwrap();
    assert!(found == view.data());
}

fn wrong_sizes(subject: &Subject) {
    let device = subject.device();
    let stream = OwnedStream::new(device).unwrap();
    let [a, b] = [64, 32].map(|n| Buffer::new(device, n).unwrap());
    // SAFETY: refused before anything is touched.
    let refused = unsafe {
        [
            device.copy(a.slice(), b.slice(), stream.stream()),
            device.copy(b.slice(), a.slice(), stream.stream()),
            device.copy_in(b.slice(), &[0; 33], stream.stream()),
        ]
    };
    assert!(refused.iter().all(|r| matches!(r, Err(Error::InvalidArgument(_)))), "{refused:?}");
}

fn pieces(subject: &Subject) {
    let device = subject.device();
    let stream = OwnedStream::new(device).unwrap();
    let mut upload = Upload::new(device).unwrap().with_piece(3000);
    let settings = DecodeSettings::default();
    let sample = Sample::make(Dtype::Bf16, &[300, 128], Kind::Rows, 9);
    let out = Buffer::new(device, sample.view().data().len()).unwrap();
    for goal in [Goal::Bits(2.5), Goal::Lossless, Goal::Bits(4.0)] {
        let options = EncodeOptions::new(goal).with_lane_values(64);
        let blob = tenfold::encode(&sample.view(), &options).unwrap();
        assert!(blob.len() > 4 * 3000 || goal != Goal::Lossless);
        let wanted = tenfold::decode(&blob, &DecodeOptions::default()).unwrap().data;
        let mut pinned = Pinned::new(device, blob.len()).unwrap();
        pinned.copy_from_slice(&blob);
        let mut found = vec![0; wanted.len()];
        // SAFETY: everything lives until it was waited for, and nobody else uses it.
        unsafe {
            upload.queue(&pinned, blob.len(), out.slice(), Dtype::Bf16, &settings, stream.stream()).unwrap();
            upload.check(stream.stream()).unwrap();
            out.read(&mut found, stream.stream()).unwrap();
            assert!(found == wanted, "{goal:?}, pinned");
            let clear = vec![0; found.len()];
            out.write(&clear, stream.stream()).unwrap();
            upload.decode(&blob, out.slice(), Dtype::Bf16, &settings, stream.stream()).unwrap();
            out.read(&mut found, stream.stream()).unwrap();
            assert!(found == wanted, "{goal:?}");
            // A piece that was damaged on its way, a blob that ends early, an output that is too small.
            let mut damaged = blob.clone();
            let at = damaged.len() - 5;
            damaged[at] ^= 1;
            let mut decode =
                |blob: &[u8], out| upload.decode(blob, out, Dtype::Bf16, &settings, stream.stream());
            assert!(matches!(decode(&damaged, out.slice()), Err(Error::Codec(tenfold::Error::Corrupt(_)))));
            let short = decode(&blob[..blob.len() - 4], out.slice());
            assert!(matches!(short, Err(Error::Codec(tenfold::Error::Truncated { .. }))));
            let less = DeviceSlice::new(out.slice().address, 100);
            assert!(matches!(decode(&blob, less), Err(Error::Codec(tenfold::Error::BufferTooSmall { .. }))));
        }
    }
}
