//! What an engine can do, as data that callers in any language can ask for.

use crate::error::{Error, ErrorKind, Result};
use crate::format::{BlobInfo, Codec};
use crate::options::{EncodeOptions, Goal};
use crate::prepare::{Named, Transform};
use crate::view::Dtype;

/// What an engine can do.
///
/// ```
/// use tenfold::engine::{Cpu, Engine};
/// use tenfold::format::Codec;
/// let can = Cpu.capabilities();
/// assert!(can.decodes.contains(&Codec::Layers) && can.goals.contains(&"bits"));
/// assert!(!can.decodes.contains(&Codec::H265));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Codecs of the blobs that it makes. [`Codec::Layers`] among them: it takes residuals.
    pub encodes: Vec<Codec>,
    /// Codecs of the blobs that it decodes.
    pub decodes: Vec<Codec>,
    /// Element types of the tensors that it encodes.
    pub dtypes: Vec<Dtype>,
    /// Goals by name, as in [`Goal::NAMES`].
    pub goals: Vec<&'static str>,
    /// Transforms that it does before it encodes, by name, as in [`Transform::NAMES`].
    pub does: Vec<&'static str>,
    /// Transforms that it undoes when it decodes.
    pub undoes: Vec<&'static str>,
    /// Whether it decodes some rows without the others.
    pub rows: bool,
    /// Whether it feeds errors back by a [`Curvature`](crate::calibrated::Curvature).
    pub feeds: bool,
    /// Whether it does one call at a time: calls from several threads wait for their turn.
    pub takes_turns: bool,
}

impl Capabilities {
    /// All that the native format has: what this crate's own engine can do.
    pub fn native() -> Capabilities {
        let codecs = vec![Codec::Planes, Codec::Levels, Codec::Layers];
        Capabilities {
            encodes: codecs.clone(),
            decodes: codecs,
            dtypes: Dtype::ALL.to_vec(),
            goals: Goal::NAMES.iter().map(|goal| goal.name).collect(),
            does: Transform::NAMES.to_vec(),
            undoes: Transform::NAMES.to_vec(),
            rows: true,
            feeds: true,
            takes_turns: false,
        }
    }

    /// Whether it encodes a tensor of a dtype with these options; if not, an error of kind [`ErrorKind::Unsupported`] says why.
    pub fn check_encode(&self, engine: &str, dtype: Dtype, options: &EncodeOptions) -> Result<()> {
        let transform = options.prepare.stated().iter().map(Named::name).find(|t| !self.does.contains(t));
        let goals = || std::iter::once(&options.goal).chain(&options.residual);
        let goal = goals().map(|goal| goal.name()).find(|goal| !self.goals.contains(goal));
        let reason = match (transform, goal) {
            _ if !self.dtypes.contains(&dtype) => format!("encode {dtype} tensors"),
            _ if !options.residual.is_empty() && !self.encodes.contains(&Codec::Layers) => {
                "encode residuals".into()
            }
            _ if options.curvature.is_some() && !self.feeds => "encode with a curvature".into(),
            (Some(transform), _) => format!("do the transform {transform:?} before it encodes"),
            (_, Some(goal)) => format!("encode with the goal {goal:?}"),
            (None, None) => return Ok(()),
        };
        Err(unsupported(engine, &reason))
    }

    /// Whether it decodes a blob, judged by the blob's header; if not, an error says why: [`Error::OtherEngine`] for a codec
    /// outside this crate, else one of kind [`ErrorKind::Unsupported`]. Layers have transforms of their own, which are not known
    /// here.
    pub fn check_decode(&self, engine: &str, info: &BlobInfo) -> Result<()> {
        if !self.decodes.contains(&info.codec) {
            return Err(match info.codec.id() {
                Some(id) => Error::OtherEngine { id, codec: info.codec.name() },
                None => unsupported(engine, &format!("decode {} blobs", info.codec.name())),
            });
        }
        match info.transforms.iter().map(Transform::name).find(|t| !self.undoes.contains(t)) {
            Some(transform) => Err(unsupported(engine, &format!("undo the blob's transform {transform:?}"))),
            None => Ok(()),
        }
    }
}

fn unsupported(engine: &str, what: &str) -> Error {
    Error::Engine {
        kind: ErrorKind::Unsupported,
        reason: format!("the engine {engine:?} does not {what}; use another"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Cpu, Engine};
    use crate::prepare::Hadamard;
    use crate::view::TensorView;

    #[test]
    fn an_engine_says_what_it_cannot_do() {
        let rotate = || vec![Transform::Hadamard(Hadamard::new(4, 1).unwrap())];
        let plain = EncodeOptions::new(Goal::Bits(3.0));
        let (residual, rotated) =
            (plain.clone().with_residual(Goal::Bits(3.0)), plain.clone().with_transforms(rotate()));
        let few = Capabilities {
            encodes: vec![Codec::Levels],
            decodes: vec![Codec::Levels],
            goals: vec!["bits"],
            does: Vec::new(),
            undoes: Vec::new(),
            ..Capabilities::native()
        };
        let values: Vec<f32> = (0..600).map(|i| (i as f32).sin()).collect();
        let view = TensorView::from_slice(&values, &[30, 20]).unwrap();
        for (options, word) in [
            (&residual, "residuals"),
            (&rotated, "\"Hadamard\""),
            (&EncodeOptions::new(Goal::Step(0.1)), "\"step\""),
        ] {
            assert_eq!(Cpu.can_encode(Dtype::F32, options), Ok(()));
            let error = few.check_encode("few", Dtype::F32, options).unwrap_err();
            assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains(word), "{error}");
            let info = crate::inspect(&Cpu.encode(&view, options).unwrap()).unwrap();
            assert_eq!(Cpu.can_decode(&info), Ok(()));
            assert_eq!(few.check_decode("few", &info).is_ok(), options.goal.name() == "step");
        }
        assert_eq!(few.check_encode("few", Dtype::F32, &plain), Ok(()));
    }
}
