//! Object stores: S3, Google Cloud Storage, Azure, and whatever speaks like them. The crate `object_store` knows their protocols, reads
//! credentials from the environment and signs requests; connections, TLS and retries are those of all other pulls.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http_body_util::BodyExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt, RetryConfig};

use super::PullOptions;
use super::remote::Pin;
use crate::error::{Error, Result};
use crate::http::{Failure, Transport, causes, transport};

/// Which store a URL names, by its scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    S3,
    Google,
    Azure,
}

fn kind(url: &str) -> Option<Kind> {
    match url.split_once("://")?.0.to_ascii_lowercase().as_str() {
        "s3" | "s3a" => Some(Kind::S3),
        "gs" => Some(Kind::Google),
        "az" | "azure" | "abfs" | "abfss" => Some(Kind::Azure),
        _ => None,
    }
}

/// An object, or a folder of objects: the bucket's URL, and the key in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StorePlace {
    bucket: String,
    key: String,
}

impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket, self.key)
    }
}

impl StorePlace {
    /// The place that a URL names; `None` if it is of no object store.
    pub fn parse(url: &str) -> Result<Option<StorePlace>> {
        if kind(url).is_none() {
            return Ok(None);
        }
        let rest = url.find("://").map_or(0, |at| at + 3);
        let (bucket, key) = match url[rest..].find('/') {
            Some(at) => (&url[..rest + at], &url[rest + at + 1..]),
            None => (url, ""),
        };
        if bucket.len() == rest {
            return Err(Error::InvalidArgument(format!("{url}: names no bucket")));
        }
        Ok(Some(StorePlace { bucket: bucket.to_owned(), key: key.to_owned() }))
    }

    /// Whether it ends in a slash, as folders do.
    pub fn ends_open(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }

    /// An object in this folder.
    pub fn child(&self, name: &str) -> StorePlace {
        let folder = self.key.trim_end_matches('/');
        let key = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        StorePlace { bucket: self.bucket.clone(), key }
    }

    /// The folder that holds it, and its name; `None` for a whole bucket.
    pub fn split(&self) -> Option<(StorePlace, String)> {
        let key = self.key.trim_end_matches('/');
        let (folder, name) = key.rsplit_once('/').unwrap_or(("", key));
        if name.is_empty() {
            return None;
        }
        Some((StorePlace { bucket: self.bucket.clone(), key: folder.to_owned() }, name.to_owned()))
    }
}

/// A connection to a store.
pub(super) struct Store {
    inner: Box<dyn ObjectStore>,
    stall: Duration,
}

/// Bytes of an object on their way.
pub(super) struct StoreBody {
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    stall: Duration,
}

impl Store {
    /// Opens the store of a place. Settings are those of the environment (`AWS_ACCESS_KEY_ID`, `GOOGLE_SERVICE_ACCOUNT`,
    /// `AZURE_STORAGE_ACCOUNT_NAME`, …), then those of the options.
    pub fn open(place: &StorePlace, options: &PullOptions) -> Result<Store> {
        let wire = Wire { ca: options.ca.clone(), stall: options.stall };
        // What fails is tried again by the transfer, which knows from where to go on.
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let bad = |e: object_store::Error| {
            Error::InvalidArgument(format!("{}: the store cannot be opened: {}", place.bucket, causes(&e)))
        };
        let url = &place.bucket;
        let settings = &options.store;
        // One recipe; the builders have no trait in common.
        macro_rules! open {
            ($builder:ty) => {{
                let mut builder =
                    <$builder>::from_env().with_url(url).with_http_connector(wire).with_retry(retry);
                for (name, value) in settings {
                    let key = name.to_ascii_lowercase().parse().map_err(bad)?;
                    builder = builder.with_config(key, value);
                }
                Box::new(builder.build().map_err(bad)?) as Box<dyn ObjectStore>
            }};
        }
        let inner = match kind(url) {
            Some(Kind::S3) => open!(AmazonS3Builder),
            Some(Kind::Google) => open!(GoogleCloudStorageBuilder),
            Some(Kind::Azure) => open!(MicrosoftAzureBuilder),
            None => return Err(Error::InvalidArgument(format!("{url}: not an object store"))),
        };
        Ok(Store { inner, stall: options.stall })
    }

    /// Asks for bytes of an object. `pin` is what the object was when its transfer began.
    pub async fn get(
        &self,
        place: &StorePlace,
        range: Range<u64>,
        pin: Option<&Pin>,
    ) -> Result<(Pin, Range<u64>, StoreBody), Failure> {
        let path = Path::parse(&place.key)
            .map_err(|e| Error::InvalidArgument(format!("{place}: not a key: {e}")))?;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            // A time is no entity tag: it is compared when the answer has come.
            if_match: pin.and_then(|pin| pin.tag.clone()).filter(|tag| tag.starts_with('"')),
            ..GetOptions::default()
        };
        let found = match tokio::time::timeout(self.stall, self.inner.get_opts(&path, options)).await {
            Err(_) => return Err(Failure::again(format!("no answer for {:?}", self.stall))),
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                // No range of an empty object can be satisfied.
                let is_general = matches!(error, object_store::Error::Generic { .. });
                if is_general
                    && pin.is_none()
                    && let Ok(Ok(meta)) = tokio::time::timeout(self.stall, self.inner.head(&path)).await
                    && meta.size == 0
                {
                    let stream = futures_util::stream::empty().boxed();
                    return Ok((pin_of(&meta), 0..0, StoreBody { stream, stall: self.stall }));
                }
                return Err(failure(error, place));
            }
        };
        let (pin, range) = (pin_of(&found.meta), found.range.clone());
        Ok((pin, range, StoreBody { stream: found.into_stream(), stall: self.stall }))
    }
}

impl StoreBody {
    /// The next bytes; `None` at the end.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, Failure>> {
        match tokio::time::timeout(self.stall, self.stream.next()).await {
            Err(_) => Some(Err(Failure::again(format!("no byte came for {:?}", self.stall)))),
            Ok(None) => None,
            Ok(Some(Ok(bytes))) => Some(Ok(bytes)),
            Ok(Some(Err(e))) => Some(Err(Failure::again(format!("the connection broke: {}", causes(&e))))),
        }
    }
}

fn pin_of(meta: &object_store::ObjectMeta) -> Pin {
    let tag = meta.e_tag.clone().or_else(|| Some(meta.last_modified.to_rfc3339()));
    Pin { len: meta.size, tag, hash: None, has_ranges: true }
}

/// What a store's error means for a transfer.
fn failure(error: object_store::Error, place: &StorePlace) -> Failure {
    let refused = |status| Error::Refused { url: place.to_string(), status }.into();
    match error {
        object_store::Error::NotFound { .. } => refused(404),
        object_store::Error::PermissionDenied { .. } => refused(403),
        object_store::Error::Unauthenticated { .. } => refused(401),
        object_store::Error::Precondition { .. } => Error::Changed(place.to_string()).into(),
        object_store::Error::InvalidPath { .. }
        | object_store::Error::NotSupported { .. }
        | object_store::Error::UnknownConfigurationKey { .. } => {
            Error::InvalidArgument(format!("{place}: {}", causes(&error))).into()
        }
        error => Failure::again(causes(&error)),
    }
}

/// The HTTP of this crate, for stores.
#[derive(Debug)]
struct Wire {
    ca: Option<PathBuf>,
    stall: Duration,
}

impl HttpConnector for Wire {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let generic = |e: Error| object_store::Error::Generic { store: "HTTP", source: Box::new(e) };
        Ok(HttpClient::new(Service(transport(self.ca.as_deref(), self.stall, true).map_err(generic)?)))
    }
}

struct Service(Transport<HttpRequestBody>);

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Service")
    }
}

#[async_trait::async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.0.request(request).await.map_err(|e| {
            let kind = if e.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Request };
            HttpError::new(kind, e)
        })?;
        let (parts, body) = answer.into_parts();
        let body = body.map_err(|e| HttpError::new(HttpErrorKind::Interrupted, e));
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_children_and_folders() {
        let place = |url: &str| StorePlace::parse(url).unwrap().unwrap();
        assert_eq!(place("s3://b/a/m.safetensors").to_string(), "s3://b/a/m.safetensors");
        assert_eq!(place("s3://b/a/").child("x").to_string(), "s3://b/a/x");
        assert_eq!(place("gs://b").child("x").to_string(), "gs://b/x");
        let (folder, name) = place("az://c@account/a/m").split().unwrap();
        assert_eq!((folder.to_string().as_str(), name.as_str()), ("az://c@account/a", "m"));
        assert!(place("s3://b").split().is_none() && place("s3://b").ends_open());
        assert!(place("s3://b/a").split().unwrap().0.child("y").to_string() == "s3://b/y");
        assert_eq!(StorePlace::parse("https://h/x").unwrap(), None);
        assert!(StorePlace::parse("s3:///x").is_err());
    }
}
