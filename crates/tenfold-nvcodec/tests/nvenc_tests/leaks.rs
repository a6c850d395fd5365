//! Many small calls from two threads: nothing is left.

use tenfold_nvcodec::nvenc::Encoder;
use tenfold_video::Quality;
use tenfold_video::codec::Settings;

use super::common::{any, device, picture, settings, turn};

#[test]
fn ten_thousand_calls_leave_nothing() {
    let turn = turn();
    let Some(standard) = any() else { return };
    {
        let device = device();
        let before = device.free_memory().unwrap();
        {
            let encoder = Encoder::new(&device).unwrap();
            let run = |thread: usize| {
                for i in 0..5000 {
                    let mut settings = settings(standard, 8);
                    // Sizes and quantisers change: sessions are kept, changed, closed and opened.
                    settings.format.width += 64 * (i / 50 % 6 + thread);
                    let settings = Settings { quality: Quality::Qp(20 + (i % 3) as u32), ..settings };
                    if i % 250 == 0 {
                        let samples = picture(&settings.format, i as u64);
                        encoder.encode(standard, &settings, &[&samples]).unwrap();
                    } else {
                        drop(encoder.start(standard, &settings).unwrap());
                    }
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| run(0));
                scope.spawn(|| run(1));
            });
            assert!(turn.counts().sessions <= 4);
        }
        assert_eq!(device.free_memory().unwrap(), before);
    }
    turn.check();
}
