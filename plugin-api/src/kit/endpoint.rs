//! `base_url`: where a route's requests go.

/// A parsed `base_url`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `scheme://host[:port]` in lower case.
    pub origin: String,
    /// Host name or address in lower case, without port.
    pub host: String,
    /// Path without its last slash; empty or `/…`.
    path: String,
    /// `?…`, or empty.
    query: String,
}

impl Endpoint {
    /// Reads an absolute `http` or `https` URL.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub fn parse(url: &str) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("{url:?} {what}; an absolute http or https URL is needed"));
        if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return wrong("holds a space or control character");
        }
        if url.contains('#') {
            return wrong("has a fragment");
        }
        let Some((scheme, rest)) = url.split_once("://") else { return wrong("has no scheme") };
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "http" && scheme != "https" {
            return wrong("has another scheme");
        }
        let (rest, query) = rest.find('?').map_or((rest, ""), |at| rest.split_at(at));
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if authority.contains('@') {
            return Err("the URL holds a user name or password; name a credential instead".to_owned());
        }
        let authority = authority.to_ascii_lowercase();
        let (host, port) = match authority.rfind(':') {
            // The colons of an IPv6 address stand inside the brackets.
            Some(colon) if !authority[colon..].contains(']') => (&authority[..colon], Some(&authority[colon + 1..])),
            _ => (authority.as_str(), None),
        };
        if host.is_empty() {
            return wrong("has no host");
        }
        if port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return wrong("has a port that is no number up to 65535");
        }
        Ok(Self {
            origin: format!("{scheme}://{authority}"),
            host: host.to_owned(),
            path: path.trim_end_matches('/').to_owned(),
            query: query.to_owned(),
        })
    }

    /// The URL of a request path such as `/chat/completions`.
    pub fn url(&self, path: &str) -> String {
        format!("{}{}{path}{}", self.origin, self.path, self.query)
    }

    /// The URL of a request path with a query of its own, given as `name=value`; the one of `base_url` follows it.
    pub fn url_with(&self, path: &str, query: &str) -> String {
        let more = self.query.strip_prefix('?').filter(|more| !more.is_empty());
        let more = more.map(|more| format!("&{more}")).unwrap_or_default();
        format!("{}{}{path}?{query}{more}", self.origin, self.path)
    }

    /// True when the path ends with these segments, given as `/…`.
    pub fn path_ends_with(&self, segments: &str) -> bool {
        self.path.ends_with(segments)
    }

    /// True when the host is this domain or below it.
    pub fn is_at(&self, domain: &str) -> bool {
        self.host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_appended_before_the_query() {
        for (base, url, origin) in [
            ("https://api.x.test/v1", "https://api.x.test/v1/chat", "https://api.x.test"),
            ("https://api.x.test/v1/", "https://api.x.test/v1/chat", "https://api.x.test"),
            ("HTTP://LocalHost:8080", "http://localhost:8080/chat", "http://localhost:8080"),
            ("http://[::1]:80/v1", "http://[::1]:80/v1/chat", "http://[::1]:80"),
            ("https://a.test/x?api-version=1", "https://a.test/x/chat?api-version=1", "https://a.test"),
        ] {
            let endpoint = Endpoint::parse(base).unwrap();
            assert_eq!((endpoint.url("/chat").as_str(), endpoint.origin.as_str()), (url, origin), "{base}");
        }
    }

    #[test]
    fn a_query_of_the_path_stands_before_that_of_the_base() {
        for (base, url) in [
            ("https://a.test/v1", "https://a.test/v1/x?alt=sse"),
            ("https://a.test/v1?", "https://a.test/v1/x?alt=sse"),
            ("https://a.test/v1?key=1", "https://a.test/v1/x?alt=sse&key=1"),
        ] {
            assert_eq!(Endpoint::parse(base).unwrap().url_with("/x", "alt=sse"), url, "{base}");
        }
    }

    #[test]
    fn what_is_no_absolute_http_url_is_refused() {
        for base in [
            "",
            "api.x.test/v1",
            "/v1",
            "ftp://x.test",
            "https://",
            "https:///v1",
            "https://x.test:port",
            "https://x.test/#a",
            "https://x .test",
            "https://user:secret@x.test",
        ] {
            assert!(Endpoint::parse(base).is_err(), "{base}");
        }
    }

    #[test]
    fn a_domain_is_matched_at_its_dots() {
        let at = |host: &str| Endpoint::parse(&format!("https://{host}/v1")).unwrap().is_at("x.ai");
        assert!(at("x.ai") && at("api.x.ai"));
        assert!(!at("max.ai") && !at("x.ai.test"));
    }
}
