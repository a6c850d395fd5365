//! The result of deltas, read tensor by tensor: nothing of the base changes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;
use tenfold::delta::Fingerprint;
use tenfold::engine::threads;

use super::chain::{Chain, Route, Start, Step};
use super::difference;
use super::file::DeltaFile;
use super::fingerprint::{Prints, of_model, of_parts, of_tensor};
use super::options::{ApplyOptions, compile_for};
use super::record::How;
use super::tensors::{Meta, Tensors};
use crate::compress::batches;
use crate::error::{Error, Result};
use crate::progress::Progress;

/// A tensor of a result.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PatchedTensor {
    /// What it is.
    pub meta: Meta,
    /// Number of the base's tensor that it is made of, or that stays in its place; `None` for one that is new.
    pub base: Option<usize>,
    /// Whether it is the base's tensor, byte for byte, whatever its name.
    pub unchanged: bool,
    pub(super) route: Option<Route>,
    /// Number of the base's tensor in whose place it stands; `None` for those behind all others.
    pub(super) place: Option<usize>,
}

/// What deltas make of a base. Nothing is read before it is asked for.
pub struct Patched<'p, 'a> {
    base: &'p Tensors<'a>,
    chain: Chain<'p>,
    options: ApplyOptions,
    tensors: Vec<PatchedTensor>,
}

impl<'p, 'a> Patched<'p, 'a> {
    /// Finds out what deltas, one after the other, make of a base: from names, dtypes and shapes.
    pub fn new(
        base: &'p Tensors<'a>,
        deltas: &[&'p DeltaFile],
        options: &ApplyOptions,
    ) -> Result<Patched<'p, 'a>> {
        let mut chain = Chain::new(deltas)?;
        if !options.only.is_empty() {
            let names = base.items().iter().map(|meta| meta.name.as_str()).chain(chain.names());
            let only = compile_for(&options.only, names)?;
            chain.keep(&only);
        }
        let mut patched = Patched { base, chain, options: options.clone(), tensors: Vec::new() };
        patched.tensors = patched.plan()?;
        Ok(patched)
    }

    /// The tensors: those of the base in its order, renamed ones in the place of their old names; then new ones by name.
    pub fn tensors(&self) -> &[PatchedTensor] {
        &self.tensors
    }

    /// The metadata of the result.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        self.new_metadata().unwrap_or(self.base.metadata())
    }

    /// The same where it is not the base's. What is done to some tensors alone leaves it.
    pub(super) fn new_metadata(&self) -> Option<&BTreeMap<String, String>> {
        self.chain.metadata().filter(|_| self.options.only.is_empty())
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().fold(0, |sum, tensor| tensor.meta.bytes.saturating_add(sum))
    }

    fn plan(&self) -> Result<Vec<PatchedTensor>> {
        let mut routes: BTreeMap<&str, &Route> =
            self.chain.routes.iter().map(|(name, route)| (name.as_str(), route)).collect();
        // Where tensors of the base go that have another name now: the first, if there are several.
        let mut moved: HashMap<&str, &str> = HashMap::new();
        for (name, route) in &self.chain.routes {
            if let Start::Base(from) = &route.start
                && self.base.find(name).is_none()
            {
                moved.entry(from).or_insert(name);
            }
        }
        let mut tensors = Vec::new();
        for (index, meta) in self.base.items().iter().enumerate() {
            let removed = self.chain.removed.contains(&meta.name);
            let name = moved.get(meta.name.as_str()).copied().filter(|_| removed).unwrap_or(&meta.name);
            let planned = match routes.remove(name) {
                Some(route) => self.plan_route(name, route)?,
                None if removed => continue,
                None => {
                    let (meta, base, place) = (meta.clone(), Some(index), None);
                    PatchedTensor { meta, base, unchanged: true, route: None, place }
                }
            };
            tensors.push(PatchedTensor { place: Some(index), ..planned });
        }
        for (name, route) in routes {
            tensors.push(self.plan_route(name, route)?);
        }
        Ok(tensors)
    }

    /// What a tensor becomes, by dtypes and shapes.
    fn plan_route(&self, name: &str, route: &Route) -> Result<PatchedTensor> {
        let planned =
            |meta, base, unchanged, route| Ok(PatchedTensor { meta, base, unchanged, route, place: None });
        let (mut meta, base) = match &route.start {
            Start::Stored(step) => {
                let (delta, change) = self.chain.change(*step);
                let meta = change.meta.clone();
                (meta.ok_or_else(|| delta.malformed(name, "is not in the file"))?, None)
            }
            Start::Base(from) => match (self.base.find(from), self.base.find(name)) {
                (Some(index), _) => (self.base.items()[index].clone(), Some(index)),
                // It has its new name already.
                (None, Some(index)) => {
                    return planned(self.base.items()[index].clone(), Some(index), true, Some(route.clone()));
                }
                (None, None) => {
                    return Err(self.chain.first().wrong_base(format!("this one has no tensor {from:?}")));
                }
            },
        };
        for &step in &route.steps {
            let (delta, change) = self.chain.change(step);
            let Some(made) = &change.meta else { return Err(delta.malformed(name, "is not in the file")) };
            let fits = match change.how {
                How::Difference => {
                    meta.dtype().is_some_and(difference::takes)
                        && meta.dtype().map(difference::dtype_of) == made.dtype()
                        && values(&meta.shape) == values(&made.shape)
                }
                _ => meta.stored == made.stored && meta.bytes == made.bytes,
            };
            if !fits {
                let reason = format!("tensor {name:?} is {} there and {} here", made.kind(), meta.kind());
                return Err(delta.wrong_base(reason));
            }
            meta.shape.clone_from(&made.shape);
        }
        meta.name = name.to_owned();
        let unchanged = matches!(route.start, Start::Base(_)) && route.steps.is_empty();
        planned(meta, base, unchanged, Some(route.clone()))
    }

    /// The bytes of a tensor of the result. An error says if the base is another one; of tensors that no delta changes it cannot.
    pub fn read(&self, index: usize) -> Result<Cow<'a, [u8]>> {
        Ok(self.read_with_print(index, false)?.0)
    }

    /// The same with its fingerprint, which is zero where it is neither asked for nor known.
    pub(super) fn read_with_print(&self, index: usize, print: bool) -> Result<(Cow<'a, [u8]>, Fingerprint)> {
        let tensor = self.tensors.get(index).ok_or_else(|| {
            Error::InvalidArgument(format!("tensor {index} does not exist: there are {}", self.tensors.len()))
        })?;
        self.options.stop.check().map_err(Error::codec(&tensor.meta.name))?;
        let Some(route) = &tensor.route else {
            let data = self.base.read(tensor.base.unwrap_or_default())?;
            let found = if print { of_tensor(&tensor.meta, &data)? } else { Fingerprint([0; 16]) };
            return Ok((data, found));
        };
        let data = match (&route.start, tensor.base) {
            (Start::Stored(step), _) => {
                let (delta, change) = self.chain.change(*step);
                let data = delta.read_whole(change, &self.options.decode())?;
                let meta = change.meta.as_ref().unwrap_or(&tensor.meta);
                if of_tensor(meta, &data)? != change.result {
                    return Err(
                        delta.malformed(&change.name, "is not the tensor that the delta was made with")
                    );
                }
                Cow::Owned(data)
            }
            (Start::Base(_), index) => self.base.read(index.unwrap_or_default())?,
        };
        if tensor.unchanged {
            let found = of_tensor(&tensor.meta, &data)?;
            if found != route.result {
                let reason = format!("this one has another tensor {:?}", tensor.meta.name);
                return Err(self.chain.first().wrong_base(reason));
            }
            return Ok((data, route.result));
        }
        let mut new = data.into_owned();
        for (i, &step) in route.steps.iter().enumerate() {
            match self.take_step(tensor, step, &mut new) {
                // All of them were applied before: the first finds neither its base nor what it makes of it.
                Err(_)
                    if i == 0 && route.steps.len() > 1 && of_tensor(&tensor.meta, &new)? == route.result =>
                {
                    break;
                }
                done => done?,
            }
        }
        Ok((Cow::Owned(new), route.result))
    }

    fn take_step(&self, tensor: &PatchedTensor, step: Step, data: &mut Vec<u8>) -> Result<()> {
        let (delta, change) = self.chain.change(step);
        let (name, shape) = (&tensor.meta.name, &change.meta.as_ref().unwrap_or(&tensor.meta).shape);
        let Some(dtype) = tensor.meta.dtype() else { return Err(delta.malformed(name, "has no delta")) };
        if change.how == How::Delta {
            let blob = delta.read_raw(change)?;
            tenfold::delta::apply_in_place(&blob, dtype, shape, data, &self.options.inner())
                .map_err(Error::codec(name))?;
            return Ok(());
        }
        let found = of_parts(tensor.meta.stored, shape, data).map_err(Error::codec(name))?;
        if found == change.result {
            return Ok(()); // it was added before
        }
        if Some(found) != change.base {
            let expected = change.base.map(|print| print.to_string()).unwrap_or_default();
            let source = tenfold::Error::WrongBase { expected, found: found.to_string() };
            return Err(Error::codec(name)(source));
        }
        let by = delta.read_tensor(change, &self.options.decode())?;
        let sum = difference::add(dtype, data, &by).filter(|sum| sum.len() == data.len());
        let made = |sum: &Vec<u8>| {
            of_parts(tensor.meta.stored, shape, sum).is_ok_and(|print| print == change.result)
        };
        *data =
            sum.filter(made).ok_or_else(|| delta.malformed(name, "does not become what the delta says"))?;
        Ok(())
    }

    /// Reads every tensor and hands it on, in order; then compares the result as a whole, if it is known as a whole. `order` lists numbers of tensors.
    pub(super) fn for_each(
        &self,
        order: &[usize],
        prints: &mut Prints,
        progress: &dyn Progress,
        mut take: impl FnMut(usize, Cow<'a, [u8]>) -> Result<()>,
    ) -> Result<()> {
        let whole = self.options.is_whole();
        for batch in batches(order, |i| self.tensors[i].meta.bytes) {
            let batch = &order[batch];
            progress.message(&self.tensors[batch[0]].meta.name);
            let read = |&i: &usize| {
                let read = self.read_with_print(i, whole)?;
                progress.advance(self.tensors[i].meta.bytes);
                Ok(read)
            };
            let read: Vec<(Cow<'a, [u8]>, Fingerprint)> = match batch {
                [one] => vec![read(one)?],
                _ => batch.par_iter().map(read).collect::<Result<_>>()?,
            };
            for (&i, (data, print)) in batch.iter().zip(read) {
                prints.insert(self.tensors[i].meta.name.clone(), print);
                take(i, data)?;
            }
        }
        Ok(())
    }

    /// Refuses a base if what becomes of it is not what the delta was made for.
    pub(super) fn check_whole(&self, prints: &Prints) -> Result<()> {
        let found = of_model(prints);
        if !self.options.is_whole() || found == self.chain.result() {
            return Ok(());
        }
        Err(self.chain.first().wrong_base(format!(
            "what becomes of this one has the fingerprint {found} instead of {}: tensors differ that no delta changes",
            self.chain.result()
        )))
    }

    /// Reads everything, compares it, and keeps what changed: for callers who have the base at hand. A tensor that is as the base has it has no
    /// bytes here.
    pub fn read_changes(&self, progress: &dyn Progress) -> Result<Vec<Option<Vec<u8>>>> {
        let mut prints = Prints::new();
        let mut out = vec![None; self.tensors.len()];
        let order: Vec<usize> = (0..self.tensors.len()).collect();
        let order: Vec<usize> = match self.options.is_whole() {
            true => order,
            false => order.into_iter().filter(|&i| self.tensors[i].route.is_some()).collect(),
        };
        threads::install(self.options.threads, || {
            progress.start(order.iter().map(|&i| self.tensors[i].meta.bytes).sum());
            self.for_each(&order, &mut prints, progress, |i, data| {
                out[i] = (!self.tensors[i].unchanged).then(|| data.into_owned());
                Ok(())
            })?;
            self.check_whole(&prints)
        })
        .map_err(Error::Threads)??;
        Ok(out)
    }
}

fn values(shape: &[usize]) -> u64 {
    shape.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64))
}
