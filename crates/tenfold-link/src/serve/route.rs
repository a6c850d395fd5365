//! From a request to its answer.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    IF_RANGE, LOCATION, RANGE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::response::Builder;
use http::{HeaderMap, HeaderName, Method, Response, StatusCode};

use super::ServeOptions;
use super::auth::Door;
use super::body::{self, Body};
use super::catalog::{Catalog, Found};
use super::range::{Wanted, wanted};
use super::variant::{Answer, Variants};
use crate::error::Result;
use crate::http::encode;
use crate::manifest::{FileEntry, MANIFEST, Manifest};
use crate::pull::decode_percent;

/// How long a request waits for the digest of a large file before it is told to come again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes a second that the client expects of its link.
const BANDWIDTH: HeaderName = HeaderName::from_static("tenfold-bandwidth");

/// What a server offers.
#[derive(Debug)]
pub(super) struct Site {
    catalog: Arc<Catalog>,
    door: Door,
    variants: Option<Arc<Variants>>,
}

impl Site {
    pub fn new(folder: PathBuf, options: &ServeOptions) -> Result<Site> {
        let encode = options.encode.as_ref();
        let variants = encode.map(|limits| Variants::new(limits, &folder)).transpose()?.map(Arc::new);
        Ok(Site {
            catalog: Arc::new(Catalog::new(folder)),
            door: Door::new(options.token.as_deref()),
            variants,
        })
    }

    /// Answers a request.
    pub async fn answer(&self, request: &Parts) -> Response<Body> {
        if !self.door.lets_in(&request.headers) {
            let builder = Response::builder().status(StatusCode::UNAUTHORIZED);
            return message(builder.header(WWW_AUTHENTICATE, "Bearer"), "a token is needed");
        }
        let is_head = request.method == Method::HEAD;
        if !is_head && request.method != Method::GET {
            let builder = Response::builder().status(StatusCode::METHOD_NOT_ALLOWED);
            return message(builder.header(ALLOW, "GET, HEAD"), "only GET and HEAD");
        }
        let path = request.uri.path().strip_prefix('/').and_then(decode_percent);
        let mut answer = match path {
            Some(path) => self.file_or_manifest(&path, request).await,
            None => plain(StatusCode::BAD_REQUEST, "the path is not valid"),
        };
        if is_head {
            *answer.body_mut() = body::text("");
        }
        answer
    }

    async fn file_or_manifest(&self, path: &str, request: &Parts) -> Response<Body> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        if name == MANIFEST {
            return self.manifest(folder, &request.headers).await;
        }
        let Some(file) = self.catalog.find(path) else {
            return plain(StatusCode::NOT_FOUND, "no such file");
        };
        let Some(entry) = self.digests(&file).await else {
            return later("its digest is being taken", StatusCode::SERVICE_UNAVAILABLE);
        };
        match request.uri.query().filter(|query| !query.is_empty()) {
            None => send(&file, &entry.blake3, &request.headers),
            Some(query) => self.variant(&file, &entry, query, &request.headers).await,
        }
    }

    /// A file encoded at a goal.
    async fn variant(
        &self,
        file: &Found,
        entry: &FileEntry,
        query: &str,
        headers: &HeaderMap,
    ) -> Response<Body> {
        let Some(variants) = &self.variants else {
            return plain(
                StatusCode::FORBIDDEN,
                "this server does not encode; ask for the file without a goal",
            );
        };
        let bandwidth = headers.get(BANDWIDTH).and_then(|value| value.to_str().ok()?.parse::<f64>().ok());
        match variants.find(file, entry, query, bandwidth).await {
            Answer::Bad(reason) => plain(StatusCode::BAD_REQUEST, &reason),
            Answer::Busy => later("too many models are being encoded", StatusCode::SERVICE_UNAVAILABLE),
            Answer::Failed(reason) => plain(StatusCode::UNPROCESSABLE_ENTITY, &reason),
            Answer::Wait => later("it is being encoded", StatusCode::ACCEPTED),
            Answer::Raw => {
                let builder = Response::builder()
                    .status(StatusCode::TEMPORARY_REDIRECT)
                    .header(LOCATION, format!("/{}", encode(&file.name)))
                    .header("tenfold-coding", "raw");
                message(builder, "the plain file is faster")
            }
            Answer::Ready(made, digest) => send(&made, &digest, headers),
        }
    }

    /// What a folder holds. While digests are taken, the client is told to come again.
    async fn manifest(&self, folder: &str, headers: &HeaderMap) -> Response<Body> {
        let (catalog, folder_name) = (self.catalog.clone(), folder.to_owned());
        let listed = tokio::task::spawn_blocking(move || catalog.list(&folder_name)).await;
        let Ok(Some(files)) = listed else {
            return plain(StatusCode::NOT_FOUND, "no such folder");
        };
        let prefix = if folder.is_empty() { 0 } else { folder.trim_end_matches('/').len() + 1 };
        let mut entries = Vec::with_capacity(files.len());
        for file in files {
            let Some(entry) = self.digests(&file).await else {
                return later("digests are being taken", StatusCode::ACCEPTED);
            };
            let name = file.name[prefix..].to_owned();
            if name != MANIFEST {
                entries.push(FileEntry { name, ..(*entry).clone() });
            }
        }
        let Ok(text) = serde_json::to_vec(&Manifest::new(entries)) else {
            return plain(StatusCode::INTERNAL_SERVER_ERROR, "the manifest cannot be written");
        };
        let len = text.len() as u64;
        let tag = format!("\"b3-{}\"", blake3::hash(&text).to_hex());
        let builder = Response::builder().header(CONTENT_TYPE, "application/json").header(ETAG, &tag);
        let builder = builder.header(ACCEPT_RANGES, "bytes").header(CACHE_CONTROL, "no-cache");
        match wanted_part(headers, &tag, len) {
            Wanted::Part(range) => {
                let part = text[range.start as usize..range.end as usize].to_vec();
                let builder = builder.status(StatusCode::PARTIAL_CONTENT);
                let builder = builder
                    .header(CONTENT_RANGE, format!("bytes {}-{}/{len}", range.start, range.end - 1))
                    .header(CONTENT_LENGTH, part.len());
                finish(builder, body::text(part))
            }
            _ => finish(builder.header(CONTENT_LENGTH, len), body::text(text)),
        }
    }

    /// The digests of a file; `None` if taking them takes long. It goes on, and a later request gets them.
    async fn digests(&self, file: &Found) -> Option<Arc<FileEntry>> {
        if let Some(entry) = self.catalog.known(file) {
            return Some(entry);
        }
        let (catalog, owned) = (self.catalog.clone(), file.clone());
        // A task of its own: it is not dropped when the request is.
        let task = tokio::spawn(async move { catalog.digests(&owned).await.ok() });
        tokio::time::timeout(PATIENCE, task).await.ok()?.ok()?
    }
}

/// What a request wants of a file with this tag. A range of another version is no use to anybody.
fn wanted_part(headers: &HeaderMap, tag: &str, len: u64) -> Wanted {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if text(&IF_RANGE).is_some_and(|stated| stated != tag) {
        return Wanted::All;
    }
    wanted(text(&RANGE), len)
}

/// A file, or the range of it that the request wants.
fn send(file: &Found, digest: &str, headers: &HeaderMap) -> Response<Body> {
    let tag = format!("\"b3-{digest}\"");
    let len = file.len();
    if headers.get(IF_NONE_MATCH).is_some_and(|stated| stated.as_bytes() == tag.as_bytes()) {
        return finish(
            Response::builder().status(StatusCode::NOT_MODIFIED).header(ETAG, tag),
            body::text(""),
        );
    }
    let open = || {
        let opened = File::open(&file.path)?;
        let meta = opened.metadata()?;
        Ok::<_, std::io::Error>((opened, meta))
    };
    let opened = match open() {
        Ok((opened, meta)) if file.is_same(&meta) => opened,
        Ok(_) => return later("the file is changing", StatusCode::SERVICE_UNAVAILABLE),
        Err(_) => return plain(StatusCode::NOT_FOUND, "no such file"),
    };
    let kind = if file.name.ends_with(".json") { "application/json" } else { "application/octet-stream" };
    let builder =
        Response::builder().header(ETAG, &tag).header(ACCEPT_RANGES, "bytes").header(CONTENT_TYPE, kind);
    match wanted_part(headers, &tag, len) {
        Wanted::All => finish(builder.header(CONTENT_LENGTH, len), body::range(opened, 0..len)),
        Wanted::Part(range) => {
            let builder = builder
                .status(StatusCode::PARTIAL_CONTENT)
                .header(CONTENT_RANGE, format!("bytes {}-{}/{len}", range.start, range.end - 1))
                .header(CONTENT_LENGTH, range.end - range.start);
            finish(builder, body::range(opened, range))
        }
        Wanted::Nothing => {
            let builder = Response::builder().status(StatusCode::RANGE_NOT_SATISFIABLE);
            message(builder.header(CONTENT_RANGE, format!("bytes */{len}")), "no such range")
        }
    }
}

fn later(text: &str, status: StatusCode) -> Response<Body> {
    message(Response::builder().status(status).header(RETRY_AFTER, "1"), text)
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    message(Response::builder().status(status), text)
}

fn message(builder: Builder, text: &str) -> Response<Body> {
    let text = format!("{text}\n");
    let builder =
        builder.header(CONTENT_TYPE, "text/plain; charset=utf-8").header(CONTENT_LENGTH, text.len());
    finish(builder, body::text(text))
}

fn finish(builder: Builder, body: Body) -> Response<Body> {
    builder.body(body).unwrap_or_else(|_| {
        let mut answer = Response::new(body::text("an answer could not be made\n"));
        *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        answer
    })
}
