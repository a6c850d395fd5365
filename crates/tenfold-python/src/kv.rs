//! Pages of a key-value cache, and the bases that they are made with.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tenfold::engine::Stop;
use tenfold::prepare::{Pairing, Positions, Rope, Scaling};
use tenfold::{Goal, TensorView};
use tenfold_kv::RowCodec;
use tenfold_kv::basis::{BasisFile, FitOptions, Grouping, Keys, Kind, Set, check_sets, fit, fit_sets};
use tenfold_kv::page::{Chain, Group, Layer, Page, PageCodec};

use crate::attend::{self, LONG_ENCODE};
use crate::codec::{parse_effort, parse_goal};
use crate::errors::{self, ArgumentError, MachineError};
use crate::tensors::{Blob, Input, Output, python_name};
use crate::threads::limit_threads;
use crate::write::run_reporting;

/// A file of bases.
#[pyclass(frozen, module = "tenfold._native")]
pub struct Bases(Arc<BasisFile>, u64);

#[pymethods]
impl Bases {
    /// Reads a file.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Bases> {
        let read = || {
            let bytes = std::fs::metadata(&path).map_or(0, |m| m.len());
            BasisFile::open(&path).map(|file| Bases(Arc::new(file), bytes))
        };
        py.detach(read).map_err(errors::kv)
    }

    /// Fingerprint of the model that they were made for.
    #[getter]
    fn model(&self) -> Option<&str> {
        self.0.model()
    }

    #[getter]
    fn head_dim(&self) -> Option<usize> {
        self.0.head_dim()
    }

    /// Bytes of the file.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.1
    }

    /// Names of the sets that have bases of their own.
    #[getter]
    fn sets(&self) -> Vec<&str> {
        self.0.sets().into_iter().flatten().collect()
    }

    /// First layer and number of layers of each group of keys, which all sets have alike.
    #[getter]
    fn groups(&self) -> Vec<(usize, usize)> {
        let first = self.0.sets().first().copied().flatten();
        let keys = self.0.groups_of(first).into_iter().filter(|g| g.kind == Kind::Keys);
        keys.map(|g| (g.layers.first().copied().unwrap_or(0), g.layers.len())).collect()
    }

    /// Refuses a model other than the one that they were made for.
    fn check_model(&self, fingerprint: &str) -> PyResult<()> {
        self.0.check_model(fingerprint).map_err(errors::kv)
    }
}

/// The header of a page.
#[pyclass(frozen, get_all, module = "tenfold._native")]
pub struct PageInfo {
    tokens: usize,
    layers: usize,
    exact: (usize, usize),
    nbytes: usize,
}

#[pymethods]
impl PageInfo {
    fn __repr__(&self) -> String {
        let PageInfo { tokens, layers, exact, nbytes } = self;
        format!("PageInfo(tokens={tokens}, layers={layers}, exact={exact:?}, nbytes={nbytes})")
    }
}

/// Makes pages and reads them.
#[pyclass(frozen, module = "tenfold._native")]
pub struct Pages {
    codec: PageCodec,
    groups: Vec<(usize, usize)>,
}

/// Rotary positions: columns of a head, base, pairing, columns that are turned, scaling with its numbers.
type RopeArgs = (usize, f64, String, Option<usize>, Option<(String, Vec<f64>)>);

/// A page to encode: keys, values, first position, or all of them.
type PageArgs<'py> = (Vec<Bound<'py, PyAny>>, Vec<Bound<'py, PyAny>>, Option<u64>, Option<Vec<u64>>);

#[pymethods]
impl Pages {
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        bases: Option<&Bases>,
        layers: usize,
        group: usize,
        rope: Option<RopeArgs>,
        effort: &str,
        exact: (usize, usize),
        steps: (f64, f64),
        threads: usize,
    ) -> PyResult<Pages> {
        let groups = match bases {
            Some(Bases(file, _)) => PageCodec::groups_of(file, steps).map_err(errors::kv)?,
            None => make_groups(layers, group, rope, steps)?,
        };
        let codec = PageCodec::new(groups).map_err(errors::kv)?;
        let codec = codec.with_effort(parse_effort(effort)?).with_exact(exact.0, exact.1);
        Ok(Pages::from_codec(codec.with_threads(threads)))
    }

    #[getter]
    fn layers(&self) -> usize {
        self.codec.layers()
    }

    #[getter]
    fn groups(&self) -> Vec<(usize, usize)> {
        self.groups.clone()
    }

    /// Pages of one group alone.
    fn part(&self, group: usize) -> PyResult<Pages> {
        let have = self.groups.len();
        let codec = self.codec.part(group);
        codec
            .map(Pages::from_codec)
            .ok_or_else(|| ArgumentError::new_err(format!("group {group} does not exist: there are {have}")))
    }

    /// Encodes pages.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        pages: Vec<PageArgs<'py>>,
        goal: &str,
        value: Option<f64>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let goal = parse_goal(goal, value)?;
        let pages = pages.into_iter().map(Given::from_args).collect::<PyResult<Vec<_>>>()?;
        let long = pages.iter().map(Given::bytes).sum::<usize>() >= LONG_ENCODE;
        let made = attend::run(py, long, |stop| self.encode_all(&pages, goal, stop))?;
        let bytes = |page: tenfold_kv::Result<Vec<u8>>| Ok(PyBytes::new(py, &page.map_err(errors::kv)?));
        made.map_err(errors::kv)?.into_iter().map(bytes).collect()
    }

    /// Encodes pages within a number of bytes for all of them.
    fn encode_together<'py>(
        &self,
        py: Python<'py>,
        pages: Vec<PageArgs<'py>>,
        cap: usize,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let pages = pages.into_iter().map(Given::from_args).collect::<PyResult<Vec<_>>>()?;
        let long = pages.iter().map(Given::bytes).sum::<usize>() >= LONG_ENCODE;
        let made = attend::run(py, long, |stop| {
            let pages = pages.iter().map(Given::page).collect::<tenfold_kv::Result<Vec<_>>>()?;
            self.codec.encode_together_until(&pages, cap, limit_threads(self.codec.threads()), stop)
        })?;
        Ok(made.map_err(errors::kv)?.iter().map(|page| PyBytes::new(py, page)).collect())
    }

    /// Decodes one layer of pages, each into a pair of arrays.
    fn decode(
        &self,
        py: Python<'_>,
        pages: Vec<Bound<'_, PyAny>>,
        layer: usize,
        outs: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    ) -> PyResult<()> {
        same_number(pages.len(), "pages", outs.len())?;
        let pages = pages.iter().map(Blob::from_object).collect::<PyResult<Vec<Blob>>>()?;
        let bytes: Vec<&[u8]> = pages.iter().map(Blob::data).collect();
        let found = py.detach(|| self.codec.decode_layers(&bytes, layer)).map_err(errors::kv)?;
        for (found, (keys, values)) in found.into_iter().zip(outs) {
            let (k, v) = found.map_err(errors::kv)?;
            fill(&keys, &k)?;
            fill(&values, &v)?;
        }
        Ok(())
    }

    /// Decodes layers of a page from `first` on, one for each pair of arrays.
    fn decode_run(
        &self,
        py: Python<'_>,
        page: &Bound<'_, PyAny>,
        first: usize,
        outs: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    ) -> PyResult<()> {
        let page = Blob::from_object(page)?;
        let (bytes, layers) = (page.data(), first..first.saturating_add(outs.len()));
        let found = py.detach(|| self.codec.decode_run(bytes, layers)).map_err(errors::kv)?;
        for ((k, v), (keys, values)) in found.iter().zip(outs) {
            fill(&keys, k)?;
            fill(&values, v)?;
        }
        Ok(())
    }

    /// Decodes all layers of pages, each into arrays for keys and arrays for values.
    #[allow(clippy::type_complexity)]
    fn decode_all(
        &self,
        py: Python<'_>,
        pages: Vec<Bound<'_, PyAny>>,
        outs: Vec<(Vec<Bound<'_, PyAny>>, Vec<Bound<'_, PyAny>>)>,
    ) -> PyResult<()> {
        same_number(pages.len(), "pages", outs.len())?;
        for (keys, values) in &outs {
            same_number(self.codec.layers(), "layers of keys", keys.len())?;
            same_number(self.codec.layers(), "layers of values", values.len())?;
        }
        let pages = pages.iter().map(Blob::from_object).collect::<PyResult<Vec<Blob>>>()?;
        let bytes: Vec<&[u8]> = pages.iter().map(Blob::data).collect();
        let found = py.detach(|| self.codec.decode_all(&bytes)).map_err(errors::kv)?;
        for (found, (keys, values)) in found.into_iter().zip(outs) {
            let found = found.map_err(errors::kv)?;
            for ((k, v), (keys, values)) in found.iter().zip(keys.iter().zip(&values)) {
                fill(keys, k)?;
                fill(values, v)?;
            }
        }
        Ok(())
    }

    /// Dtype, and columns of keys and of values of a layer.
    fn describe(&self, page: &Bound<'_, PyAny>, layer: usize) -> PyResult<(&'static str, usize, usize)> {
        let page = Blob::from_object(page)?;
        let reader = self.codec.reader(page.data()).map_err(errors::kv)?;
        let (dtype, keys, values) = reader.shape(layer).map_err(errors::kv)?;
        Ok((python_name(dtype), keys, values))
    }

    fn inspect(&self, page: &Bound<'_, PyAny>) -> PyResult<PageInfo> {
        let page = Blob::from_object(page)?;
        let reader = self.codec.reader(page.data()).map_err(errors::kv)?;
        let (tokens, layers, exact) = (reader.tokens(), reader.layers(), reader.exact());
        Ok(PageInfo { tokens, layers, exact, nbytes: page.data().len() })
    }
}

impl Pages {
    pub fn codec(&self) -> &PageCodec {
        &self.codec
    }

    fn from_codec(codec: PageCodec) -> Pages {
        let mut first = 0;
        let mut groups = Vec::with_capacity(codec.groups().len());
        for group in codec.groups() {
            groups.push((first, group.layers));
            first += group.layers;
        }
        Pages { codec, groups }
    }

    fn encode_all(
        &self,
        pages: &[Given],
        goal: Goal,
        stop: &Stop,
    ) -> tenfold_kv::Result<Vec<tenfold_kv::Result<Vec<u8>>>> {
        let pages = pages.iter().map(Given::page).collect::<tenfold_kv::Result<Vec<_>>>()?;
        self.codec.encode_all_until(&pages, goal, limit_threads(self.codec.threads()), stop)
    }
}

fn same_number(have: usize, what: &str, outs: usize) -> PyResult<()> {
    match have == outs {
        true => Ok(()),
        false => Err(ArgumentError::new_err(format!("there are {have} {what}, but {outs} outputs"))),
    }
}

/// Copies a tensor into an array of its dtype and rows.
fn fill(room: &Bound<'_, PyAny>, tensor: &tenfold::Tensor) -> PyResult<()> {
    let mut room = Output::from_object(room)?;
    room.check_rows(tensor.dtype, &tensor.shape)?;
    room.data().copy_from_slice(&tensor.data);
    Ok(())
}

/// A set of captured rows: its name, its weight, its files. A set that is alone needs no name.
type SetArgs = (Option<String>, f64, Vec<PathBuf>);

/// What to make of the rows: whether each set has its own bases, layers of a group, bits a value, most bytes.
type FitArgs = (bool, usize, f64, u64);

/// Refuses what [`fit_bases`] would refuse, before rows are captured for it.
#[pyfunction]
pub fn check_fit(sets: Vec<SetArgs>, args: FitArgs) -> PyResult<()> {
    fit_options(args).check().map_err(errors::kv)?;
    match named_sets(&sets) {
        None if args.0 => Err(ArgumentError::new_err("a basis for each set needs sets; name them")),
        None => Ok(()),
        Some(sets) => check_sets(&sets).map_err(errors::kv),
    }
}

/// Makes a file of bases from captured rows and returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (sets, args, out, rope, metric, overwrite, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn fit_bases(
    py: Python<'_>,
    sets: Vec<SetArgs>,
    args: FitArgs,
    out: PathBuf,
    rope: Option<&str>,
    metric: Option<PathBuf>,
    overwrite: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut options = fit_options(args);
    options.keys = match rope {
        Some(text) => Keys::Rope(text.parse().map_err(errors::kv)?),
        None => Keys::Plain,
    };
    options.metrics = metric;
    let report = run_reporting(py, progress.as_ref(), errors::kv, |_, counter| {
        let fitted = match named_sets(&sets) {
            Some(sets) => fit_sets(&sets, &options, counter)?,
            None => fit(&sets[0].2, &options, counter)?,
        };
        let mut report = fitted.report;
        report.bytes = fitted.file.save(&out, overwrite)?;
        Ok(report)
    })?;
    serde_json::to_string(&report).map_err(|e| MachineError::new_err(e.to_string()))
}

fn fit_options((each, group, bits, max_bytes): FitArgs) -> FitOptions {
    let mut options = FitOptions::default();
    options.each = each;
    options.grouping = Grouping::Layers(group);
    options.bits = bits;
    options.max_bytes = Some(max_bytes);
    options
}

/// The sets, or `None` if there is one without a name.
fn named_sets(sets: &[SetArgs]) -> Option<Vec<Set>> {
    if let [(None, ..)] = sets {
        return None;
    }
    let set = |(name, weight, files): &SetArgs| {
        Set::new(name.clone().unwrap_or_default(), files.clone()).with_weight(*weight)
    };
    Some(sets.iter().map(set).collect())
}

/// Hidden states of one layer.
#[pyclass(frozen, module = "tenfold._native")]
pub struct Hidden(RowCodec);

#[pymethods]
impl Hidden {
    #[new]
    fn new(bases: &Bases, layer: usize, effort: &str, threads: usize) -> PyResult<Hidden> {
        let codec = RowCodec::hidden(&bases.0, layer).map_err(errors::kv)?;
        Ok(Hidden(codec.with_effort(parse_effort(effort)?).with_threads(limit_threads(threads))))
    }

    fn encode<'py>(
        &self,
        py: Python<'py>,
        tensor: &Bound<'py, PyAny>,
        goal: &str,
        value: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (goal, input) = (parse_goal(goal, value)?, Input::from_object(tensor, None)?);
        let blob = attend::run(py, input.data().len() >= LONG_ENCODE, |stop| {
            self.0.clone().with_stop(stop.clone()).encode(&input.view()?, goal)
        })?;
        Ok(PyBytes::new(py, &blob.map_err(errors::kv)?))
    }

    fn decode_into(&self, py: Python<'_>, blob: &Bound<'_, PyAny>, out: &Bound<'_, PyAny>) -> PyResult<()> {
        let blob = Blob::from_object(blob)?;
        let info = tenfold::inspect(blob.data()).map_err(errors::codec)?;
        let mut out = Output::from_object(out)?;
        out.check(info.dtype, &info.shape, None)?;
        let (blob, room) = (blob.data(), out.data());
        py.detach(|| self.0.decode_into(blob, room)).map_err(errors::kv)
    }
}

/// A page as Python gave it.
struct Given {
    keys: Vec<Rows>,
    values: Vec<Rows>,
    positions: Option<Positions>,
}

/// Tokens of one layer: further dimensions are columns.
struct Rows(Input, [usize; 2]);

impl Rows {
    fn from_object(object: &Bound<'_, PyAny>) -> PyResult<Rows> {
        let input = Input::from_object(object, None)?;
        let Some((&tokens, rest)) = input.shape.split_first() else {
            return Err(ArgumentError::new_err("keys and values of a layer need one row a token"));
        };
        let shape = [tokens, rest.iter().product()];
        Ok(Rows(input, shape))
    }

    fn view(&self) -> tenfold::engine::Result<TensorView<'_>> {
        TensorView::new(self.0.dtype, &self.1, self.0.data())
    }
}

impl Given {
    fn from_args((keys, values, first, list): PageArgs<'_>) -> PyResult<Given> {
        let rows =
            |all: Vec<Bound<'_, PyAny>>| all.iter().map(Rows::from_object).collect::<PyResult<Vec<_>>>();
        if keys.len() != values.len() {
            let (k, v) = (keys.len(), values.len());
            return Err(ArgumentError::new_err(format!("there are keys of {k} layers, but values of {v}")));
        }
        let positions = list.map(Positions::List).or(first.map(Positions::From));
        Ok(Given { keys: rows(keys)?, values: rows(values)?, positions })
    }

    fn bytes(&self) -> usize {
        self.keys.iter().chain(&self.values).map(|r| r.0.data().len()).sum()
    }

    fn page(&self) -> tenfold_kv::Result<Page<'_>> {
        let layers = self.keys.iter().zip(&self.values);
        let layers = layers.map(|(k, v)| Ok(Layer { keys: k.view()?, values: v.view()? }));
        Ok(Page { layers: layers.collect::<tenfold_kv::Result<_>>()?, positions: self.positions.clone() })
    }
}

fn make_groups(
    layers: usize,
    group: usize,
    rope: Option<RopeArgs>,
    steps: (f64, f64),
) -> PyResult<Vec<Group>> {
    if layers == 0 || group == 0 {
        return Err(ArgumentError::new_err("layers and group must be at least 1"));
    }
    let mut keys = Chain::default().with_step(steps.0);
    if let Some(args) = rope {
        keys = keys.with_rope(parse_rope(args)?);
    }
    let values = Chain::default().with_step(steps.1);
    let group =
        |first| Group { layers: group.min(layers - first), keys: keys.clone(), values: values.clone() };
    Ok((0..layers).step_by(group(0).layers).map(group).collect())
}

fn parse_rope((head, base, pairing, turned, scaling): RopeArgs) -> PyResult<Rope> {
    let pairing = match pairing.as_str() {
        "halves" => Pairing::Halves,
        "neighbours" => Pairing::Neighbours,
        other => {
            let text = format!("pairing must be \"halves\" or \"neighbours\", not {other:?}");
            return Err(ArgumentError::new_err(text));
        }
    };
    let scaling = match scaling.as_ref().map(|(name, numbers)| (name.as_str(), &numbers[..])) {
        None => Scaling::None,
        Some(("linear", &[factor])) => Scaling::Linear(factor),
        Some(("llama3", &[factor, low, high, original])) => Scaling::Llama3 { factor, low, high, original },
        Some(_) => {
            return Err(ArgumentError::new_err(
                "scaling must be (\"linear\", factor) or (\"llama3\", factor, low, high, original)",
            ));
        }
    };
    let rope = Rope::new(head, base).map_err(errors::codec)?.with_pairing(pairing);
    let rope = rope.with_turned(turned.unwrap_or(head)).map_err(errors::codec)?;
    rope.with_scaling(scaling).map_err(errors::codec)
}
