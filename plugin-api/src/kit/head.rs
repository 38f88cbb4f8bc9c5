//! What every wire reads of a response that is no answer: the wait that the provider asks for, its id of the request,
//! and the class of its status.

use std::time::{Duration, UNIX_EPOCH};

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
/// else the same of the provider behind a LiteLLM proxy, which passes its headers on with a prefix, else [`reset_ms`].
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
    wait("").or_else(|| wait("llm_provider-")).or_else(|| reset_ms(head))
}

/// When a limit that is used up counts anew, in milliseconds: `x-ratelimit-reset…` beside an `x-ratelimit-remaining…` of
/// 0. Without that the reset says nothing of a wait: it stands on every response.
///
/// The value is a duration (`6m0s`), a number of seconds, or a time in seconds or milliseconds since 1970, which counts
/// from the response's own `date`.
fn reset_ms(head: &ResponseHead) -> Option<u64> {
    let header = |name: &str, of: &str| head.header(&format!("x-ratelimit-{name}{of}")).map(str::trim);
    let used_up = ["", "-requests", "-tokens"].into_iter().filter(|of| header("remaining", of) == Some("0"));
    let now_ms = || {
        let date = httpdate::parse_http_date(head.header("date")?).ok()?;
        Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs_f64() * 1000.0)
    };
    let wait = |of| {
        let value = header("reset", of)?;
        match value.parse::<f64>() {
            Ok(at) if at >= 1e12 => rounded((at - now_ms()?).max(0.0)),
            Ok(at) if at >= 1e9 => rounded((at * 1000.0 - now_ms()?).max(0.0)),
            _ => seconds_text_to_ms(value),
        }
    };
    used_up.filter_map(wait).max()
}

/// `7`, `1.5`, `36s`, `250ms` or `1m30s` as milliseconds; a number alone counts seconds.
pub(crate) fn seconds_text_to_ms(text: &str) -> Option<u64> {
    let text = text.trim();
    rounded(text.parse::<f64>().map(|seconds| seconds * 1000.0).ok().or_else(|| leading_duration_ms(text))?)
}

/// The wait that a message asks for in words, in milliseconds: `Please try again in 3.2s`, `retry after 26 seconds`.
pub(crate) fn wait_in_words_ms(message: &str) -> Option<u64> {
    const ASKS: [&str; 5] = ["try again in ", "try again after ", "retry in ", "retry after ", "please wait "];
    let message = message.to_ascii_lowercase();
    let asked = |phrase| message.split(phrase).skip(1).find_map(leading_duration_ms);
    rounded(ASKS.into_iter().find_map(asked)?)
}

/// The duration at the beginning of a text, in milliseconds: numbers, each with its unit.
fn leading_duration_ms(text: &str) -> Option<f64> {
    let mut rest = text.trim_start();
    let mut total = None;
    loop {
        let (number, behind) =
            rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len()));
        let behind = behind.trim_start();
        let (unit, behind) = behind.split_at(behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len()));
        let factor = match unit {
            "ms" | "millisecond" | "milliseconds" => 1.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1000.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000.0,
            "d" | "day" | "days" => 86_400_000.0,
            _ => return total,
        };
        let Ok(number) = number.parse::<f64>() else { return total };
        total = Some(total.unwrap_or(0.0) + number * factor);
        rest = behind.trim_start();
    }
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
        let later = ("date", "Tue, 01 Dec 2026 00:00:00 GMT");
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
            (vec![("retry-after", "1m30s")], Some(90_000)),
            (vec![("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "6m0s")], Some(360_000)),
            (vec![("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "12ms")], Some(12)),
            (vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "7")], Some(7000)),
            (vec![later, ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1796083230")], Some(30_000)),
            (vec![later, ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1796083200250")], Some(250)),
            (vec![later, ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1796083199")], Some(0)),
            (vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1784114977000")], None),
            (vec![("x-ratelimit-remaining-tokens", "9"), ("x-ratelimit-reset-tokens", "12ms")], None),
            (vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "7"), ("retry-after", "2")], Some(2000)),
            (vec![("retry-after", "-1")], None),
            (vec![("retry-after", "later")], None),
            (vec![("retry-after", "inf")], None),
            (vec![], None),
        ] {
            assert_eq!(facts(&headers).retry_after_ms, expected, "{headers:?}");
        }
    }

    #[test]
    fn a_wait_in_words_is_understood() {
        for (message, expected) in [
            ("Rate limit reached for x in y: Limit 3. Please try again in 3.2s. Visit z.", Some(3200)),
            ("Please try again in 712ms.", Some(712)),
            ("try again in 1m12.5s", Some(72_500)),
            ("Please Try Again In 1 hour 5 minutes", Some(3_900_000)),
            ("Please retry in 36.902s.", Some(36_902)),
            ("Requests have exceeded the limit. Please retry after 26 seconds.", Some(26_000)),
            ("please wait 2 minutes before the next request", Some(120_000)),
            ("You may try again in a moment; try again in 5s", Some(5000)),
            ("Please try again in a few minutes", None),
            ("retry after 2026", None),
            ("try again in ", None),
            ("it took 3.2s", None),
        ] {
            assert_eq!(wait_in_words_ms(message), expected, "{message}");
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
