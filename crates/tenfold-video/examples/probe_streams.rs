//! Writes the pictures that a probe of a hardware decoder decodes: 256×256, 8 bits, 4:2:0, middle gray.
//!
//! `cargo run -p tenfold-video --features video --example probe_streams -- FOLDER`

use tenfold_video::codec::{Encoder, Format, Settings};
use tenfold_video::{Chroma, Quality};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("name a folder")?;
    let format = Format { width: 256, height: 256, depth: 8, chroma: Chroma::Constant };
    let settings =
        Settings { format, quality: Quality::Qp(30), effort: tenfold::Effort::Balanced, inter: false };
    let gray = vec![128u16; format.samples()];
    for (name, file) in [("x264", "gray.h264"), ("x265", "gray.h265"), ("aom", "gray.av1")] {
        let encoder = tenfold_video::encoders().into_iter().find(|e| e.name() == name).ok_or(name)?;
        let coded = Encoder::encode(encoder, &settings, &[&gray])?;
        std::fs::write(format!("{folder}/{file}"), [coded.parameter_sets, coded.pictures.concat()].concat())?;
    }
    Ok(())
}
