//! Bearer tokens.

use http::HeaderMap;
use http::header::AUTHORIZATION;

/// The digest of the token that requests must bring: comparing digests takes the same time wherever two tokens differ.
#[derive(Debug)]
pub(super) struct Door(Option<blake3::Hash>);

impl Door {
    pub fn new(token: Option<&str>) -> Door {
        Door(token.map(|token| blake3::hash(token.as_bytes())))
    }

    /// Whether a request may pass.
    pub fn lets_in(&self, headers: &HeaderMap) -> bool {
        let Some(expected) = self.0 else { return true };
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let (scheme, token) = given.and_then(|given| given.split_at_checked(7)).unwrap_or_default();
        // `Hash` compares in constant time.
        scheme.eq_ignore_ascii_case(b"bearer ") && blake3::hash(token) == expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_passes() {
        let door = Door::new(Some("secret"));
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            door.lets_in(&headers)
        };
        assert!(with("Bearer secret") && with("bearer secret"));
        for value in ["Bearer secre", "Bearer secrets", "Bearer ", "Basic secret", "secret", ""] {
            assert!(!with(value), "{value}");
        }
        assert!(!door.lets_in(&HeaderMap::new()));
        assert!(Door::new(None).lets_in(&HeaderMap::new()));
    }
}
