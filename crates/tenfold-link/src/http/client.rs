//! One request and its answer.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

use super::url::{origin, redirect};
use crate::error::{Error, Result};

/// Most redirects of one request.
const REDIRECTS: usize = 10;

/// Why there is no answer, or no more of it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It may work later: the connection broke, the server is busy, the answer was wrong.
    Again {
        reason: String,
        /// How long the server asks to wait.
        wait: Option<Duration>,
        /// Whether the answer was wrong rather than missing.
        is_lie: bool,
    },
    /// The server is making what was asked for, and says when to ask again.
    NotYet(Duration),
    /// It will not work.
    Fatal(Error),
}

impl Failure {
    pub fn again(reason: impl Into<String>) -> Failure {
        Failure::Again { reason: reason.into(), wait: None, is_lie: false }
    }

    pub fn lie(reason: impl Into<String>) -> Failure {
        Failure::Again { reason: reason.into(), wait: None, is_lie: true }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Fatal(error)
    }
}

/// An answer whose headers have come.
pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    stall: Duration,
}

impl Answer {
    /// The next bytes; `None` at the end.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, Failure>> {
        loop {
            let frame = match timeout(self.stall, self.body.frame()).await {
                Err(_) => return Some(Err(Failure::again(format!("no byte came for {:?}", self.stall)))),
                Ok(None) => return None,
                Ok(Some(Err(e))) => {
                    return Some(Err(Failure::again(format!("the connection broke: {}", causes(&e)))));
                }
                Ok(Some(Ok(frame))) => frame,
            };
            // Trailers are of no interest.
            if let Ok(data) = frame.into_data() {
                return Some(Ok(data));
            }
        }
    }

    /// A header as text.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Sends requests. Connections are kept and shared.
pub(crate) struct Client {
    inner: Transport<Empty<Bytes>>,
    token: Option<HeaderValue>,
    home: (String, String, u16),
    stall: Duration,
}

impl Client {
    /// A client whose token, if any, goes to the origin of `home` only. `ca` holds certificates to trust beside the system's.
    pub fn new(home: &Uri, token: Option<&str>, ca: Option<&Path>, stall: Duration) -> Result<Client> {
        let token = match token {
            None => None,
            Some(token) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
                    Error::InvalidArgument("the token holds characters that no header may hold".into())
                })?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let inner = transport(ca, stall, home.scheme_str() == Some("https"))?;
        Ok(Client { inner, token, home: origin(home), stall })
    }

    /// Asks for a URL and follows redirects. Answers that say "later" are failures already; so are refusals.
    pub async fn get(&self, url: &Uri, headers: &[(HeaderName, HeaderValue)]) -> Result<Answer, Failure> {
        let mut at = url.clone();
        for _ in 0..=REDIRECTS {
            let mut request = Request::get(&at);
            for (name, value) in headers {
                request = request.header(name, value);
            }
            // The token stays with the origin that the user named, wherever redirects lead.
            if let Some(token) = self.token.as_ref().filter(|_| origin(&at) == self.home) {
                request = request.header(AUTHORIZATION, token);
            }
            let request = request
                .body(Empty::new())
                .map_err(|e| Error::InvalidArgument(format!("{at}: cannot be asked for: {e}")))?;
            let answer = match timeout(self.stall, self.inner.request(request)).await {
                Err(_) => return Err(Failure::again(format!("no answer for {:?}", self.stall))),
                Ok(Err(e)) => return Err(broken(&at, &e)),
                Ok(Ok(answer)) => answer,
            };
            let (parts, body) = answer.into_parts();
            let answer = Answer { status: parts.status, headers: parts.headers, body, stall: self.stall };
            match answer.status.as_u16() {
                301 | 302 | 303 | 307 | 308 => {
                    let location = answer.header(&LOCATION).ok_or_else(|| Error::Protocol {
                        url: at.to_string(),
                        reason: "it redirects to nowhere".into(),
                    })?;
                    at = redirect(&at, location)?;
                }
                408 | 425 | 429 | 500..=599 => {
                    let wait = answer.header(&RETRY_AFTER).and_then(|text| text.trim().parse().ok());
                    let reason = format!("the server answers {}", answer.status);
                    return Err(Failure::Again {
                        reason,
                        wait: wait.map(Duration::from_secs),
                        is_lie: false,
                    });
                }
                status @ 400..=499 if status != 416 => {
                    return Err(Error::Refused { url: at.to_string(), status }.into());
                }
                _ => return Ok(answer),
            }
        }
        let reason = format!("more than {REDIRECTS} redirects");
        Err(Error::Protocol { url: url.to_string(), reason }.into())
    }
}

/// Connections over TCP and TLS, with HTTP/1.1 and HTTP/2.
pub(crate) type Transport<B> = legacy::Client<HttpsConnector<HttpConnector>, B>;

/// Makes what requests go through. `ca` holds certificates to trust beside the system's; those are read if TLS is sure to be needed.
pub(crate) fn transport<B>(ca: Option<&Path>, stall: Duration, is_tls: bool) -> Result<Transport<B>>
where
    B: hyper::body::Body<Data = Bytes> + Send + Unpin,
{
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(stall));
    connector.set_nodelay(true);
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls(ca, is_tls)?)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(connector);
    Ok(legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .http2_initial_stream_window_size(4 << 20)
        .http2_initial_connection_window_size(16 << 20)
        .build(https))
}

/// A request that got no answer. A certificate that is not trusted will not be trusted later.
fn broken(url: &Uri, error: &legacy::Error) -> Failure {
    let reason = causes(error);
    if reason.contains("invalid peer certificate") {
        return Error::Environment(format!(
            "{url}: {reason}; name the certificate to trust (`--ca`) if it is the server's own"
        ))
        .into();
    }
    Failure::again(reason)
}

/// An error and what caused it.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

fn tls(ca: Option<&Path>, is_needed: bool) -> Result<rustls::ClientConfig> {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;

    let mut roots = rustls::RootCertStore::empty();
    // Certificates that cannot be read are left out, as every client does; none at all fails at the handshake with a clear text.
    if is_needed || ca.is_some() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if let Some(path) = ca {
        let bad = |e: &dyn std::fmt::Display| {
            Error::InvalidArgument(format!("{}: not a certificate: {e}", path.display()))
        };
        let certificates = CertificateDer::pem_file_iter(path).map_err(|e| bad(&e))?;
        for certificate in certificates {
            roots.add(certificate.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Environment(format!("TLS: {e}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
