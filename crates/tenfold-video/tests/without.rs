//! A build without codecs says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests
#![cfg(not(any(feature = "video", feature = "av1")))]

use tenfold::engine::ErrorKind;
use tenfold::format::Codec;
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Goal, TensorView};
use tenfold_video::{Standard, VideoOptions};

#[test]
fn both_ways_name_the_feature() {
    let view = TensorView::from_slice(&[1.0f32; 16], &[4, 4]).unwrap();
    let options = EncodeOptions::new(Goal::Bits(2.0));
    let error = tenfold_video::encode(&view, &options, &VideoOptions::new(Standard::Av1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("feature `av1`"), "{error}");
    let mut params = vec![8, 0, 4, 4, 0];
    params.extend([0u8; 8]);
    params.extend(1f64.to_le_bytes());
    params.push(0);
    let parcel = tenfold::format::carry::Parcel {
        codec: Codec::H264,
        dtype: Dtype::F32,
        shape: vec![4, 4],
        transforms: vec![],
        tile_values: 16,
        params,
    };
    let error = tenfold_video::decode(&parcel.write(vec![vec![]]).unwrap(), &DecodeOptions::default());
    let error = error.unwrap_err();
    assert!(
        error.to_string().contains("no H.264 decoder") && error.to_string().contains("`video`"),
        "{error}"
    );
}
