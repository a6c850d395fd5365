//! What goes wrong in the driver is a typed error, leaves nothing open, and does not outlast its cause.

use std::time::Duration;

use tenfold::engine::ErrorKind;
use tenfold_nvcodec::Error;
use tenfold_nvcodec::nvenc::{Encoder, encodes};
use tenfold_nvcodec_standin::Fault;

use super::common::{any, device, picture, settings, turn};

#[test]
fn failures_are_named_and_pass() {
    let turn = turn();
    let Some(standard) = any() else { return };
    {
        let encoder = Encoder::new(&device()).unwrap();
        let settings = settings(standard, 8);
        let pictures: Vec<Vec<u16>> = (0..12).map(|i| picture(&settings.format, i)).collect();
        let views: Vec<&[u16]> = pictures.iter().map(Vec::as_slice).collect();
        let faults = [
            (Fault::EncodeFails, "NvEncEncodePicture failed: NV_ENC_ERR_GENERIC (20): the engine failed"),
            (
                Fault::LockFails,
                "NvEncLockBitstream failed: NV_ENC_ERR_GENERIC (20): the engine gave no picture",
            ),
            (Fault::EncodeDeviceLost, "NV_ENC_ERR_DEVICE_NOT_EXIST"),
        ];
        for (fault, text) in faults {
            let good = encoder.encode(standard, &settings, &views).unwrap();
            turn.set(fault, 1);
            let error = encoder.encode(standard, &settings, &views).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
            assert_eq!(error.kind(), ErrorKind::Environment);
            let lost = matches!(error, Error::Cuda(tenfold_cuda::Error::DeviceLost(_)));
            assert_eq!(lost, fault == Fault::EncodeDeviceLost);
            assert!(encoder.encode(standard, &settings, &views).unwrap() == good, "{fault:?}");
        }
        encoder.release();
        for (fault, text) in [
            (
                Fault::InitializeFails,
                "NvEncInitializeEncoder failed: NV_ENC_ERR_GENERIC (20): the engine did not start",
            ),
            (Fault::RegisterFails, "NvEncRegisterResource failed: NV_ENC_ERR_RESOURCE_REGISTER_FAILED (23)"),
        ] {
            turn.set(fault, 1);
            let error = encoder.start(standard, &settings).err().unwrap();
            assert!(error.to_string().contains(text), "{error}");
            assert_eq!(turn.counts().sessions, 0);
            drop(encoder.start(standard, &settings).unwrap());
            encoder.release();
        }
    }
    turn.check();
}

#[test]
fn a_session_that_cannot_be_changed_is_replaced() {
    let turn = turn();
    let Some(standard) = any() else { return };
    {
        let encoder = Encoder::new(&device()).unwrap();
        let coarse = settings(standard, 8);
        let fine = tenfold_video::codec::Settings { quality: tenfold_video::Quality::Qp(10), ..coarse };
        let samples = picture(&coarse.format, 3);
        let opened = || turn.counts().sessions_opened;
        let first = encoder.encode(standard, &coarse, &[&samples]).unwrap();
        let before = opened();
        let changed = encoder.encode(standard, &fine, &[&samples]).unwrap();
        assert_eq!(opened(), before, "changed, not opened anew");
        assert!(changed.pictures[0].len() > first.pictures[0].len());
        turn.set(Fault::ReconfigureFails, 1);
        assert!(encoder.encode(standard, &coarse, &[&samples]).unwrap() == first);
        assert_eq!(opened(), before + 1);
    }
    turn.check();
}

#[test]
fn sessions_run_out_and_callers_wait() {
    let turn = turn();
    let Some(standard) = any() else { return };
    {
        let encoder = Encoder::with_limit(&device(), Duration::from_millis(300)).unwrap();
        let settings = settings(standard, 8);
        turn.set(Fault::MaxSessions, 0);
        assert!(matches!(encoder.start(standard, &settings), Err(Error::NoSession)));
        // One session: the second caller waits for the first, as long as it may.
        turn.set(Fault::MaxSessions, 1);
        let held = encoder.start(standard, &settings).unwrap();
        let error = encoder.start(standard, &settings).err().unwrap();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| encoder.start(standard, &settings).map(drop));
            std::thread::sleep(Duration::from_millis(50));
            drop(held);
            waits.join().unwrap().unwrap();
        });
        // Another picture takes the place of an idle session.
        let mut other = settings;
        other.format.width = 320;
        drop(encoder.start(standard, &other).unwrap());
        assert_eq!(turn.counts().most_sessions.max(1), turn.counts().most_sessions);
        assert_eq!(turn.counts().sessions, 1);
    }
    turn.check();
}

#[test]
fn an_engine_that_hangs_is_left_alone() {
    let turn = turn();
    let Some(standard) = any() else { return };
    {
        let encoder = Encoder::with_limit(&device(), Duration::from_millis(200)).unwrap();
        let settings = settings(standard, 8);
        let samples = picture(&settings.format, 3);
        turn.set(Fault::EncodeHang, 1);
        let error = encoder.encode(standard, &settings, &[&samples]).unwrap_err();
        assert!(matches!(error, Error::Timeout { what: "the encoder did not answer", .. }), "{error}");
        turn.set(Fault::EncodeHang, 0);
        // A slow machine may take longer than that for a picture.
        let patient = Encoder::new(&device()).unwrap();
        patient.encode(standard, &settings, &[&samples]).unwrap();
    }
    turn.check();
}

#[test]
fn a_gpu_without_engines_is_said_to_have_none() {
    let turn = turn();
    turn.set(Fault::NoEncoder, -1);
    let error = encodes(&device()).unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, Error::NoEngine(_)) && text.contains("NV_ENC_ERR_UNSUPPORTED_DEVICE (2)"),
        "{text}"
    );
    assert!(text.starts_with("not available: "), "{text}");
    turn.check();
}
