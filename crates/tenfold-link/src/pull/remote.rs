//! Where files come from: a web server, an object store, a folder. All give a range of a file, and say how long the file is.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use blake3::Hash;
use bytes::Bytes;
use http::Uri;
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, HeaderValue,
    IF_RANGE, LAST_MODIFIED, RANGE,
};

use super::PullOptions;
#[cfg(feature = "stores")]
use super::store::{Store, StoreBody, StorePlace};
use crate::error::{Error, Result};
use crate::http::{Answer, Client, ContentRange, Failure, child, hash_of_tag, is_http, parse};

/// Where a file or a folder is.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Http(Uri),
    File(PathBuf),
    #[cfg(feature = "stores")]
    Store(StorePlace),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A query may hold a signature.
            Place::Http(url) => f.write_str(url.to_string().split('?').next().unwrap_or_default()),
            Place::File(path) => write!(f, "{}", path.display()),
            #[cfg(feature = "stores")]
            Place::Store(place) => place.fmt(f),
        }
    }
}

impl Place {
    /// A file in this folder.
    pub fn child(&self, name: &str) -> Result<Place> {
        Ok(match self {
            Place::Http(url) => Place::Http(child(url, name)?),
            Place::File(path) => Place::File(path.join(name)),
            #[cfg(feature = "stores")]
            Place::Store(place) => Place::Store(place.child(name)),
        })
    }

    /// The folder that holds it, and its name.
    pub fn split(&self) -> Result<(Place, String)> {
        let bad = || Error::InvalidArgument(format!("{self} does not name a file or folder"));
        Ok(match self {
            Place::Http(url) => {
                let path = url.path().trim_end_matches('/');
                let (folder, name) = path.rsplit_once('/').ok_or_else(bad)?;
                let name = decode(name).filter(|name| !name.is_empty()).ok_or_else(bad)?;
                let mut parts = url.clone().into_parts();
                parts.path_and_query = Some(format!("{folder}/").parse().map_err(|_| bad())?);
                (Place::Http(Uri::from_parts(parts).map_err(|_| bad())?), name)
            }
            Place::File(path) => {
                let name = path.file_name().ok_or_else(bad)?.to_string_lossy().into_owned();
                (Place::File(path.parent().map(PathBuf::from).unwrap_or_default()), name)
            }
            #[cfg(feature = "stores")]
            Place::Store(place) => {
                let (folder, name) = place.split().ok_or_else(bad)?;
                (Place::Store(folder), name)
            }
        })
    }

    /// Whether it ends in a slash, as folders do.
    pub fn ends_open(&self) -> bool {
        match self {
            Place::Http(url) => url.path().ends_with('/'),
            Place::File(_) => false,
            #[cfg(feature = "stores")]
            Place::Store(place) => place.ends_open(),
        }
    }

    /// The same file with a query, which a `tenfold serve` understands.
    pub fn with_query(&self, query: Option<&str>) -> Result<Place> {
        match (self, query) {
            (Place::Http(url), Some(query)) => {
                Ok(Place::Http(parse(&format!("{}?{query}", self.plain(url)))?))
            }
            (_, Some(_)) => Err(Error::InvalidArgument(
                "a goal needs a server that encodes: `tenfold serve`, by its http or https URL".into(),
            )),
            (_, None) => Ok(self.clone()),
        }
    }

    fn plain(&self, url: &Uri) -> String {
        url.to_string().split('?').next().unwrap_or_default().to_owned()
    }
}

/// Undoes percent encoding.
pub(crate) fn decode(text: &str) -> Option<String> {
    let (mut out, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                (digit(bytes.next())? * 16 + digit(bytes.next())?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(out).ok()
}

/// What a file is while it is pulled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pin {
    /// Bytes.
    pub len: u64,
    /// What changes when the file does: an entity tag, a time, a version.
    pub tag: Option<String>,
    /// The digest that the server states.
    pub hash: Option<Hash>,
    /// Whether the server gives ranges.
    pub has_ranges: bool,
}

/// Bytes on their way.
pub(super) struct Part {
    pub pin: Pin,
    /// Which bytes of the file come: not always those that were asked for.
    pub range: Range<u64>,
    body: Body,
}

enum Body {
    Http(Answer),
    File(Arc<File>, Range<u64>),
    #[cfg(feature = "stores")]
    Store(StoreBody),
}

/// A source of files.
#[allow(clippy::large_enum_variant)] // one a transfer
pub(super) enum Remote {
    Http(Client, Vec<(HeaderName, HeaderValue)>),
    File,
    #[cfg(feature = "stores")]
    Store(Store),
}

impl Remote {
    /// The source that a URL names, and the place in it.
    pub fn new(url: &str, options: &PullOptions) -> Result<(Remote, Place)> {
        if is_http(url) {
            let place = parse(url)?;
            let client = Client::new(&place, options.token.as_deref(), options.ca.as_deref(), options.stall)?;
            let mut headers = vec![(ACCEPT_ENCODING, HeaderValue::from_static("identity"))];
            if let Some(bandwidth) = options.bandwidth {
                let name = HeaderName::from_static("tenfold-bandwidth");
                headers.push((name, HeaderValue::from(bandwidth.max(1.0) as u64)));
            }
            return Ok((Remote::Http(client, headers), Place::Http(place)));
        }
        if let Some(path) = url.strip_prefix("file://") {
            let path = decode(path).ok_or_else(|| Error::InvalidArgument(format!("{url}: not a path")))?;
            return Ok((Remote::File, Place::File(path.into())));
        }
        #[cfg(feature = "stores")]
        if let Some(place) = StorePlace::parse(url)? {
            return Ok((Remote::Store(Store::open(&place, options)?), Place::Store(place)));
        }
        #[cfg(not(feature = "stores"))]
        if ["s3://", "gs://", "az://", "abfs://", "abfss://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(Error::Unsupported(format!(
                "{url}: this build has no object stores; use the https URL, or a build with the feature `stores`"
            )));
        }
        Err(Error::InvalidArgument(format!(
            "{url}: not a URL that can be pulled; use http, https, file, s3, gs or az"
        )))
    }

    /// Asks for bytes of a file. `pin` is what the file was when its transfer began.
    pub async fn open(&self, place: &Place, range: Range<u64>, pin: Option<&Pin>) -> Result<Part, Failure> {
        match (self, place) {
            (Remote::Http(client, headers), Place::Http(url)) => {
                open_http(client, headers, url, place, range, pin).await
            }
            (Remote::File, Place::File(path)) => open_file(path, place, range, pin),
            #[cfg(feature = "stores")]
            (Remote::Store(store), Place::Store(object)) => {
                let (found, range, body) = store.get(object, range, pin).await?;
                check_pin(&found, pin, place)?;
                Ok(Part { pin: found, range, body: Body::Store(body) })
            }
            _ => Err(Error::InvalidArgument(format!("{place} is elsewhere")).into()),
        }
    }
}

impl Part {
    /// The next bytes; `None` at the end.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, Failure>> {
        match &mut self.body {
            Body::Http(answer) => answer.chunk().await,
            #[cfg(feature = "stores")]
            Body::Store(body) => body.chunk().await,
            Body::File(file, range) => {
                let take = (range.end - range.start).min(1 << 20) as usize;
                if take == 0 {
                    return None;
                }
                let mut buffer = vec![0; take];
                let read = file.read_exact_at(&mut buffer, range.start);
                range.start += take as u64;
                Some(read.map(|()| buffer.into()).map_err(|e| Failure::again(e.to_string())))
            }
        }
    }
}

/// Refuses a file that is not the one whose transfer began.
fn check_pin(found: &Pin, pin: Option<&Pin>, place: &Place) -> Result<(), Failure> {
    let same = pin.is_none_or(|pin| pin.len == found.len && pin.tag == found.tag);
    if same { Ok(()) } else { Err(Error::Changed(place.to_string()).into()) }
}

async fn open_http(
    client: &Client,
    extra: &[(HeaderName, HeaderValue)],
    url: &Uri,
    place: &Place,
    range: Range<u64>,
    pin: Option<&Pin>,
) -> Result<Part, Failure> {
    let mut headers = extra.to_vec();
    let text = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
    let value = |text: &str| HeaderValue::from_str(text).map_err(|e| Failure::again(e.to_string()));
    headers.push((RANGE, value(&text)?));
    // Weak tags may not stand here.
    if let Some(tag) = pin.and_then(|pin| pin.tag.as_deref()).filter(|tag| tag.starts_with('"')) {
        headers.push((IF_RANGE, value(tag)?));
    }
    let answer = client.get(url, &headers).await?;
    let protocol = |reason: String| Failure::from(Error::Protocol { url: place.to_string(), reason });
    if let Some(coding) = answer.header(&CONTENT_ENCODING).filter(|coding| *coding != "identity") {
        return Err(protocol(format!("the server encodes files as {coding:?}, which was not asked for")));
    }
    let tag = answer.header(&ETAG).or_else(|| answer.header(&LAST_MODIFIED)).map(str::to_owned);
    let hash = tag.as_deref().and_then(hash_of_tag);
    let length = answer.header(&CONTENT_LENGTH).and_then(|text| text.parse::<u64>().ok());
    let pinned = |len: u64, has_ranges: bool| Pin { len, tag: tag.clone(), hash, has_ranges };
    match answer.status.as_u16() {
        206 => {
            let is_right = |found: &ContentRange| {
                found.start == range.start
                    && (found.end == range.end || found.end == found.len && found.end < range.end)
                    && length.is_none_or(|length| length == found.end - found.start)
            };
            let found = ContentRange::read(&answer.headers).filter(is_right).ok_or_else(|| {
                let found = answer.header(&CONTENT_RANGE).unwrap_or("nothing").to_owned();
                Failure::lie(format!(
                    "asked for bytes {}-{}, the server sends {found:?}",
                    range.start,
                    range.end - 1
                ))
            })?;
            let (found_pin, range) = (pinned(found.len, true), found.start..found.end);
            // Another length under the same tag is a lie, not another file.
            if pin.is_some_and(|pin| pin.tag == tag && tag.is_some() && pin.len != found.len) {
                return Err(Failure::lie(format!("the file has {} bytes all of a sudden", found.len)));
            }
            check_pin(&found_pin, pin, place)?;
            Ok(Part { pin: found_pin, range, body: Body::Http(answer) })
        }
        200 => {
            let len =
                length.ok_or_else(|| protocol("the server does not say how long the file is".into()))?;
            let found = pinned(len, false);
            check_pin(&found, pin, place)?;
            Ok(Part { pin: found, range: 0..len, body: Body::Http(answer) })
        }
        416 => match answer.header(&CONTENT_RANGE) {
            Some("bytes */0") if pin.is_none_or(|pin| pin.len == 0) => {
                Ok(Part { pin: pinned(0, true), range: 0..0, body: Body::Http(answer) })
            }
            _ => Err(Error::Changed(place.to_string()).into()),
        },
        202 => {
            let wait = answer.header(&http::header::RETRY_AFTER).and_then(|text| text.parse().ok());
            Err(Failure::NotYet(std::time::Duration::from_secs(wait.unwrap_or(1).clamp(1, 60))))
        }
        status => Err(protocol(format!("the server answers {status}, which says nothing of the file"))),
    }
}

fn open_file(
    path: &std::path::Path,
    place: &Place,
    range: Range<u64>,
    pin: Option<&Pin>,
) -> Result<Part, Failure> {
    let open = || {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(std::io::Error::other("not a regular file"));
        }
        Ok((file, meta))
    };
    let (file, meta) = open().map_err(Error::io(path))?;
    let tag = meta.modified().ok().map(|time| format!("{time:?}"));
    let found = Pin { len: meta.len(), tag, hash: None, has_ranges: true };
    check_pin(&found, pin, place)?;
    let range = range.start.min(found.len)..range.end.min(found.len);
    Ok(Part { pin: found, range: range.clone(), body: Body::File(Arc::new(file), range) })
}
