//! The one table of tolerances and limits of searches. The constants of kernels are generated from it.

/// When a search ends. Deviations are relative to the goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Share of a limit that is aimed at: below 1, what comes out a little larger still keeps to it.
    pub aim: f64,
    /// Bytes that are kept free besides, since single ones decide in a small blob.
    pub spare: f64,
    /// How much more than wanted is near enough.
    pub over: f64,
    /// How much less is.
    pub under: f64,
    /// How much less is after so many trials: the longer a search takes, the less it is worth.
    pub late: (f64, usize),
    /// Trials that are made whatever they give.
    pub settling: usize,
    /// Trials in all.
    pub rounds: usize,
    /// Trials after that, with knobs ever further out: not near the goal any more, but within the limit.
    pub retreat: usize,
    /// Octaves between the nearest trials on either side of the goal that leave no room for another, after so many trials.
    pub closed: (f64, usize),
    /// Divides first moves where a rate is steep.
    pub damping: f64,
}

/// What an entry of the table has unless it says otherwise: nothing is near enough, no interval too narrow.
const PLAIN: Tolerance = Tolerance {
    aim: 1.0,
    spare: 0.0,
    over: 0.0,
    under: 0.0,
    late: (0.0, usize::MAX),
    settling: 0,
    rounds: 1,
    retreat: 0,
    closed: (0.0, usize::MAX),
    damping: 1.0,
};

/// Halvings of an interval that find the step of a first plan, by the entropy of plain rounding.
pub const FIRST_HALVINGS: usize = 20;

/// Step and costs in turn on a small sample: the curve changes with the costs, which take some trials to settle.
pub const COARSE_SAMPLE: Tolerance =
    Tolerance { over: 0.01, under: 0.01, settling: 4, rounds: 10, damping: 2.0, ..PLAIN };

/// The step alone on all of the sample.
pub const FINE_SAMPLE: Tolerance = Tolerance { over: 0.0015, under: 0.0015, rounds: 8, ..PLAIN };

/// The step alone on a small sample, from that of a plan which was made for a tensor alike.
pub const KNOWN_SAMPLE: Tolerance = Tolerance { over: 0.003, under: 0.003, rounds: 5, ..PLAIN };

/// Rates of coarse dtypes move in jumps: an interval this narrow is as near as the step alone gets.
const FULL_PASS: Tolerance = Tolerance { rounds: 12, closed: (0.002, 4), ..PLAIN };

/// Values from which on a tensor is large: passes take longer, and a size is met more closely.
pub const MANY_VALUES: usize = 900_000;

/// Full passes for a size.
pub const FULL_PASS_BYTES: Tolerance = Tolerance { over: 0.007, under: 0.007, ..FULL_PASS };

/// The same for large tensors.
pub const FULL_PASS_BYTES_LARGE: Tolerance = Tolerance { over: 0.003, under: 0.003, rounds: 8, ..FULL_PASS };

/// Full passes under a cap. Blobs that are written are held against the cap itself, however far over the aim.
const FULL_PASS_CAP: Tolerance = Tolerance { over: f64::INFINITY, retreat: 80, ..FULL_PASS };

/// Under a cap, small tensors: they are quick to make again, and what they leave unused counts.
pub const FULL_PASS_CAP_SMALL: Tolerance = Tolerance { under: 0.0015, late: (0.006, 6), ..FULL_PASS_CAP };

/// Under a cap, tensors whose size is reckoned before they are written.
pub const FULL_PASS_CAP_RECKONED: Tolerance =
    Tolerance { aim: 0.999, spare: 2.0, over: 0.0005, under: 0.006, ..FULL_PASS_CAP };

/// The same for large tensors.
pub const FULL_PASS_CAP_RECKONED_LARGE: Tolerance = Tolerance { rounds: 8, ..FULL_PASS_CAP_RECKONED };

/// Under a cap, tensors that are written as they are quantised: to make one again takes as long as it took and gains next
/// to nothing. The aim is lower by about as much as a sample is off, so that few are.
pub const FULL_PASS_CAP_STREAMED: Tolerance =
    Tolerance { aim: 0.9965, under: 0.012, late: (0.02, 1), rounds: 8, ..FULL_PASS_CAP };

/// Full passes for an error, which is a limit too: a little more of its reciprocal is near enough, and never less.
pub const FULL_PASS_ERROR: Tolerance =
    Tolerance { aim: 0.995, over: 0.015, under: f64::INFINITY, ..FULL_PASS };

/// The same for large tensors.
pub const FULL_PASS_ERROR_LARGE: Tolerance = Tolerance { rounds: 8, ..FULL_PASS_ERROR };

/// The weight of a bit, where the step alone does not meet a size. Near enough is what was for the step.
pub const WEIGHT: Tolerance = Tolerance { rounds: 7, ..PLAIN };

/// Weights of a bit that may be of use, over the usual one.
pub const WEIGHTS: std::ops::RangeInclusive<f64> = 0.05..=6.0;

/// Shares of a page's blobs: shares matter, the size is kept by the blobs themselves.
pub const SHARES: Tolerance = Tolerance { over: 0.02, under: 0.02, rounds: 12, closed: (0.03, 0), ..PLAIN };

/// One step for all blobs of a page under a cap, by encoding them.
pub const PAGE: Tolerance =
    Tolerance { aim: 0.995, over: 0.005, under: 0.01, late: (0.03, 3), rounds: 5, ..PLAIN };

/// The same for pages that a device encodes at once: a round more costs more there than a few bytes.
pub const PAGES: Tolerance = Tolerance { aim: 0.988, under: 0.018, late: (0.033, 2), rounds: 16, ..PLAIN };

/// One step for all pages of a context under a cap, likewise; and if need be a step as coarse as it takes.
pub const CONTEXT: Tolerance = Tolerance { rounds: 8, retreat: 24, ..PAGE };

/// One step for all tensors of a model, corrected by what encoding the whole model took.
pub const ARCHIVE: Tolerance = Tolerance { over: 0.005, under: 0.005, rounds: 3, ..PLAIN };

/// Pictures of a video codec for a rate.
pub const VIDEO_RATE: Tolerance = Tolerance { over: 0.004, under: 0.004, rounds: 9, ..PLAIN };

/// Pictures under a cap.
pub const VIDEO_CAP: Tolerance = Tolerance { over: 0.0, ..VIDEO_RATE };

/// Pictures for an error; elements are rounded after the search, hence the aim.
pub const VIDEO_ERROR: Tolerance = Tolerance { aim: 0.995, over: 0.014, rounds: 9, ..PLAIN };

/// Blobs for slots of a fixed size, starting at the step of the blob before: rates differ a little from one to the next. A
/// blob that fills much less of its slot is no good: where all values are alike, a step a little too large sends nothing.
/// What is too much for the slot is not for the table to say.
pub const SLOTS: Tolerance = Tolerance { aim: 0.995, over: f64::INFINITY, under: 0.05, rounds: 2, ..PLAIN };

/// A step this close to the finest one, as a factor, counts as the finest: no finer one helps.
pub const AT_FINEST: f64 = 1.001;

/// Trials on a device's sample, step and costs in turn.
pub const DEVICE_COARSE_SAMPLE: Tolerance = Tolerance { settling: 3, rounds: 5, ..COARSE_SAMPLE };

/// Trials on a device's sample, the step alone. A trial that is off by no more than `late` is the last: the step is moved by as
/// much, which leaves a hundredth of that.
pub const DEVICE_FINE_SAMPLE: Tolerance = Tolerance { late: (0.006, 0), rounds: 4, ..FINE_SAMPLE };

/// Full passes of a device for a size. They are all queued before the first has run, so there are few, with more latitude.
pub const DEVICE_BYTES: Tolerance =
    Tolerance { over: 0.007, under: 0.007, rounds: 4, closed: (0.002, 0), ..PLAIN };

/// Full passes of a device under a cap, where `under` is a share of the cap: another pass costs more than unused bytes.
pub const DEVICE_CAP: Tolerance =
    Tolerance { aim: 0.996, spare: 2.0, over: f64::INFINITY, under: 0.006, retreat: 6, ..DEVICE_BYTES };

/// Full passes of a device for an error.
pub const DEVICE_ERROR: Tolerance =
    Tolerance { aim: 0.995, over: 0.02, under: f64::INFINITY, retreat: 1, ..DEVICE_BYTES };

/// Full passes over pages that a device plans together: the step of the first pass is close already.
pub const DEVICE_PAGES: Tolerance = Tolerance { rounds: 3, retreat: 4, ..DEVICE_CAP };

/// What a device's passes do beyond a plain search, because the host does not look between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DevicePasses {
    /// Under a cap, each pass aims lower than the one before: the second by this share, the third by three times as much, …
    pub lower: f64,
    /// … and none by more than this share.
    pub lowest: f64,
    /// Factor on the step of the last pass for an error: no pass is left to correct it, so it goes further than it points.
    pub further: f64,
    /// Octaves of the first retreat; each retreat goes twice as far as the one before.
    pub retreat: f64,
}

/// The passes of a device.
pub const DEVICE_PASSES: DevicePasses =
    DevicePasses { lower: 0.004, lowest: 0.1, further: 0.97, retreat: 0.6 };

/// How a device looks for a step without writing anything: sizes are sums of table entries, so a look tries several steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceLooks {
    /// Looks of the kernel that finds the first step of a plan.
    pub first: usize,
    /// Octaves between the steps of a page's first look.
    pub far: f64,
    /// Octaves between the steps of its later looks.
    pub near: f64,
    /// Looks after the first, at most. One is enough for most pages.
    pub rounds: usize,
    /// How far beyond two steps the wanted one may lie, in distances between them.
    pub beyond: f64,
}

/// The looks of a device.
pub const DEVICE_LOOKS: DeviceLooks =
    DeviceLooks { first: 3, far: 0.6667, near: 0.06, rounds: 3, beyond: 1.0 };

impl Tolerance {
    /// What to aim at for a limit.
    pub fn aim_at(&self, limit: f64) -> f64 {
        limit * self.aim - self.spare
    }

    /// Whether a trial is near enough that gave `1 + off` of what is wanted.
    pub fn is_near(&self, off: f64, round: usize) -> bool {
        let under = if round < self.late.1 { self.under } else { self.late.0 };
        round + 1 >= self.settling && (-under..=self.over).contains(&off)
    }

    /// Whether trials on either side of the goal are so near each other that none between them would tell more.
    pub fn is_closed(&self, width: Option<f64>, round: usize) -> bool {
        round >= self.closed.1 && width.is_some_and(|w| w < self.closed.0)
    }
}
