//! The part that encoder and decoder share: walks the squares of pictures, codes decisions, rebuilds samples.

use super::bins::Bins;
use super::block::{Block, Kind, Node, Place, Syntax};
use super::error::IntraError;
use super::frame::{Frame, add_residual};
use super::picture::Picture;
use super::stream::Header;
use super::transform::{MAX_AREA, MAX_SIDE};

/// What an encoder wants to know beside the pictures.
#[derive(Default)]
pub(super) struct Record {
    /// Predictions, picture by picture.
    pub predicted: Vec<Picture>,
    /// Blocks in coding order, picture by picture.
    pub blocks: Vec<Vec<Block>>,
}

/// State over a sequence of pictures.
pub(super) struct Coder {
    header: Header,
    pub syntax: Syntax,
    frame: Frame,
    previous: Option<Frame>,
    /// Prediction and blocks of the current picture, if anyone wants them.
    tracing: Option<(Frame, Vec<Block>)>,
    pub record: Record,
    pub decoded: Vec<Picture>,
}

impl Coder {
    /// Before the first picture. `trace`: whether to keep a [`Record`].
    pub fn new(header: &Header, trace: bool) -> Self {
        Coder {
            syntax: Syntax::new(header.stages, u32::from(header.smallest), header.fixed),
            frame: blank(header),
            previous: None,
            tracing: trace.then(|| (blank(header), Vec::new())),
            record: Record::default(),
            decoded: Vec::new(),
            header: header.clone(),
        }
    }

    /// The squares of a picture in coding order.
    pub fn squares(&self) -> Vec<Place> {
        let starts = |end: usize| (0..end).step_by(MAX_SIDE);
        let log2 = MAX_SIDE.ilog2();
        starts(self.frame.height())
            .flat_map(|y| starts(self.frame.width()).map(move |x| Place { x, y, log2 }))
            .collect()
    }

    /// Reads a whole picture.
    pub fn read<B: Bins>(&mut self, bins: &mut B) -> Result<(), IntraError> {
        for place in self.squares() {
            self.tree(bins, place, None)?;
        }
        self.end_picture()
    }

    /// Codes a square: an encoder says what is in it, a decoder passes `None`.
    pub fn tree<B: Bins>(
        &mut self,
        bins: &mut B,
        place: Place,
        node: Option<&Node>,
    ) -> Result<(), IntraError> {
        if !self.frame.touches(place) {
            return Ok(());
        }
        let wanted = matches!(node, Some(Node::Split(_)));
        let split = if !self.frame.holds(place) {
            true
        } else if place.log2 > self.syntax.smallest {
            self.syntax.split(bins, place.log2, wanted)?
        } else {
            false
        };
        if split {
            for (i, quarter) in place.quarters().into_iter().enumerate() {
                let child = if let Some(Node::Split(all)) = node { Some(&all[i]) } else { None };
                self.tree(bins, quarter, child)?;
            }
            return Ok(());
        }
        let (kind, mut levels) = match node {
            Some(Node::Leaf(kind, levels)) => (*kind, levels.clone()),
            _ => (Kind::Middle, vec![0; place.area()]),
        };
        let kind = self.syntax.kind(bins, kind, self.frame.beside(place), self.previous.is_some())?;
        self.syntax.levels(bins, place.log2, &mut levels)?;
        self.rebuild(place, kind, levels);
        Ok(())
    }

    fn rebuild(&mut self, place: Place, kind: Kind, levels: Vec<i32>) {
        let mut samples = [0i32; MAX_AREA];
        self.frame.predict(kind, place, self.previous.as_ref(), &mut samples);
        if let Some((predicted, _)) = &mut self.tracing {
            predicted.put(place, &samples);
        }
        add_residual(&mut samples[..place.area()], &levels, place, self.header.step, self.header.stages);
        self.frame.put(place, &samples);
        self.frame.mark(place, kind);
        if let Some((_, blocks)) = &mut self.tracing {
            blocks.push(Block { x: place.x, y: place.y, side: place.side(), kind, levels });
        }
    }

    /// Ends a picture: it becomes the previous one.
    pub fn end_picture(&mut self) -> Result<(), IntraError> {
        let (width, height) = (self.header.width as usize, self.header.height as usize);
        let done = std::mem::replace(&mut self.frame, blank(&self.header));
        self.decoded.push(done.to_picture(width, height)?);
        self.previous = Some(done);
        if let Some((predicted, blocks)) = &mut self.tracing {
            self.record.predicted.push(predicted.to_picture(width, height)?);
            self.record.blocks.push(std::mem::take(blocks));
        }
        Ok(())
    }
}

fn blank(header: &Header) -> Frame {
    Frame::empty(header.width as usize, header.height as usize, header.depth)
}
