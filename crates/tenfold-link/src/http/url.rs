//! URLs: children, redirects, origins. `http::Uri` parses; what a client does with URLs is here.

use http::Uri;

use crate::error::{Error, Result};

/// Whether a text is a URL of this client.
pub(crate) fn is_http(text: &str) -> bool {
    let start = |scheme: &str| text.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme));
    start("http://") || start("https://")
}

/// Parses an absolute URL.
pub(crate) fn parse(text: &str) -> Result<Uri> {
    let bad = |what: &str| Error::InvalidArgument(format!("{text}: {what}"));
    let text = text.split('#').next().unwrap_or(text);
    let url: Uri = text.parse().map_err(|e| bad(&format!("not a URL: {e}")))?;
    let known = matches!(url.scheme_str(), Some("http" | "https"));
    let authority = url.authority().filter(|_| known).ok_or_else(|| bad("not an http or https URL"))?;
    if authority.as_str().contains('@') {
        return Err(bad("a user name in a URL is not supported; state a token instead"));
    }
    Ok(url)
}

/// What decides whether a token may be sent: scheme, host and port.
pub(super) fn origin(url: &Uri) -> (String, String, u16) {
    let scheme = url.scheme_str().unwrap_or_default().to_owned();
    let port = url.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    (scheme, url.host().unwrap_or_default().to_ascii_lowercase(), port)
}

/// A file in the folder that a URL names. The folder's query goes: it is signed for the folder, if at all.
pub(crate) fn child(folder: &Uri, name: &str) -> Result<Uri> {
    let path = folder.path().trim_end_matches('/');
    build(folder, &format!("{path}/{}", encode(name)))
}

/// Where a redirect leads. From https to http is refused.
pub(super) fn redirect(from: &Uri, location: &str) -> Result<Uri> {
    let refuse = |reason: String| Error::Protocol { url: from.to_string(), reason };
    let to = if location.contains("://") {
        parse(location).map_err(|e| refuse(format!("it redirects to {e}")))?
    } else if let Some(rest) = location.strip_prefix("//") {
        parse(&format!("{}://{rest}", from.scheme_str().unwrap_or("https")))?
    } else if location.starts_with('/') {
        build(from, location)?
    } else {
        let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        build(from, &format!("{folder}/{location}"))?
    };
    if from.scheme_str() == Some("https") && to.scheme_str() != Some("https") {
        return Err(refuse(format!("it redirects from https to {to}, which anybody on the way could read")));
    }
    Ok(to)
}

fn build(base: &Uri, path_and_query: &str) -> Result<Uri> {
    let mut parts = base.clone().into_parts();
    let bad =
        |e: &dyn std::fmt::Display| Error::InvalidArgument(format!("{path_and_query:?} is not a path: {e}"));
    let path = path_and_query.split('#').next().unwrap_or_default();
    parts.path_and_query = Some(path.parse().map_err(|e: http::uri::InvalidUri| bad(&e))?);
    Uri::from_parts(parts).map_err(|e| bad(&e))
}

/// A relative path as it stands in a URL.
pub(crate) fn encode(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for &byte in name.as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte))
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_and_redirects_are_resolved() {
        let folder = parse("http://h:1/a/b?x=1").unwrap();
        assert_eq!(child(&folder, "m 1.safetensors").unwrap(), "http://h:1/a/b/m%201.safetensors");
        let to = |location| redirect(&folder, location).map(|url| url.to_string()).ok();
        assert_eq!(to("c?d#e").as_deref(), Some("http://h:1/a/c?d"));
        assert_eq!(to("/c").as_deref(), Some("http://h:1/c"));
        assert_eq!(to("//g/c").as_deref(), Some("http://g/c"));
        assert_eq!(to("https://g/c").as_deref(), Some("https://g/c"));
        assert_eq!(to("ftp://g/c"), None);
        let safe = parse("https://h/a").unwrap();
        assert!(redirect(&safe, "http://h/a").is_err() && redirect(&safe, "b").is_ok());
    }

    #[test]
    fn origins_know_default_ports() {
        let origin = |text| origin(&parse(text).unwrap());
        assert_eq!(origin("https://H/a"), origin("https://h:443/b"));
        assert_ne!(origin("https://h/"), origin("http://h/"));
        assert_ne!(origin("http://h/"), origin("http://h:81/"));
        assert!(parse("http://user:word@h/").is_err() && parse("file:///x").is_err() && parse("/x").is_err());
    }
}
