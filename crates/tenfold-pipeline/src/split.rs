//! Two lanes: a part of the work goes through the codec, the rest takes the link raw. How much, measured rates decide.
//!
//! With T raw bytes, of which C are coded at a rate E to a size C/r, over a link of rate L, the codec takes C/E and the link
//! (T − C + C/r)/L, at the same time. The later of the two ends is earliest where both are equal, or where everything is coded:
//! C/T = min(1, 1 / (L/E + 1 − 1/r)).

/// A running mean that follows changes: an old measurement counts half after about as many bytes as `MEMORY`.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    bytes: f64,
    seconds: f64,
}

/// Bytes after which a measurement has lost half of its weight.
const MEMORY: f64 = (64 << 20) as f64;

impl Mean {
    fn add(&mut self, bytes: f64, seconds: f64) {
        let keep = 0.5f64.powf(bytes / MEMORY);
        (self.bytes, self.seconds) = (self.bytes * keep + bytes, self.seconds * keep + seconds);
    }

    fn rate(self) -> Option<f64> {
        (self.bytes > 0.0 && self.seconds > 0.0).then(|| self.bytes / self.seconds)
    }
}

/// What is known of both lanes, in raw bytes a second, except for the link's own bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Raw bytes a second through the codec: the slower of encoder and decoder, where both belong to the way.
    pub codec: f64,
    /// Raw bytes over coded bytes.
    pub ratio: f64,
    /// Bytes a second over the link.
    pub link: f64,
}

impl Rates {
    /// Share of the raw bytes that should be coded for the earliest end, 0 to 1.
    pub fn share(&self) -> f64 {
        if !(self.ratio > 1.0 && self.codec > 0.0 && self.link > 0.0) {
            return 0.0;
        }
        (1.0 / (self.link / self.codec + 1.0 - 1.0 / self.ratio)).min(1.0)
    }

    /// Seconds for so many raw bytes if a share of them is coded.
    pub fn seconds(&self, bytes: f64, share: f64) -> f64 {
        let coded = bytes * share;
        let sent = bytes - coded + if coded > 0.0 { coded / self.ratio } else { 0.0 };
        (if coded > 0.0 { coded / self.codec } else { 0.0 }).max(sent / self.link)
    }

    /// Whether coding everything ends before sending everything raw. Both ends share cores with the link's own work, so a gain
    /// below 5 % does not count.
    pub fn is_coding_faster(&self) -> bool {
        self.share() > 0.0 && self.seconds(1.0, 1.0) < 0.95 * self.seconds(1.0, 0.0)
    }
}

/// Deals pieces of work to the two lanes and learns from what they take.
///
/// Where results must not depend on timing, use it only if both lanes give the same bits (a lossless goal, decoded at the other end);
/// a lossy goal is applied to all pieces or to none, which [`Rates::is_coding_faster`] decides once, at the start.
#[derive(Debug, Clone, Default)]
pub struct Split {
    codec: Mean,
    coded: Mean,
    link: Mean,
    dealt: (f64, f64),
}

impl Split {
    /// A split that knows nothing: the first piece is coded.
    pub fn new() -> Split {
        Split::default()
    }

    /// A split that starts with rates that were measured or stated before.
    pub fn with_rates(rates: Rates) -> Split {
        let mut split = Split::new();
        // Worth a fraction of a second of measurements: real ones soon outweigh it.
        let bytes = 4.0 * (1 << 20) as f64;
        split.codec.add(bytes, bytes / rates.codec);
        split.coded.add(bytes, bytes / rates.ratio);
        split.link.add(bytes, bytes / rates.link);
        split
    }

    /// The codec took `seconds` for `raw` bytes and made `coded` bytes of them.
    pub fn learn_codec(&mut self, raw: u64, coded: u64, seconds: f64) {
        self.codec.add(raw as f64, seconds);
        self.coded.add(raw as f64, coded as f64);
    }

    /// The link took `seconds` for `bytes`.
    pub fn learn_link(&mut self, bytes: u64, seconds: f64) {
        self.link.add(bytes as f64, seconds);
    }

    /// What is known so far; `None` until both lanes have been measured.
    pub fn rates(&self) -> Option<Rates> {
        Some(Rates { codec: self.codec.rate()?, ratio: self.coded.rate()?, link: self.link.rate()? })
    }

    /// Whether the next piece, of `bytes`, goes through the codec: so that the share of coded bytes stays where the rates want it.
    pub fn deal(&mut self, bytes: u64) -> bool {
        let share = self.rates().map_or(1.0, |rates| rates.share());
        let (coded, all) = (self.dealt.0, self.dealt.1 + bytes as f64);
        // The coded lane gets the piece if it would otherwise fall further behind its share than it gets ahead with it.
        let is_coded = share > 0.0 && coded + bytes as f64 / 2.0 <= share * all;
        self.dealt = (if is_coded { coded + bytes as f64 } else { coded }, all);
        is_coded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares in steps of a thousandth, the best of which the formula must match.
    #[test]
    fn the_share_is_the_one_that_ends_first() {
        for codec in [1e6, 1e7, 1e8, 1e9, 1e10] {
            for link in [1e6, 1.2e7, 1.25e8, 1.25e9] {
                for ratio in [1.01, 1.5, 6.4, 100.0] {
                    let rates = Rates { codec, ratio, link };
                    let time = |share: f64| rates.seconds(1e9, share);
                    let best = (0..=1000).map(|i| time(f64::from(i) / 1000.0)).fold(f64::MAX, f64::min);
                    assert!(time(rates.share()) <= best * 1.000_001, "{rates:?}");
                }
            }
        }
    }

    #[test]
    fn what_grows_or_costs_more_than_it_saves_goes_raw() {
        assert_eq!(Rates { codec: 1e9, ratio: 0.9, link: 1e6 }.share(), 0.0);
        assert_eq!(Rates { codec: 0.0, ratio: 3.0, link: 1e6 }.share(), 0.0);
        assert!(!Rates { codec: 1e8, ratio: 6.0, link: 1.25e9 }.is_coding_faster());
        assert!(Rates { codec: 1e8, ratio: 6.0, link: 1.25e7 }.is_coding_faster());
    }

    #[test]
    fn pieces_are_dealt_as_the_rates_ask() {
        let rates = Rates { codec: 1e8, ratio: 6.4, link: 1e8 };
        let mut split = Split::with_rates(rates);
        let coded = (0..1000).filter(|_| split.deal(1 << 16)).count() as f64 / 1000.0;
        assert!((coded - rates.share()).abs() < 0.01, "{coded} of {}", rates.share());
        // A link that becomes slow makes all pieces go through the codec.
        split.learn_link(1 << 30, (1u64 << 30) as f64 / 1e6);
        let later = (0..1000).filter(|_| split.deal(1 << 16)).count();
        assert!(later > 990, "{later}");
        assert!(Split::new().deal(1 << 20), "nothing is known: the codec is tried");
    }
}
