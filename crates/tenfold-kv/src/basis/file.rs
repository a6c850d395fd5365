//! A file of bases beside a model. Layout: docs/kv.md, 'The file'.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use half::bf16;
use serde::{Deserialize, Serialize};
use tenfold::Dtype;
use tenfold::prepare::{Basis, Fingerprint};
use tenfold_archive::{Archive, Content, assemble};

use super::kind::Kind;
use super::rope::RopeSpec;
use super::sets::{MOST_SETS, is_name};
use super::stored::{Opened, Stored};
use crate::error::{Error, Result};

/// Version of the layout where all share the bases.
const SHARED: u64 = 1;
/// Version of the layout where bases belong to sets.
const SETS: u64 = 2;
/// Key of the metadata.
const KEY: &str = "basis";
/// Key of the first half of BLAKE3 over the former's text, in hexadecimal digits.
const CHECKSUM: &str = "basis_checksum";
/// Most bytes that a tensor's entry in the header takes besides its name.
const ENTRY: usize = 160;

/// Columns of a group up to which its basis is completed: time grows with their cube, memory with their square.
pub const MOST_COLUMNS: usize = 4096;

/// The metadata of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Meta {
    pub format: u64,
    pub model: Option<String>,
    pub rope: Option<RopeSpec>,
    pub head_dim: Option<usize>,
    pub groups: Vec<GroupMeta>,
}

impl Meta {
    /// Of the version that these groups need.
    pub fn new(
        model: Option<String>,
        rope: Option<RopeSpec>,
        head_dim: Option<usize>,
        groups: Vec<GroupMeta>,
    ) -> Self {
        Meta { format: format_of(&groups), model, rope, head_dim, groups }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct GroupMeta {
    pub kind: Kind,
    pub layers: Vec<usize>,
    /// The set whose basis it is; `None` if all share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// Size of each block's metric, 0 if it has none. There is one block, unless heads have their own.
    pub blocks: Vec<usize>,
    /// Fingerprint of the basis; empty until it is made.
    pub fingerprint: String,
}

/// Numbers of a group.
#[derive(Debug, Clone)]
pub(super) struct Numbers {
    pub blocks: Vec<Stored>,
    pub means: Vec<bf16>,
    pub deviations: Vec<bf16>,
}

/// Layers that share a basis.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Group {
    /// What rows are of.
    pub kind: Kind,
    /// The layers whose columns stand side by side, in this order.
    pub layers: Vec<usize>,
    /// Their basis, as it is stored: what lies outside of it is lost.
    pub basis: Arc<Basis>,
    parts: Arc<Parts>,
}

/// What a group's basis is made of, and the completed one once somebody has asked for it.
#[derive(Debug)]
struct Parts {
    means: Vec<bf16>,
    deviations: Vec<bf16>,
    blocks: Vec<Opened>,
    whole: OnceLock<Arc<Basis>>,
}

impl Group {
    /// Their basis with vectors for all that the stored ones do not span, so that nothing is lost. They are computed the first time,
    /// which takes as long as a few products of square matrices, and are the same on every machine. A group of more than
    /// [`MOST_COLUMNS`] has its basis as it is stored.
    pub fn whole(&self) -> Result<Arc<Basis>> {
        if self.rest().is_empty() {
            return Ok(self.basis.clone());
        }
        if let Some(found) = self.parts.whole.get() {
            return Ok(found.clone());
        }
        let blocks: Vec<Opened> = self.parts.blocks.iter().map(Opened::completed).collect::<Result<_>>()?;
        // Little is expected of coordinates that no vector was stored for.
        let mut known = self.parts.deviations.iter().copied();
        let rest = self.parts.deviations.iter().copied().fold(bf16::INFINITY, bf16::min);
        let rest = bf16::from_f32(0.5 * rest.to_f32());
        let mut deviations = Vec::with_capacity(self.basis.cols());
        for (stored, whole) in self.parts.blocks.iter().zip(&blocks) {
            deviations.extend(known.by_ref().take(stored.vectors.len() / stored.cols));
            deviations
                .resize(deviations.len() + (whole.vectors.len() - stored.vectors.len()) / stored.cols, rest);
        }
        let made = Arc::new(join(&self.parts.means, &deviations, &blocks)?);
        Ok(self.parts.whole.get_or_init(|| made).clone())
    }

    /// Which coordinates of the completed basis the stored one does not have.
    pub fn rest(&self) -> Vec<Range<usize>> {
        if self.basis.cols() > MOST_COLUMNS {
            return Vec::new();
        }
        let mut first = 0;
        let blocks = self.parts.blocks.iter().map(|block| {
            let (from, to) = (first + block.vectors.len() / block.cols, first + block.cols);
            first = to;
            from..to
        });
        blocks.filter(|range| !range.is_empty()).collect()
    }

    /// Columns of a layer among those of the group.
    pub fn columns(&self, layer: usize) -> Result<Range<usize>> {
        let at = self.layers.iter().position(|&l| l == layer);
        let at = at.ok_or(Error::MissingGroup { kind: self.kind, layer })?;
        let width = self.basis.cols() / self.layers.len();
        Ok(at * width..(at + 1) * width)
    }
}

/// Bases of a model.
///
/// ```no_run
/// use std::path::Path;
/// use tenfold_kv::basis::{BasisFile, Kind};
/// let file = BasisFile::open(Path::new("model.basis"))?;
/// file.check_model("the fingerprint of the model at hand")?;
/// let group = file.group(Kind::Keys, 12)?;
/// println!("{} vectors for layers {:?}", group.basis.rank(), group.layers);
/// # Ok::<(), tenfold_kv::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct BasisFile {
    meta: Meta,
    groups: Vec<Group>,
    contents: Vec<(String, Content)>,
}

impl BasisFile {
    /// Opens a file and computes what encoders need.
    pub fn open(path: &Path) -> Result<Self> {
        BasisFile::read(&Archive::open(path)?)
    }

    /// The same for a file's bytes.
    pub fn parse(bytes: Vec<u8>) -> Result<Self> {
        BasisFile::read(&Archive::parse(bytes, Path::new("basis file"))?)
    }

    /// Writes a temporary file, renames it and returns its bytes.
    pub fn save(&self, path: &Path, overwrite: bool) -> Result<u64> {
        let text = self.meta_text()?;
        let metadata = vec![(CHECKSUM.to_owned(), checksum(&text)), (KEY.to_owned(), text)];
        Ok(assemble(path, metadata, &self.contents, overwrite)?)
    }

    /// Bytes that [`BasisFile::save`] never exceeds.
    pub fn max_bytes(&self) -> Result<u64> {
        // Texts stand in JSON strings, where quotes take two characters.
        let entry = |(name, content): &(String, Content)| {
            let (Content::Plain(_, _, bytes) | Content::Blob(bytes)) = content;
            bytes.len() + 2 * name.len() + ENTRY
        };
        Ok((512 + 2 * self.meta_text()?.len() + self.contents.iter().map(entry).sum::<usize>()) as u64)
    }

    /// Refuses any model but the one that the file was made for. A file that names no model fits all.
    pub fn check_model(&self, fingerprint: &str) -> Result<()> {
        match &self.meta.model {
            Some(found) if found != fingerprint => {
                Err(Error::ForeignModel { expected: fingerprint.to_owned(), found: found.clone() })
            }
            _ => Ok(()),
        }
    }

    /// The model that the file was made for, if it names one.
    pub fn model(&self) -> Option<&str> {
        self.meta.model.as_deref()
    }

    /// The model's rotary positions, if it has them and they were known.
    pub fn rope(&self) -> Option<&RopeSpec> {
        self.meta.rope.as_ref()
    }

    /// Columns of a head, if that was known.
    pub fn head_dim(&self) -> Option<usize> {
        self.meta.head_dim
    }

    /// All groups, of all sets.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The sets that have bases of their own, in the order of the file; `None` stands for bases that all share. All sets have the
    /// same groups of layers.
    pub fn sets(&self) -> Vec<Option<&str>> {
        sets_of(&self.meta.groups)
    }

    /// The groups of a set.
    pub fn groups_of(&self, set: Option<&str>) -> Vec<&Group> {
        let own = self.meta.groups.iter().zip(&self.groups).filter(|(meta, _)| meta.set.as_deref() == set);
        own.map(|(_, group)| group).collect()
    }

    /// The group that a layer belongs to, in the file's first set.
    pub fn group(&self, kind: Kind, layer: usize) -> Result<&Group> {
        let first = self.meta.groups.first().and_then(|group| group.set.as_deref());
        self.group_of(first, kind, layer)
    }

    /// The group that a layer belongs to in a set.
    pub fn group_of(&self, set: Option<&str>, kind: Kind, layer: usize) -> Result<&Group> {
        let found = self.groups_of(set).into_iter().find(|g| g.kind == kind && g.layers.contains(&layer));
        found.ok_or(Error::MissingGroup { kind, layer })
    }

    /// The basis with this fingerprint, if the file has it: stored, or completed.
    pub fn find(&self, fingerprint: Fingerprint) -> Option<&Arc<Basis>> {
        let stored = self.groups.iter().map(|g| &g.basis);
        let whole = self.groups.iter().filter_map(|g| g.parts.whole.get());
        stored.chain(whole).find(|b| b.fingerprint() == fingerprint)
    }

    /// From numbers that belong to the groups of `meta`, and blocks of them opened.
    pub(super) fn new(mut meta: Meta, numbers: &[Numbers], opened: Vec<Vec<Opened>>) -> Result<Self> {
        check(&meta)?;
        let mut groups = Vec::with_capacity(meta.groups.len());
        let mut contents = Vec::new();
        for ((group, numbers), opened) in meta.groups.iter_mut().zip(numbers).zip(opened) {
            let basis = Arc::new(join(&numbers.means, &numbers.deviations, &opened)?);
            if !basis.cols().is_multiple_of(group.layers.len()) {
                let (cols, layers) = (basis.cols(), group.layers.len());
                return Err(Error::Malformed(format!("its {cols} columns do not divide by {layers} layers")));
            }
            let fingerprint = basis.fingerprint().to_string();
            if group.fingerprint.is_empty() {
                group.fingerprint = fingerprint;
            } else if group.fingerprint != fingerprint {
                let reason =
                    format!("{} of layers {:?} differ from what was written", group.kind, group.layers);
                return Err(Error::Malformed(reason));
            }
            let parts = Parts {
                means: numbers.means.clone(),
                deviations: numbers.deviations.clone(),
                blocks: opened,
                whole: OnceLock::new(),
            };
            let layers = group.layers.clone();
            groups.push(Group { kind: group.kind, layers, basis, parts: Arc::new(parts) });
            contents.extend(write(group, numbers));
        }
        check_columns(&meta, &groups)?;
        Ok(BasisFile { meta, groups, contents })
    }

    fn read(archive: &Archive) -> Result<Self> {
        let text = archive.metadata().get(KEY);
        let text = text.ok_or_else(|| Error::Malformed("its metadata names no bases".into()))?;
        if archive.metadata().get(CHECKSUM) != Some(&checksum(text)) {
            return Err(Error::Malformed("the checksum of its metadata does not match".into()));
        }
        let bad = |e: serde_json::Error| Error::Malformed(format!("metadata: {e}"));
        let value: serde_json::Value = serde_json::from_str(text).map_err(bad)?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(SHARED | SETS) => {}
            Some(found) => return Err(Error::Version { found, supported: SETS }),
            None => return Err(Error::Malformed("metadata: no format".into())),
        }
        let meta: Meta = serde_json::from_value(value).map_err(bad)?;
        check(&meta)?;
        let numbers: Vec<Numbers> =
            meta.groups.iter().map(|group| read(archive, group)).collect::<Result<_>>()?;
        let open = |n: &Numbers| n.blocks.iter().map(Stored::open).collect::<Result<Vec<_>>>();
        let opened: Vec<Vec<Opened>> = numbers.iter().map(open).collect::<Result<_>>()?;
        // Only files that are read need this check.
        BasisFile::new(meta, &numbers, opened).map_err(|error| match error {
            Error::Codec(tenfold::Error::InvalidArgument(reason)) => Error::Malformed(reason),
            error => error,
        })
    }

    fn meta_text(&self) -> Result<String> {
        serde_json::to_string(&self.meta).map_err(|e| Error::Malformed(format!("metadata: {e}")))
    }
}

fn checksum(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

fn format_of(groups: &[GroupMeta]) -> u64 {
    if groups.iter().any(|group| group.set.is_some()) { SETS } else { SHARED }
}

/// Sets in the order in which they appear.
fn sets_of(groups: &[GroupMeta]) -> Vec<Option<&str>> {
    let mut sets = Vec::new();
    for group in groups {
        if !sets.contains(&group.set.as_deref()) {
            sets.push(group.set.as_deref());
        }
    }
    sets
}

fn check(meta: &Meta) -> Result<()> {
    let mut seen = BTreeSet::new();
    for group in &meta.groups {
        let once = group.layers.iter().all(|&layer| seen.insert((&group.set, group.kind, layer)));
        if group.layers.is_empty() || group.blocks.is_empty() || !once {
            return Err(Error::Malformed(format!("{} of layers {:?}", group.kind, group.layers)));
        }
        if let Some(name) = group.set.as_ref().filter(|name| !is_name(name)) {
            return Err(Error::Malformed(format!("{name:?} is no name of a set")));
        }
    }
    if meta.groups.is_empty() {
        return Err(Error::Malformed("no bases".into()));
    }
    if meta.format != format_of(&meta.groups) {
        let reason = format!("format {} and bases of sets do not agree", meta.format);
        return Err(Error::Malformed(reason));
    }
    check_sets(&meta.groups)
}

/// Refuses sets that differ in their groups of layers: readers choose a set for all layers at once.
fn check_sets(groups: &[GroupMeta]) -> Result<()> {
    let sets = sets_of(groups);
    if sets.len() > MOST_SETS {
        return Err(Error::Malformed(format!("{} sets; at most {MOST_SETS} are read", sets.len())));
    }
    let of = |set: Option<&str>| -> Vec<(Kind, &[usize])> {
        let own = groups.iter().filter(|group| group.set.as_deref() == set);
        own.map(|group| (group.kind, group.layers.as_slice())).collect()
    };
    match sets.iter().find(|&&set| of(set) != of(sets[0])) {
        Some(set) => Err(Error::Malformed(format!("set {:?} has other layers", set.unwrap_or_default()))),
        None => Ok(()),
    }
}

/// Refuses sets that differ in their columns.
fn check_columns(meta: &Meta, groups: &[Group]) -> Result<()> {
    let mut columns = BTreeMap::new();
    for (meta, group) in meta.groups.iter().zip(groups) {
        let cols = group.basis.cols();
        let expected = *columns.entry((meta.kind, &meta.layers)).or_insert(cols);
        if cols != expected {
            let (kind, layers) = (meta.kind, &meta.layers);
            return Err(Error::Malformed(format!(
                "{kind} of layers {layers:?} have {cols} columns in one set and {expected} in another"
            )));
        }
    }
    Ok(())
}

fn names(group: &GroupMeta) -> (String, Vec<String>) {
    let first = group.layers.first().copied().unwrap_or_default();
    let stem = match &group.set {
        None => format!("{}.{first}", group.kind),
        Some(set) => format!("{}.{first}.set.{set}", group.kind),
    };
    let blocks = match group.blocks.len() {
        1 => vec![stem.clone()],
        n => (0..n).map(|head| format!("{stem}.head.{head}")).collect(),
    };
    (stem, blocks)
}

fn write(group: &GroupMeta, numbers: &Numbers) -> Vec<(String, Content)> {
    let plain = |values: &[bf16]| {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Content::Plain(Dtype::Bf16, vec![values.len()], bytes)
    };
    let (stem, blocks) = names(group);
    let mut out = vec![
        (format!("{stem}.means"), plain(&numbers.means)),
        (format!("{stem}.deviations"), plain(&numbers.deviations)),
    ];
    for (name, block) in blocks.into_iter().zip(&numbers.blocks) {
        out.push((format!("{name}.vectors"), Content::Blob(block.vectors.clone())));
        if let Some((_, blob)) = &block.metric {
            out.push((format!("{name}.metric"), Content::Blob(blob.clone())));
        }
    }
    out
}

fn read(archive: &Archive, group: &GroupMeta) -> Result<Numbers> {
    let find = |name: String, compressed: bool| {
        let found = archive.find(&name).filter(|&i| archive.tensors()[i].compressed == compressed);
        found.ok_or_else(|| Error::Malformed(format!("tensor {name:?} is missing or malformed")))
    };
    let plain = |name: String| -> Result<Vec<bf16>> {
        let index = find(name.clone(), false)?;
        if archive.tensors()[index].dtype != Some(Dtype::Bf16) {
            return Err(Error::Malformed(format!("tensor {name:?} is not bf16")));
        }
        let bytes = archive.read_stored(index)?;
        Ok(bytes.as_chunks::<2>().0.iter().map(|b| bf16::from_le_bytes(*b)).collect())
    };
    let (stem, names) = names(group);
    let mut blocks = Vec::with_capacity(names.len());
    for (name, &size) in names.iter().zip(&group.blocks) {
        let vectors = archive.read_stored(find(format!("{name}.vectors"), true)?)?;
        let metric = match size {
            0 => None,
            _ => Some((size, archive.read_stored(find(format!("{name}.metric"), true)?)?)),
        };
        blocks.push(Stored { vectors, metric });
    }
    Ok(Numbers {
        blocks,
        means: plain(format!("{stem}.means"))?,
        deviations: plain(format!("{stem}.deviations"))?,
    })
}

/// Blocks side by side as one basis. Numbers are only copied: the same on every machine.
fn join(means: &[bf16], deviations: &[bf16], blocks: &[Opened]) -> Result<Basis> {
    let means: Vec<f32> = means.iter().map(|v| v.to_f32()).collect();
    let cols: usize = blocks.iter().map(|b| b.cols).sum();
    let rank: usize = blocks.iter().map(|b| b.vectors.len() / b.cols).sum();
    if means.len() != cols || deviations.len() != rank {
        return Err(Error::Malformed(format!(
            "{} means and {} deviations for {rank} vectors of {cols} columns",
            means.len(),
            deviations.len()
        )));
    }
    let mut vectors = vec![0f32; rank * cols];
    let mut forward = vec![0f32; rank * cols];
    let (mut row, mut column) = (0, 0);
    for block in blocks {
        let parts = block.vectors.chunks_exact(block.cols).zip(block.forward.chunks_exact(block.cols));
        for (from_vectors, from_forward) in parts {
            let at = row * cols + column..row * cols + column + block.cols;
            vectors[at.clone()].copy_from_slice(from_vectors);
            forward[at].copy_from_slice(from_forward);
            row += 1;
        }
        column += block.cols;
    }
    let deviations: Vec<f64> = deviations.iter().map(|v| v.to_f64()).collect();
    Ok(Basis::with_forward(&means, &vectors, &forward)?.with_deviations(&deviations)?)
}
