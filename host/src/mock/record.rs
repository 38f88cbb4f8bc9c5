//! What is kept of a request.

use std::time::{SystemTime, UNIX_EPOCH};

use dsh_plugin_api::json::{Object, Raw, raw};
use serde::Serialize;

use super::http::Request;

/// Headers whose values never leave the process.
const SECRET: [&str; 7] = [
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "x-goog-api-key",
    "api-key",
    "cookie",
    "x-amz-security-token",
];

/// One request: `{request, timeMs, method, path, headers, body, response}`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRecord {
    /// Number of the request, from 1.
    pub request: usize,
    /// When it was complete, in Unix milliseconds.
    pub time_ms: u64,
    /// For example `POST`.
    pub method: String,
    /// Path and query; the value of a `key` parameter is redacted.
    pub path: String,
    /// Names in lower case. Values of credentials are `<redacted>`; those of a repeated header are joined by `, `.
    pub headers: Object,
    /// The body where it is JSON, as it was sent but on one line; else a string.
    pub body: Raw,
    /// 0-based number of the script's answer; `null` when the script has none.
    pub response: Option<usize>,
}

impl RequestRecord {
    pub(super) fn new(number: usize, request: &Request, response: Option<usize>) -> Self {
        let mut headers = Object::new();
        for (name, value) in &request.headers {
            let known = headers.get_str(name).filter(|_| !SECRET.contains(&name.as_str()));
            let value = match known {
                _ if SECRET.contains(&name.as_str()) => "<redacted>".to_owned(),
                Some(known) => format!("{known}, {value}"),
                None => value.clone(),
            };
            headers.set(name, raw(&value));
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            request: number,
            time_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            method: request.method.clone(),
            path: redact_query(&request.path),
            headers,
            body: body_of(&request.body),
            response,
        }
    }
}

/// Line breaks stand only between the tokens of JSON text, so a space may take their place.
fn body_of(body: &[u8]) -> Raw {
    let text = String::from_utf8_lossy(body);
    let on_one_line = text.replace(['\r', '\n'], " ");
    serde_json::value::RawValue::from_string(on_one_line).unwrap_or_else(|_| raw(text.as_ref()))
}

fn redact_query(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let parameter = |parameter: &str| match parameter.split_once('=') {
        Some(("key", _)) => "key=<redacted>".to_owned(),
        _ => parameter.to_owned(),
    };
    format!("{path}?{}", query.split('&').map(parameter).collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_redacted_and_the_body_stays_as_it_was() {
        let headers = [("authorization", "Bearer s3cret"), ("x-a", "1"), ("x-a", "2"), ("x-api-key", "s3cret")];
        let request = Request {
            method: "POST".to_owned(),
            path: "/v1?a=1&key=s3cret".to_owned(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            body: b"{\"n\":12345678901234567890123,\r\n\"b\":1.50}".to_vec(),
            keep_alive: true,
            is_http_10: false,
        };
        let line = raw(&RequestRecord::new(3, &request, Some(1)));
        assert!(!line.get().contains("s3cret") && !line.get().contains('\n'), "{line}");
        for part in [
            r#""request":3"#,
            r#""path":"/v1?a=1&key=<redacted>""#,
            r#""authorization":"<redacted>""#,
            r#""x-a":"1, 2""#,
            r#""body":{"n":12345678901234567890123,  "b":1.50}"#,
            r#""response":1"#,
        ] {
            assert!(line.get().contains(part), "{part} is not in {line}");
        }
    }

    #[test]
    fn a_body_that_is_no_json_is_kept_as_a_string() {
        assert_eq!(body_of(b"a\nb").get(), r#""a\nb""#);
        assert_eq!(body_of(b"").get(), r#""""#);
    }
}
