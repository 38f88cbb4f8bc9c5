//! What every wire reads of a response that is no answer: the wait that the provider asks for, its id of the request,
//! and the class of its status.

use std::time::Duration;

use crate::ResponseHead;
use crate::vocab::{Failure, FailureCode};

/// Header names under which providers and gateways give their id of a request, the most specific first.
const REQUEST_ID_HEADERS: [&str; 13] = [
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "apim-request-id",
    "x-ms-request-id",
    "x-goog-request-id",
    "x-trace-id",
    "x-ds-trace-id",
    "msh-request-id",
    "mistral-correlation-id",
    "nvcf-reqid",
    "x-litellm-call-id",
    "cf-ray",
];

/// What the head of a response says beside its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadFacts {
    /// HTTP status.
    pub status: u16,
    /// `content-type`, in lower case.
    pub content_type: String,
    /// The provider's id of the request.
    pub request_id: Option<String>,
    /// How long the provider asks to wait, in milliseconds.
    pub retry_after_ms: Option<u64>,
}

impl HeadFacts {
    /// Reads the head of an HTTP response.
    ///
    /// # Errors
    ///
    /// `UNSUPPORTED` for the other exchange kind.
    pub fn read(head: &ResponseHead) -> Result<Self, Failure> {
        let ResponseHead::Http { status, .. } = head else {
            return Err(Failure::new(FailureCode::Unsupported, "this adapter decodes HTTP responses only"));
        };
        let header = |name: &&str| head.header(name).map(str::trim).filter(|value| !value.is_empty());
        Ok(Self {
            status: *status,
            content_type: head.header("content-type").unwrap_or_default().to_ascii_lowercase(),
            request_id: REQUEST_ID_HEADERS.iter().find_map(header).map(str::to_owned),
            retry_after_ms: retry_after_ms(head),
        })
    }

    /// A failure of this response; it carries the request id.
    pub fn failure(&self, code: FailureCode, message: impl Into<String>) -> Failure {
        Failure { request_id: self.request_id.clone(), ..Failure::new(code, message) }
    }
}

/// The wait in milliseconds: `retry-after-ms` (also under Azure's name), else `retry-after` in seconds or as a date,
/// else the same of the provider behind a LiteLLM proxy, which passes its headers on with a prefix.
///
/// A date counts from the response's own `date`, since an adapter reads no clock; without one it says nothing.
fn retry_after_ms(head: &ResponseHead) -> Option<u64> {
    let wait = |prefix: &str| {
        let header = |name: &str| head.header(&format!("{prefix}{name}")).map(str::trim);
        let milliseconds = ["retry-after-ms", "x-ms-retry-after-ms"];
        if let Some(wait) = milliseconds.iter().find_map(|name| rounded(header(name)?.parse().ok()?)) {
            return Some(wait);
        }
        let value = header("retry-after")?;
        if let Some(wait) = seconds_text_to_ms(value) {
            return Some(wait);
        }
        let until = httpdate::parse_http_date(value).ok()?;
        let now = httpdate::parse_http_date(header("date")?).ok()?;
        u64::try_from(until.duration_since(now).unwrap_or(Duration::ZERO).as_millis()).ok()
    };
    wait("").or_else(|| wait("llm_provider-"))
}

/// `7`, `1.5`, `36s` or `250ms` as milliseconds.
pub(crate) fn seconds_text_to_ms(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, factor) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1.0),
        (None, Some(number)) => (number, 1000.0),
        (None, None) => (text, 1000.0),
    };
    rounded(number.trim().parse::<f64>().ok()? * factor)
}

/// Rounded up, so that nobody comes back too early.
fn rounded(milliseconds: f64) -> Option<u64> {
    let usable = milliseconds.is_finite() && milliseconds >= 0.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
    usable.then_some(milliseconds.ceil() as u64)
}

/// The class of a status that is no success, where the body says nothing better.
pub(crate) const fn class_of(status: u16) -> FailureCode {
    match status {
        401 | 403 => FailureCode::Auth,
        402 => FailureCode::Quota,
        408 => FailureCode::Timeout,
        429 => FailureCode::RateLimit,
        400..=499 => FailureCode::InvalidRequest,
        500..=599 => FailureCode::Server,
        _ => FailureCode::Protocol,
    }
}

/// A text for a person: one line, no markup, at most `limit` characters.
pub fn excerpt(text: &str, limit: usize) -> String {
    let mut plain = String::new();
    let mut in_tag = false;
    for c in text.chars() {
        match c {
            '<' => in_tag = true,
            '>' if in_tag => {
                in_tag = false;
                plain.push(' ');
            }
            _ if in_tag => {}
            _ => plain.push(c),
        }
    }
    // A text such as `a < b` is no markup: what would vanish is kept instead.
    let source = if plain.trim().is_empty() { text } else { &plain };
    let line = source.split_whitespace().collect::<Vec<_>>().join(" ");
    cut(&line, limit)
}

/// At most `limit` characters, the cut marked.
pub fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(headers: &[(&str, &str)]) -> HeadFacts {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        HeadFacts::read(&ResponseHead::Http { status: 429, headers }).unwrap()
    }

    #[test]
    fn every_spelling_of_the_wait_is_understood() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        for (headers, expected) in [
            (vec![("retry-after-ms", "6500"), ("retry-after", "7")], Some(6500)),
            (vec![("x-ms-retry-after-ms", "20")], Some(20)),
            (vec![("retry-after-ms", "soon"), ("retry-after", "7")], Some(7000)),
            (vec![("retry-after", " 7 ")], Some(7000)),
            (vec![("retry-after", "0")], Some(0)),
            (vec![("retry-after", "1.5")], Some(1500)),
            (vec![("retry-after", "2s")], Some(2000)),
            (vec![("retry-after", "250ms")], Some(250)),
            (vec![date, ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], Some(30_000)),
            (vec![date, ("retry-after", "Sunday, 06-Nov-94 08:49:38 GMT")], Some(1000)),
            (vec![date, ("retry-after", "Sun Nov  6 08:49:40 1994")], Some(3000)),
            (vec![date, ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")], Some(0)),
            (vec![("llm_provider-retry-after", "3")], Some(3000)),
            (vec![("llm_provider-retry-after-ms", "40"), ("llm_provider-retry-after", "3")], Some(40)),
            (vec![("llm_provider-retry-after", "3"), ("retry-after", "7")], Some(7000)),
            (vec![date, ("llm_provider-retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], None),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], None),
            (vec![("retry-after", "-1")], None),
            (vec![("retry-after", "later")], None),
            (vec![("retry-after", "inf")], None),
            (vec![], None),
        ] {
            assert_eq!(facts(&headers).retry_after_ms, expected, "{headers:?}");
        }
    }

    #[test]
    fn the_request_id_is_found_under_the_names_of_providers_and_gateways() {
        assert_eq!(facts(&[("cf-ray", "ray"), ("x-request-id", "req_1")]).request_id.as_deref(), Some("req_1"));
        assert_eq!(facts(&[("x-request-id", " "), ("cf-ray", "ray")]).request_id.as_deref(), Some("ray"));
        assert_eq!(facts(&[("cf-ray", "ray"), ("x-ds-trace-id", "t")]).request_id.as_deref(), Some("t"));
        assert_eq!(facts(&[("x-litellm-call-id", "c")]).request_id.as_deref(), Some("c"));
        assert_eq!(facts(&[]).request_id, None);
    }

    #[test]
    fn an_excerpt_is_one_line_without_markup() {
        assert_eq!(excerpt("<html>\n<h1>502</h1> Bad\tGateway</html>", 40), "502 Bad Gateway");
        assert_eq!(excerpt("abcdef", 3), "abc…");
        assert_eq!(excerpt("<unclosed", 40), "<unclosed");
    }
}
