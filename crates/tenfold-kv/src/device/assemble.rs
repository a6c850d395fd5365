//! Pages put together: blobs of exact tokens, which the host codes, and those that a device has made.

use rayon::prelude::*;
use tenfold::{EncodeOptions, Error, Goal, TensorView};
use tenfold_cuda::{DevicePool, DeviceSlice, Stream};

use super::bases::DevicePages;
use super::queue::part;
use super::save::{Batch, Save};
use crate::error::{Result, invalid};
use crate::page::frame::{self, Blobs, EXACT_KEYS, EXACT_VALUES, KEYS, VALUES};

/// Of a page's blobs, those of keys and of values: exact ones, and the others.
const PLACES: [[usize; 2]; 2] = [[EXACT_KEYS, KEYS], [EXACT_VALUES, VALUES]];

/// Where the blobs of a batch are: of each page, bytes of what [`Save::assemble`] is given; `None` where the device has refused it.
pub type Place = Option<(usize, usize)>;

/// Blobs of a batch as they are assembled: the batch, its bytes, and where in them those of each page are.
pub type Made<'b> = (&'b Batch, &'b [u8], &'b [Place]);

impl Save {
    /// Tokens of a page that stay exact, by their number in it.
    pub fn exact(&self) -> Vec<usize> {
        (0..self.exact.0).chain(self.tokens - self.exact.1..self.tokens).collect()
    }

    /// Bytes of the rows of exact tokens of all pages: keys (0) or values (1) of a group.
    pub fn exact_len(&self, group: usize, side: usize) -> Result<usize> {
        let tokens = self.pages() * (self.exact.0 + self.exact.1);
        Ok(self.dtype.size() * tokens * self.width((group, side))?)
    }

    /// Queues the gathering of the rows of exact tokens. `slots` are theirs, page after page.
    ///
    /// # Safety
    /// As for [`Save::queue_look`].
    pub unsafe fn queue_exact(
        &self,
        (group, side): (usize, usize),
        pool: &DevicePool,
        slots: DeviceSlice,
        rows: DeviceSlice,
        stream: Stream,
    ) -> Result<()> {
        self.check_pool(pool, (group, side))?;
        let slots = part(slots, 0, 8 * self.pages() * (self.exact.0 + self.exact.1))?;
        let rows = part(rows, 0, self.exact_len(group, side)?)?;
        // SAFETY: the caller's.
        Ok(unsafe { pool.gather(slots, rows, stream) }.map_err(Error::from)?)
    }

    /// Lossless blobs of the exact tokens of each page, keys and values of each group in turn, from the rows of each; none without exact
    /// tokens.
    pub fn encode_exact(&self, pages: &DevicePages, rows: &[&[u8]]) -> Result<Vec<Vec<Vec<u8>>>> {
        let tokens = self.exact.0 + self.exact.1;
        if tokens == 0 {
            return Ok(vec![Vec::new(); self.pages()]);
        }
        let sides: Vec<(usize, usize)> =
            (0..self.columns.len()).flat_map(|group| [(group, 0), (group, 1)]).collect();
        let fits = |(&(group, side), rows): (&(usize, usize), &&[u8])| {
            self.exact_len(group, side).is_ok_and(|len| rows.len() == len)
        };
        if rows.len() != sides.len() || !sides.iter().zip(rows).all(fits) {
            return Err(invalid(
                "rows of exact tokens are those of all pages, for keys and values of each group",
            ));
        }
        let page = |page: usize| -> Result<Vec<Vec<u8>>> {
            let blob = |(&(group, side), rows): (&(usize, usize), &&[u8])| {
                let columns = self.width((group, side))?;
                let bytes = self.dtype.size() * tokens * columns;
                let shape = [tokens, columns];
                let view = TensorView::new(self.dtype, &shape, &rows[page * bytes..][..bytes])?;
                let options = EncodeOptions::new(Goal::Lossless).with_effort(pages.effort).with_threads(1);
                Ok(tenfold::encode(&view, &options)?)
            };
            sides.iter().zip(rows).map(blob).collect()
        };
        (0..self.pages()).into_par_iter().map(page).collect()
    }

    /// Pages on their way to bytes, from all batches and the blobs of exact tokens.
    pub fn assemble<'b>(
        &self,
        pages: &DevicePages,
        made: &[Made<'b>],
        exact: &'b [Vec<Vec<u8>>],
    ) -> Result<Vec<Option<Assembled<'b>>>> {
        let count = self.exact.0 + self.exact.1;
        let groups = pages.groups.len();
        if groups != self.columns.len()
            || exact.len() != self.pages()
            || exact.iter().any(|blobs| blobs.len() != if count == 0 { 0 } else { 2 * groups })
        {
            return Err(invalid("every page has its exact tokens"));
        }
        let mut all: Vec<Option<Vec<Blobs<&'b [u8]>>>> = exact
            .iter()
            .map(|blobs| {
                let mut own = vec![Blobs::<&[u8]>::default(); groups];
                for (number, blob) in blobs.iter().enumerate() {
                    own[number / 2][PLACES[number % 2][0]] = blob;
                }
                Some(own)
            })
            .collect();
        for (batch, bytes, places) in made {
            if batch.pages.len() != places.len() || batch.group >= groups {
                return Err(invalid("every page of a batch has a place"));
            }
            for (&page, place) in batch.pages.iter().zip(*places) {
                let own = all.get_mut(page).ok_or_else(|| invalid("a page that is not there"))?;
                match (place, &mut *own) {
                    (Some((from, to)), Some(blobs)) => {
                        let blob = bytes.get(*from..*to).ok_or_else(|| invalid("a place without bytes"))?;
                        blobs[batch.group][PLACES[batch.side][usize::from(!self.lossless)]] = blob;
                    }
                    _ => *own = None,
                }
            }
        }
        let assembled = |blobs: Vec<Blobs<&'b [u8]>>| {
            let layers = pages.groups.iter().map(|group| group.layers);
            let lengths = blobs.iter().map(|blobs| blobs.map(<[u8]>::len));
            let exact = if self.lossless { (self.tokens, 0) } else { self.exact };
            let header = frame::header(self.tokens, exact, layers.zip(lengths));
            Assembled { header, blobs: blobs.into_iter().flatten().collect() }
        };
        Ok(all.into_iter().map(|blobs| blobs.map(assembled)).collect())
    }
}

/// A page in pieces.
#[derive(Debug)]
pub struct Assembled<'b> {
    header: Vec<u8>,
    blobs: Vec<&'b [u8]>,
}

impl Assembled<'_> {
    /// Bytes of the page.
    #[allow(clippy::len_without_is_empty)] // it has a header
    pub fn len(&self) -> usize {
        self.header.len() + self.blobs.iter().map(|blob| blob.len()).sum::<usize>()
    }

    /// Writes pages, each of which takes all of its memory, on all cores.
    pub fn write_all(pages: Vec<(&Self, &mut [u8])>) {
        pages.into_par_iter().for_each(|(page, to)| page.write(to));
    }

    fn write(&self, to: &mut [u8]) {
        let mut rest = to;
        for piece in std::iter::once(self.header.as_slice()).chain(self.blobs.iter().copied()) {
            let (here, behind) = rest.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            rest = behind;
        }
    }
}
