//! Pictures of one component.

use super::error::IntraError;

/// Samples of all pictures of one stream together; checked before memory is taken.
pub(super) const MAX_SAMPLES: usize = 1 << 25;

/// A picture of unsigned samples, row after row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    width: usize,
    height: usize,
    depth: u8,
    samples: Vec<u16>,
}

impl Picture {
    /// A picture of 8 to 12 bits a sample.
    pub fn new(width: usize, height: usize, depth: u8, samples: Vec<u16>) -> Result<Self, IntraError> {
        check_size(width, height, 1)?;
        if !(8..=12).contains(&depth) {
            return Err(IntraError::Unsupported(format!("samples of {depth} bits")));
        }
        if samples.len() != width * height {
            let text = format!("{} samples for a picture of {width} by {height}", samples.len());
            return Err(IntraError::Unsupported(text));
        }
        if let Some(s) = samples.iter().find(|&&s| s >> depth != 0) {
            return Err(IntraError::Unsupported(format!("the sample {s} in a picture of {depth} bits")));
        }
        Ok(Picture { width, height, depth, samples })
    }

    /// Samples in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Bits of a sample.
    pub fn depth(&self) -> u8 {
        self.depth
    }

    /// All samples, row after row.
    pub fn samples(&self) -> &[u16] {
        &self.samples
    }

    /// The sample at a position, the nearest one for positions beyond the right or lower edge.
    pub fn at(&self, x: usize, y: usize) -> u16 {
        self.samples[y.min(self.height - 1) * self.width + x.min(self.width - 1)]
    }
}

/// Whether so many pictures of this size are within limits.
pub(super) fn check_size(width: usize, height: usize, count: usize) -> Result<(), IntraError> {
    // Memory goes by whole units of 4 by 4 samples.
    let padded = |n: usize| n.checked_next_multiple_of(4);
    let samples = padded(width)
        .zip(padded(height))
        .and_then(|(w, h)| w.checked_mul(h)?.checked_mul(count))
        .filter(|&n| n > 0 && n <= MAX_SAMPLES);
    match samples {
        Some(_) => Ok(()),
        None => Err(IntraError::Unsupported(format!("{count} pictures of {width} by {height}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sound_pictures_exist() {
        assert!(Picture::new(3, 2, 8, vec![0, 1, 2, 3, 4, 255]).is_ok());
        assert!(Picture::new(3, 2, 8, vec![0, 1, 2, 3, 4, 256]).is_err());
        assert!(Picture::new(3, 2, 9, vec![0, 1, 2, 3, 4, 256]).is_ok());
        assert!(Picture::new(3, 2, 8, vec![0; 5]).is_err());
        assert!(Picture::new(1, 1, 7, vec![0]).is_err());
        assert!(Picture::new(1, 1, 13, vec![0]).is_err());
        assert!(Picture::new(0, 4, 8, vec![]).is_err());
    }

    #[test]
    fn sizes_are_bounded_without_overflow() {
        assert!(check_size(usize::MAX, 2, 1).is_err());
        assert!(check_size(1 << 20, 1 << 20, 1).is_err());
        assert!(check_size(1 << 12, 1 << 12, 2).is_ok());
        assert!(check_size(1 << 12, 1 << 12, 3).is_err());
    }
}
