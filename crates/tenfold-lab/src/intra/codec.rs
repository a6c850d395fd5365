//! Pictures to bytes and back.

use super::bins::{Bins, Counter};
use super::bits::{BitReader, BitWriter};
use super::block::{Block, Node};
use super::cabac;
use super::coder::Coder;
use super::error::IntraError;
use super::frame::Frame;
use super::levels::FixedCode;
use super::picture::{Picture, check_size};
use super::quantise::Step;
use super::search::Search;
use super::settings::Settings;
use super::stream::Header;

/// A coded sequence, and what the encoder knows about it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Encoded {
    /// The stream, every header in it.
    pub bytes: Vec<u8>,
    /// What it decodes to.
    pub decoded: Vec<Picture>,
    /// What each sample was predicted to be.
    pub predicted: Vec<Picture>,
    /// Blocks of each picture in coding order.
    pub blocks: Vec<Vec<Block>>,
}

impl Encoded {
    fn new(coder: Coder, bytes: Vec<u8>) -> Self {
        Encoded {
            bytes,
            decoded: coder.decoded,
            predicted: coder.record.predicted,
            blocks: coder.record.blocks,
        }
    }
}

/// Codes pictures of one size and depth.
pub fn encode(pictures: &[Picture], settings: &Settings) -> Result<Encoded, IntraError> {
    let step = settings.validate()?;
    let header = header_for(pictures, settings, step)?;
    if settings.stages.entropy {
        let (mut writer, mut coder) = (cabac::Encoder::default(), Coder::new(&header, true));
        choose(pictures, settings, &mut coder, &mut writer)?;
        return Ok(Encoded::new(coder, header.write(&writer.finish())));
    }
    // Codes of fixed length need the range of all levels: everything is chosen before anything is written.
    let mut first = Coder::new(&header, true);
    let chosen = choose(pictures, settings, &mut first, &mut Counter::default())?;
    let levels = || first.record.blocks.iter().flatten().flat_map(|b| b.levels.iter().copied());
    let fixed = FixedCode::for_range(levels().min().unwrap_or(0), levels().max().unwrap_or(0));
    let header = Header { fixed: Some(fixed), ..header };
    let (mut writer, mut coder) = (BitWriter::default(), Coder::new(&header, true));
    for squares in &chosen {
        for (place, node) in coder.squares().into_iter().zip(squares) {
            coder.tree(&mut writer, place, Some(node))?;
        }
        coder.end_picture()?;
    }
    Ok(Encoded::new(coder, header.write(&writer.finish())))
}

/// Decodes a stream.
pub fn decode(bytes: &[u8]) -> Result<Vec<Picture>, IntraError> {
    let (header, payload) = Header::read(bytes)?;
    let mut coder = Coder::new(&header, false);
    if header.stages.entropy {
        let mut reader = cabac::Decoder::new(payload);
        (0..header.count).try_for_each(|_| coder.read(&mut reader))?;
        reader.finish()?;
    } else {
        let mut reader = BitReader::new(payload);
        (0..header.count).try_for_each(|_| coder.read(&mut reader))?;
        reader.finish()?;
    }
    Ok(coder.decoded)
}

fn header_for(pictures: &[Picture], settings: &Settings, step: Step) -> Result<Header, IntraError> {
    let unsupported = |text: &str| IntraError::Unsupported(text.to_string());
    let first = pictures.first().ok_or_else(|| unsupported("no picture"))?;
    let (width, height, depth) = (first.width(), first.height(), first.depth());
    if pictures.iter().any(|p| (p.width(), p.height(), p.depth()) != (width, height, depth)) {
        return Err(unsupported("pictures of different sizes or depths"));
    }
    check_size(width, height, pictures.len())?;
    let count = u16::try_from(pictures.len()).map_err(|_| unsupported("more than 65535 pictures"))?;
    let smallest = if settings.stages.wants_blocks() { settings.smallest } else { 5 };
    let fixed = (!settings.stages.entropy).then_some(FixedCode { least: 0, bits: 0 });
    // The limit on samples keeps both sides far below 2³².
    let (width, height) = (width as u32, height as u32);
    Ok(Header { stages: settings.stages, depth, smallest, step, width, height, count, fixed })
}

/// Decides about all pictures, coding each square once it is decided: its models serve the next choice.
fn choose<B: Bins>(
    pictures: &[Picture],
    settings: &Settings,
    coder: &mut Coder,
    bins: &mut B,
) -> Result<Vec<Vec<Node>>, IntraError> {
    let step = settings.validate()?;
    let mut all = Vec::with_capacity(pictures.len());
    let mut previous = None;
    for picture in pictures {
        let original =
            Frame::from_fn(picture.width(), picture.height(), picture.depth(), |x, y| picture.at(x, y));
        let mut search = Search::new(settings, step, original, previous, coder.syntax.clone());
        let mut squares = Vec::new();
        for place in coder.squares() {
            let node = search.square(place, &coder.syntax)?;
            coder.tree(bins, place, Some(&node))?;
            squares.push(node);
        }
        coder.end_picture()?;
        all.push(squares);
        previous = Some(search.finish());
    }
    Ok(all)
}
