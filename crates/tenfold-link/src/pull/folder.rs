//! Which files a URL stands for, and what a folder of them says of itself.

use std::path::Path;

use serde_json::Value;
use tenfold_archive::{restored_config, shards_of_index};

use super::fetch::look;
use super::file::{Context, Done};
use super::place::Work;
use super::remote::Place;
use crate::error::{Error, Result};
use crate::manifest::{FileEntry, MANIFEST, MAX_MANIFEST, Manifest, is_safe};

/// The index of a sharded model, by its usual name.
const INDEX: &str = "model.safetensors.index.json";

/// Beside the weights, what folders of models usually hold: asked for where there is no list.
const USUAL: [&str; 9] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
];

/// The files to pull.
pub(super) struct Listing {
    pub files: Vec<(String, Option<FileEntry>, Place)>,
    pub is_folder: bool,
}

/// Finds the files. A URL that ends in a file's name stands for that file, an index for its shards, anything else for a folder.
pub(super) fn list(context: &Context<'_>, place: &Place) -> Result<Listing> {
    let query = context.options.query.as_deref();
    if let Place::File(path) = place
        && path.is_dir()
    {
        return local(path);
    }
    let is_file = |name: &str| {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
        let known =
            ["safetensors", "gguf", "npy", "json", "txt", "model", "bin", "pt", "md", "jinja", "tnkv"];
        extension.is_some_and(|extension| known.contains(&extension.as_str()))
    };
    if let Ok((folder, name)) = place.split()
        && !place.ends_open()
        && (is_file(&name) || matches!(place, Place::File(_)))
    {
        if name.ends_with(".safetensors.index.json") {
            return indexed(context, &folder, &name)?
                .ok_or_else(|| Error::Refused { url: place.to_string(), status: 404 });
        }
        // Of what a server encodes, only the server knows digests: it states them with each answer.
        let manifest = match query {
            None => manifest(context, &folder)?,
            Some(_) => None,
        };
        let entry = manifest.as_ref().and_then(|manifest| manifest.find(&name)).cloned();
        if !is_safe(&name) {
            return Err(Error::InvalidArgument(format!("{name:?} is not a name for a file here")));
        }
        return Ok(Listing { files: vec![(name, entry, place.with_query(query)?)], is_folder: false });
    }
    if let Some(manifest) = manifest(context, place)? {
        let file = |entry: FileEntry| {
            let is_model = entry.name.ends_with(".safetensors");
            let at = place.child(&entry.name)?.with_query(query.filter(|_| is_model))?;
            Ok((entry.name.clone(), Some(entry).filter(|_| query.is_none() || !is_model), at))
        };
        let files = manifest.files.into_iter().map(file).collect::<Result<Vec<_>>>()?;
        if files.is_empty() {
            return Err(Error::Corrupt { url: place.to_string(), reason: "the folder is empty".into() });
        }
        return Ok(Listing { files, is_folder: true });
    }
    if query.is_some() {
        return Err(Error::InvalidArgument(format!(
            "{place}: a goal needs a server that encodes: `tenfold serve`"
        )));
    }
    if let Some(listing) = indexed(context, place, INDEX)? {
        return Ok(listing);
    }
    let model = "model.safetensors";
    match found(context, place, model)? {
        Some(at) => with_usual(context, place, vec![(model.to_owned(), None, at)]),
        None => Err(Error::Protocol {
            url: place.to_string(),
            reason: format!(
                "no {MANIFEST}, {INDEX} or {model} there; name a file, or offer the folder with `tenfold serve`"
            ),
        }),
    }
}

/// The manifest of a folder, where it has one.
fn manifest(context: &Context<'_>, folder: &Place) -> Result<Option<Manifest>> {
    let Some(place) = found(context, folder, MANIFEST)? else { return Ok(None) };
    let text = small(context, &place)?;
    Manifest::parse(&text, &place.to_string()).map(Some)
}

/// The whole of a small file.
fn small(context: &Context<'_>, place: &Place) -> Result<Vec<u8>> {
    let (pin, text) =
        context.block_on(look(&context.remote, place, MAX_MANIFEST as u64, context.options.retries))?;
    if pin.len > text.len() as u64 {
        return Err(Error::Limit(format!("{place} has {} bytes, too many for what it is", pin.len)));
    }
    Ok(text)
}

/// A file of a folder, if it is there.
fn found(context: &Context<'_>, folder: &Place, name: &str) -> Result<Option<Place>> {
    let place = folder.child(name)?;
    match context.block_on(look(&context.remote, &place, 1, context.options.retries)) {
        Ok(_) => Ok(Some(place)),
        Err(Error::Refused { status: 404 | 410, .. }) => Ok(None),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        // Buckets that may not be listed deny what is not there.
        Err(Error::Refused { status: 403, .. }) if name != "model.safetensors" => Ok(None),
        Err(error) => Err(error),
    }
}

/// The shards of an index.
fn indexed(context: &Context<'_>, folder: &Place, name: &str) -> Result<Option<Listing>> {
    let Some(place) = found(context, folder, name)? else { return Ok(None) };
    let (shards, _) = shards_of_index(&small(context, &place)?, Path::new(name))?;
    let mut files = vec![(name.to_owned(), None, place)];
    for shard in shards {
        if !is_safe(&shard) {
            let reason = format!("the index names {shard:?}, which is not a plain file name");
            return Err(Error::Protocol { url: folder.to_string(), reason });
        }
        let at = folder.child(&shard)?;
        files.push((shard, None, at));
    }
    with_usual(context, folder, files).map(Some)
}

fn with_usual(
    context: &Context<'_>,
    folder: &Place,
    mut files: Vec<(String, Option<FileEntry>, Place)>,
) -> Result<Listing> {
    if context.include.is_none() && context.options.rows.is_none() {
        for name in USUAL {
            if let Some(at) = found(context, folder, name)? {
                files.push((name.to_owned(), None, at));
            }
        }
    }
    Ok(Listing { files, is_folder: true })
}

/// The files of a folder on this machine, without hidden ones.
fn local(folder: &Path) -> Result<Listing> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_safe(&name) && entry.path().is_file() && name != MANIFEST {
            files.push((name, None, Place::File(entry.path())));
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    if files.is_empty() {
        return Err(Error::InvalidArgument(format!("{} holds no files", folder.display())));
    }
    Ok(Listing { files, is_folder: true })
}

/// Brings what a folder says of its weights in line with what was taken of them: the index, and `config.json` where weights were
/// decoded.
pub(super) fn finish(context: &Context<'_>, work: &Work, done: &[(String, Done)]) -> Result<()> {
    let options = context.options;
    let is_changed = options.decode || context.include.is_some() || options.rows.is_some();
    if !is_changed {
        return Ok(());
    }
    for (name, _) in done {
        let path = work.payload(name);
        if name.ends_with(".safetensors.index.json") && path.is_file() {
            let text = std::fs::read(&path).map_err(Error::io(&path))?;
            let text = new_index(&text, Path::new(name), done)?;
            std::fs::write(&path, text).map_err(Error::io(&path))?;
        } else if name == "config.json" && path.is_file() && options.decode {
            let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
            if let Some(text) = restored_config(&text) {
                std::fs::write(&path, text).map_err(Error::io(&path))?;
            }
        }
    }
    Ok(())
}

/// The index of what was taken.
fn new_index(text: &[u8], label: &Path, done: &[(String, Done)]) -> Result<Vec<u8>> {
    let (shards, write) = shards_of_index(text, label)?;
    let of_shards = || done.iter().filter(|(name, _)| shards.contains(name));
    let text = write(of_shards().map(|(_, file)| file.tensor_bytes).sum())?;
    let mut root: Value = serde_json::from_slice(&text)
        .map_err(|e| Error::InvalidArgument(format!("{}: {e}", label.display())))?;
    let taken: std::collections::HashSet<&String> =
        of_shards().flat_map(|(_, file)| file.tensors.iter().flatten()).collect();
    if let Some(Value::Object(map)) = root.get_mut("weight_map")
        && map.keys().any(|name| !taken.contains(name))
    {
        map.retain(|name, _| taken.contains(name));
        let mut text = serde_json::to_vec_pretty(&root)
            .map_err(|e| Error::InvalidArgument(format!("{}: {e}", label.display())))?;
        text.push(b'\n');
        return Ok(text);
    }
    Ok(text)
}
