//! How a quantity is expected to respond to a step, before two trials have shown it.

/// What is known of common quantities.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slopes {
    /// An octave of the step saves one bit a value, and more below this many bits a value, where most values are zero.
    pub knee: f64,
    /// Bits that an octave takes, at most.
    pub steepest: f64,
    /// Octaves that a guess leads, at most.
    pub farthest: f64,
    /// Factor on a knob with an unknown slope that gave too much.
    pub up: f64,
    /// The same for a knob that gave too little.
    pub down: f64,
}

/// The slopes of every search.
pub const SLOPES: Slopes = Slopes { knee: 1.2, steepest: 2.5, farthest: 2.0, up: 1.15, down: 0.85 };

/// What is searched along.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Slope {
    /// A size or a rate over the step.
    Rate {
        /// What one bit for each value amounts to, in the unit of the quantity.
        bit: f64,
    },
    /// The reciprocal of a mean squared error over the step.
    Fineness,
    /// Nothing but that it falls.
    Unknown,
}

impl Slope {
    /// The slope of a size in bytes of so many values.
    pub fn bytes(values: f64) -> Slope {
        Slope::Rate { bit: values / 8.0 }
    }

    /// Factor on the knob that should lead from what it gave to what is wanted. `damping` of 2 halves moves along a rate's slope
    /// where it is steep: for a curve that is still changing.
    pub fn factor(self, got: f64, want: f64, damping: f64) -> f64 {
        let Slopes { knee, steepest, farthest, up, down } = SLOPES;
        match self {
            Slope::Rate { bit } => {
                let slope = (knee * damping / (want / bit)).clamp(1.0, steepest * damping);
                ((got / bit - want / bit) / slope).clamp(-farthest, farthest).exp2()
            }
            Slope::Fineness => (got / want).sqrt().clamp((-farthest).exp2(), farthest.exp2()),
            Slope::Unknown if got > want => up,
            Slope::Unknown => down,
        }
    }
}
