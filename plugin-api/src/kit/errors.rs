//! Classes of failures: refusals by status, and error objects inside a stream.
//!
//! Providers disagree about everything but the word `error`, so the class is found in three steps: what
//! the error calls itself (`code`, `type`, `status`), what its message says, and the status.

use serde_json::value::RawValue;

use super::head::{HeadFacts, class_of, cut, excerpt, seconds_text_to_ms, wait_in_words_ms};
use super::lenient::{elements, filled, is_object, is_string, members, members_of, string};
use crate::StreamEnd;
use crate::vocab::{Failure, FailureCode};

/// Longest message that is passed on, in characters.
const MESSAGE_LIMIT: usize = 4000;
/// Longest excerpt of a body that is no JSON, in characters.
const EXCERPT_LIMIT: usize = 300;

/// How many errors inside an error are looked through. Each reads the rest of the text once more.
const DEEPEST_ERROR: usize = 8;

/// Names under which providers report an empty account.
const QUOTA_NAMES: [&str; 9] = [
    "insufficient_quota",
    "quota_exceeded",
    "exceeded_current_quota",
    "insufficient_balance",
    "insufficient_credits",
    "billing_hard_limit",
    "billing_not_active",
    "payment_required",
    "billing_error",
];
const QUOTA_PHRASES: [&str; 7] = [
    "check your plan and billing",
    "exceeded your current quota",
    "insufficient balance",
    "insufficient credit",
    "insufficient quota",
    "requires more credits",
    "credit balance is too low",
];
const RATE_NAMES: [&str; 4] = ["rate_limit", "rate limit", "too_many_requests", "resource_exhausted"];
const CONTEXT_NAMES: [&str; 5] = [
    "context_length_exceeded",
    "context_window_exceeded",
    "exceed_context_size",
    "model_max_prompt_tokens_exceeded",
    "string_above_max_length_context",
];
const CONTEXT_PHRASES: [&str; 17] = [
    "maximum context length",
    "context length exceeded",
    "context window",
    "context size",
    "context limit",
    "maximum prompt length",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input token count",
    "reduce the length of the messages",
    "longer than the model's context length",
    "greater than the context length",
    "inputs` tokens + `max_new_tokens` must be",
    "model token limit",
    "prompt exceeds max length",
    "prompt token count",
];
/// The last one is how a LiteLLM proxy without a database says that a key is not its own.
const KEY_NAMES: [&str; 7] = [
    "invalid_api_key",
    "api_key_invalid",
    "authentication",
    "permission_error",
    "unauthorized",
    "unauthenticated",
    "no_db_connection",
];
const KEY_PHRASES: [&str; 2] = ["api key not valid", "incorrect api key"];
const FILTER_NAMES: [&str; 3] = ["content_filter", "content_policy_violation", "responsibleaipolicyviolation"];
const REQUEST_NAMES: [&str; 9] = [
    "invalid_request",
    "bad_request",
    "invalid_argument",
    "not_found",
    "request_too_large",
    "invalid_prompt",
    "invalid_image",
    "invalid_base64_image",
    "unsupported_image",
];

/// What an error object says of itself.
#[derive(Debug, Default)]
struct ErrorFacts {
    message: Option<String>,
    /// `code`, `type`, `status` and the reasons of `details`, in lower case, joined by spaces.
    names: String,
    /// A `code` or `status` that is an HTTP status.
    status: Option<u16>,
    request_id: Option<String>,
    retry_after_ms: Option<u64>,
    /// A quota that is counted by the day.
    of_the_day: bool,
}

impl ErrorFacts {
    /// Reads an error object, or a plain text in its place.
    fn read(error: &RawValue) -> Self {
        Self::read_to(error, DEEPEST_ERROR)
    }

    /// Nothing but a message, which counts only when it is not blank.
    fn said(message: String) -> Self {
        Self { retry_after_ms: wait_in_words_ms(&message), message: Some(message), ..Self::default() }
    }

    /// Looks through errors inside an error, down to `depth` levels.
    fn read_to(error: &RawValue, depth: usize) -> Self {
        if is_string(error) {
            return Self::said(filled(Some(error)).unwrap_or_default());
        }
        let Some([message, msg, code, kind, status, status_code, metadata, details, request_id, inner]) = members_of(
            error,
            ["message", "msg", "code", "type", "status", "status_code", "metadata", "details", "request_id", "error"],
        ) else {
            return Self { message: Some(cut(error.get(), MESSAGE_LIMIT)), ..Self::default() };
        };
        let message = message.or(msg);
        if message.is_none()
            && let Some(inner) = inner
            && let Some(depth) = depth.checked_sub(1)
        {
            return Self::read_to(inner, depth);
        }
        let names = [code, kind, status].into_iter().flatten().filter_map(string).chain(reasons(details));
        let number = [code, status, status_code].into_iter().flatten().find_map(|value| {
            let text = string(value).unwrap_or_else(|| value.get().to_owned());
            text.parse::<u16>().ok().filter(|number| (400..600).contains(number))
        });
        let message = message_of(message, metadata).unwrap_or_else(|| cut(error.get(), MESSAGE_LIMIT));
        Self {
            names: names.collect::<Vec<_>>().join(" ").to_lowercase(),
            status: number,
            request_id: filled(request_id),
            retry_after_ms: retry_delay(details).or_else(|| wait_in_words_ms(&message)),
            message: Some(message),
            of_the_day: details.is_some_and(|details| details.get().contains("PerDay")),
        }
    }

    /// The message. Where only the name of the error says that it is about an image or a size, it stands behind the
    /// message: no code of ours says that, and the host asks again without images when a refusal names them.
    fn told(&self) -> Option<String> {
        let message = self.message.as_deref().filter(|text| !text.trim().is_empty());
        let says = |words: &[&str]| {
            message.is_some_and(|message| words.iter().any(|word| message.to_lowercase().contains(word)))
        };
        let mut names = self.names.split(' ').filter(|name| {
            (name.contains("image") && !says(&["image"])) || (name.contains("too_large") && !says(&["large", "size"]))
        });
        match (message, names.next()) {
            (Some(message), Some(name)) => Some(format!("{message} ({name})")),
            (message, _) => message.map(str::to_owned),
        }
    }

    /// True for a limit that is soon over by the provider's own word.
    const fn is_short(&self) -> bool {
        self.retry_after_ms.is_some() && !self.of_the_day
    }

    /// The class of the failure. `status` is that of the response, or of the error object inside a stream.
    fn class(&self, status: Option<u16>) -> FailureCode {
        let message = self.message.as_deref().unwrap_or_default().to_lowercase();
        let named = |names: &[&str]| names.iter().any(|name| self.names.contains(name));
        let says = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
        if named(&QUOTA_NAMES) || status == Some(402) {
            return FailureCode::Quota;
        }
        // Google speaks of plan and billing also when a minute's worth is used up, but then it says how long that lasts.
        if named(&RATE_NAMES) && (self.is_short() || !says(&QUOTA_PHRASES[..1])) {
            return FailureCode::RateLimit;
        }
        if says(&QUOTA_PHRASES) && matches!(status, None | Some(400 | 403 | 429)) {
            return FailureCode::Quota;
        }
        // A limit per minute also speaks of tokens; only refusals of the request itself are about its size.
        let about_the_request = matches!(status, None | Some(400 | 413 | 422 | 500));
        if about_the_request && (named(&CONTEXT_NAMES) || says(&CONTEXT_PHRASES)) {
            return FailureCode::ContextWindowExceeded;
        }
        if named(&FILTER_NAMES) && matches!(status, None | Some(400..=499)) {
            return FailureCode::Refused;
        }
        match status {
            Some(400) | None if named(&KEY_NAMES) || says(&KEY_PHRASES) => FailureCode::Auth,
            Some(status) => class_of(status),
            None if named(&REQUEST_NAMES) => FailureCode::InvalidRequest,
            None => FailureCode::Server,
        }
    }
}

/// The message, and what an upstream provider said where a router passes it on as `metadata.raw`.
fn message_of(message: Option<&RawValue>, metadata: Option<&RawValue>) -> Option<String> {
    let message = message.map(|value| string(value).unwrap_or_else(|| value.get().to_owned()));
    let message = message.filter(|text| !text.trim().is_empty());
    let upstream = metadata
        .and_then(|metadata| members_of(metadata, ["raw"]))
        .and_then(|[raw]| raw)
        .map(|raw| string(raw).unwrap_or_else(|| raw.get().to_owned()))
        .filter(|raw| !raw.trim().is_empty());
    let whole = match (message, upstream) {
        (Some(message), Some(upstream)) if !message.contains(&upstream) => format!("{message}: {upstream}"),
        (Some(message), _) => message,
        (None, upstream) => upstream?,
    };
    Some(cut(&whole, MESSAGE_LIMIT))
}

/// The wait of a `google.rpc.RetryInfo`, which Google's compatible endpoint puts into `details`.
fn retry_delay(details: Option<&RawValue>) -> Option<u64> {
    let delay = |detail| members_of(detail, ["retryDelay"]).and_then(|[delay]| filled(delay));
    elements(details).into_iter().find_map(|detail| seconds_text_to_ms(&delay(detail)?))
}

/// The reasons of `google.rpc.ErrorInfo` details.
fn reasons(details: Option<&RawValue>) -> impl Iterator<Item = String> {
    elements(details).into_iter().filter_map(|detail| filled(members_of(detail, ["reason"])?[0]))
}

/// The failure of a response whose status is no success.
pub fn refused(head: &HeadFacts, body: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start_matches('\u{feff}').trim();
    let facts = body_facts(text);
    let message = facts.told().unwrap_or_else(|| match excerpt(text, EXCERPT_LIMIT) {
        line if line.is_empty() => format!("the provider answered HTTP {} without a body", head.status),
        line => format!("the provider answered HTTP {}: {line}", head.status),
    });
    Failure {
        message,
        code: facts.class(Some(head.status)),
        status: Some(head.status),
        provider_retry_after_ms: head.retry_after_ms.or(facts.retry_after_ms),
        request_id: head.request_id.clone().or(facts.request_id),
    }
}

/// Finds the error in the forms that refusals come in: `{error}`, `[{error}]`, `{message}`, `{detail}`, `{errors: […]}`.
fn body_facts(text: &str) -> ErrorFacts {
    let Ok(value) = serde_json::from_str::<&RawValue>(text) else {
        return ErrorFacts { retry_after_ms: wait_in_words_ms(text), ..ErrorFacts::default() };
    };
    object_facts(elements(Some(value)).into_iter().next().unwrap_or(value))
}

/// The same for one object.
fn object_facts(first: &RawValue) -> ErrorFacts {
    let names = ["error", "message", "detail", "errors", "request_id"];
    let Some([error, message, detail, errors, request_id]) = members_of(first, names) else {
        return ErrorFacts::said(filled(Some(first)).unwrap_or_default());
    };
    let mut facts = match (error, message, detail) {
        // Some servers write the name of the class into `error` and the text beside it.
        (Some(error), Some(_), _) if is_string(error) => {
            ErrorFacts { names: filled(Some(error)).unwrap_or_default().to_lowercase(), ..ErrorFacts::read(first) }
        }
        (Some(error), _, _) => ErrorFacts::read(error),
        (None, Some(_), _) => ErrorFacts::read(first),
        (None, None, Some(detail)) => {
            ErrorFacts::said(cut(&string(detail).unwrap_or_else(|| detail.get().to_owned()), MESSAGE_LIMIT))
        }
        (None, None, None) => elements(errors).first().map(|first| ErrorFacts::read(first)).unwrap_or_default(),
    };
    facts.request_id = facts.request_id.or_else(|| filled(request_id));
    facts
}

/// The failure of an error object inside a stream or answer with status 200.
pub fn in_stream(head: &HeadFacts, error: &RawValue) -> Failure {
    let facts = match members_of(error, ["error", "message", "detail", "errors"]) {
        Some([None, None, Some(_), _] | [None, None, None, Some(_)]) => object_facts(error),
        _ => ErrorFacts::read(error),
    };
    let message = facts.told();
    Failure {
        message: message.unwrap_or_else(|| "the provider reported an error without saying which".to_owned()),
        code: facts.class(facts.status),
        status: facts.status,
        provider_retry_after_ms: facts.retry_after_ms,
        request_id: head.request_id.clone().or(facts.request_id),
    }
}

/// The error of an object that came as a stream event or as the whole answer, where it is one: its `error` member, or
/// the object itself when its `object` or `type` is `error`, when it came as an `error` event, or when it has the form
/// of a refusal: `{detail}`, `{errors: […]}`, or a code with a message and no type.
pub fn error_of<'a>(value: &'a RawValue, error: Option<&'a RawValue>, event: &str) -> Option<&'a RawValue> {
    let present = |value: &&RawValue| !matches!(value.get(), "false" | "\"\"" | "{}" | "0");
    if let Some(error) = error.filter(present) {
        return Some(error);
    }
    let names = ["object", "type", "message", "msg", "code", "detail", "errors"];
    let [object, kind, message, msg, code, detail, errors] = members_of(value, names)?;
    let says_error = [object, kind].into_iter().any(|name| filled(name).as_deref() == Some("error"));
    let words = message.or(msg).is_some_and(|message| is_string(message) || is_object(message));
    let is_refusal = filled(detail).is_some() || [detail, errors].into_iter().any(|list| !elements(list).is_empty());
    let is_typed = object.or(kind).is_some();
    let is_error = event == "error" || says_error || (code.is_some() && !is_typed);
    ((is_error && words) || (is_refusal && !is_typed)).then_some(value)
}

/// The failure of a response whose bytes ended before its wire's terminal event: `TRANSPORT`, or `TIMEOUT` where the
/// host gave up waiting.
#[must_use]
pub fn unfinished(head: &HeadFacts, end: &StreamEnd) -> Failure {
    match end {
        StreamEnd::Complete => head
            .failure(FailureCode::Transport, "the stream ended before the provider said that the answer is complete"),
        StreamEnd::Cut(how) => head.failure(FailureCode::Transport, format!("the connection broke: {how}")),
        StreamEnd::TimedOut(what) => head.failure(FailureCode::Timeout, what.clone()),
    }
}

/// The failure of a body that is neither an event stream nor JSON.
pub fn not_this_wire(head: &HeadFacts, body: &[u8]) -> Failure {
    let line = excerpt(&String::from_utf8_lossy(body), EXCERPT_LIMIT);
    let kind = if head.content_type.is_empty() { "no content type" } else { &head.content_type };
    head.failure(
        FailureCode::Protocol,
        format!("the answer is neither an event stream nor JSON ({kind}): {line}; check base_url"),
    )
}

/// The failure of an `error` event whose data is no JSON.
pub fn unreadable(head: &HeadFacts, data: &str) -> Failure {
    let facts = ErrorFacts { message: Some(cut(data.trim(), MESSAGE_LIMIT)), ..ErrorFacts::default() };
    Failure { message: facts.message.clone().unwrap_or_default(), ..head.failure(facts.class(None), "") }
}

/// The failure of a line that is no JSON.
pub fn malformed(head: &HeadFacts, data: &str) -> Failure {
    let why = members(data, ["id"]).err().map_or_else(String::new, |e| format!(" ({e})"));
    let line = cut(data.trim(), EXCERPT_LIMIT);
    head.failure(FailureCode::Protocol, format!("the provider sent an event that is no JSON{why}: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16) -> HeadFacts {
        HeadFacts { status, content_type: String::new(), request_id: None, retry_after_ms: None }
    }

    #[test]
    fn a_name_that_speaks_of_an_image_or_a_size_stands_behind_a_message_that_does_not() {
        for (body, message) in [
            (r#"{"error":{"message":"Invalid input.","code":"invalid_image"}}"#, "Invalid input. (invalid_image)"),
            (r#"{"error":{"message":"Bad.","type":"request_too_large"}}"#, "Bad. (request_too_large)"),
            (r#"{"error":{"message":"Not an Image.","code":"invalid_image"}}"#, "Not an Image."),
            (r#"{"error":{"message":"Over the maximum size","type":"request_too_large"}}"#, "Over the maximum size"),
            (r#"{"error":{"message":"Bad.","type":"invalid_request_error"}}"#, "Bad."),
        ] {
            assert_eq!(refused(&head(400), body.as_bytes()).message, message);
            let error = serde_json::from_str::<&RawValue>(body).unwrap();
            let [error] = members_of(error, ["error"]).unwrap();
            assert_eq!(in_stream(&head(200), error.unwrap()).message, message);
        }
    }

    #[test]
    fn a_refusal_is_classed_by_name_then_message_then_status() {
        for (status, body, code) in [
            (400, r#"{"error":{"message":"Invalid value: 'foo'.","type":"invalid_request_error"}}"#, "INVALID_REQUEST"),
            (404, r#"{"error":{"message":"no such model","code":"model_not_found"}}"#, "INVALID_REQUEST"),
            (422, r#"{"detail":[{"msg":"field required"}]}"#, "INVALID_REQUEST"),
            (401, r#"{"error":{"message":"Incorrect API key","code":"invalid_api_key"}}"#, "AUTH"),
            (403, "", "AUTH"),
            (400, r#"{"error":{"message":"No connected db.","type":"no_db_connection","code":"400"}}"#, "AUTH"),
            (400, r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key."}}]"#, "AUTH"),
            (
                400,
                r#"{"error":{"code":400,"message":"API key expired.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
                "AUTH",
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"36s"}]}}"#,
                "RATE_LIMIT",
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"RequestsPerDay"}]},{"retryDelay":"36s"}]}}"#,
                "QUOTA",
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED"}}"#,
                "QUOTA",
            ),
            (402, r#"{"error":{"message":"Insufficient Balance"}}"#, "QUOTA"),
            (429, r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#, "QUOTA"),
            (429, r#"{"error":{"message":"quota exceeded","type":"rate_limit"}}"#, "RATE_LIMIT"),
            (
                429,
                r#"{"error":{"message":"Request too large for the context window","code":"rate_limit_exceeded"}}"#,
                "RATE_LIMIT",
            ),
            (429, "slow down", "RATE_LIMIT"),
            (408, "", "TIMEOUT"),
            (400, r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#, "CONTEXT_WINDOW_EXCEEDED"),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens."}"#,
                "CONTEXT_WINDOW_EXCEEDED",
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"no","type":"exceed_context_size_error"}}"#,
                "CONTEXT_WINDOW_EXCEEDED",
            ),
            (413, r#"{"error":"prompt is too long"}"#, "CONTEXT_WINDOW_EXCEEDED"),
            (400, r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#, "CONTEXT_WINDOW_EXCEEDED"),
            (400, r#"{"error":{"message":"Your request exceeded model token limit: 8"}}"#, "CONTEXT_WINDOW_EXCEEDED"),
            (
                422,
                r#"{"error":{"message":"`inputs` tokens + `max_new_tokens` must be <= 4097"}}"#,
                "CONTEXT_WINDOW_EXCEEDED",
            ),
            (
                400,
                r#"{"error":{"message":"prompt token count of 9 exceeds the limit of 8"}}"#,
                "CONTEXT_WINDOW_EXCEEDED",
            ),
            (
                400,
                r#"{"error":"The number of tokens to keep is greater than the context length"}"#,
                "CONTEXT_WINDOW_EXCEEDED",
            ),
            (400, r#"{"error":{"message":"max_tokens is too large: 99999"}}"#, "INVALID_REQUEST"),
            (400, r#"{"error":{"message":"filtered","code":"content_filter"}}"#, "REFUSED"),
            (500, "<html>oops</html>", "SERVER"),
            (503, "", "SERVER"),
            (529, r#"{"error":{"message":"Overloaded","type":"overloaded_error"}}"#, "SERVER"),
            (307, "", "PROTOCOL"),
        ] {
            let failure = refused(&head(status), body.as_bytes());
            assert_eq!(failure.code.name(), code, "{status} {body}");
            assert_eq!(failure.status, Some(status));
            assert!(!failure.message.trim().is_empty(), "{status} {body}");
        }
    }

    #[test]
    fn the_message_is_found_in_every_form_of_body() {
        for (body, message) in [
            (r#"{"error":{"message":"a"}}"#, "a"),
            (r#"{"error":"a"}"#, "a"),
            (r#"{"error":"Bad Request","message":"a"}"#, "a"),
            (r#"{"message":"a"}"#, "a"),
            (r#"{"detail":"a"}"#, "a"),
            (r#"{"errors":[{"code":7003,"message":"a"}],"success":false}"#, "a"),
            (r#"{"errors":[]}"#, r#"the provider answered HTTP 500: {"errors":[]}"#),
            (r#"{"error":{"error":{"message":"a"}}}"#, "a"),
            (r#""a""#, "a"),
            (r#"{"error":{"message":"a","metadata":{"raw":"b"}}}"#, "a: b"),
            (r#"{"error":{"message":"a b","metadata":{"raw":"b"}}}"#, "a b"),
            (r#"{"error":{"message":"","metadata":{"raw":{"x":1}}}}"#, r#"{"x":1}"#),
            (r#"{"error":{"kind":9}}"#, r#"{"kind":9}"#),
            ("<b>down</b> for\nmaintenance", "the provider answered HTTP 500: down for maintenance"),
            ("", "the provider answered HTTP 500 without a body"),
            ("{}", "the provider answered HTTP 500: {}"),
        ] {
            assert_eq!(refused(&head(500), body.as_bytes()).message, message, "{body}");
        }
    }

    #[test]
    fn wait_and_request_id_of_the_body_fill_in_for_the_headers() {
        let body = r#"{"error":{"message":"m","details":[{"@type":"x"},{"retryDelay":"36s"}]},"request_id":"r"}"#;
        let failure = refused(&head(429), body.as_bytes());
        assert_eq!((failure.provider_retry_after_ms, failure.request_id.as_deref()), (Some(36_000), Some("r")));
        let known = HeadFacts { request_id: Some("h".into()), retry_after_ms: Some(5), ..head(429) };
        let failure = refused(&known, body.as_bytes());
        assert_eq!((failure.provider_retry_after_ms, failure.request_id.as_deref()), (Some(5), Some("h")));
        for body in [
            r#"{"error":{"message":"Rate limit reached. Please try again in 3.2s."}}"#,
            r#"{"error":"Please try again in 3.2s"}"#,
            r#"{"detail":"retry after 3.2 seconds"}"#,
            "Too many requests, please try again in 3200ms",
        ] {
            assert_eq!(refused(&head(429), body.as_bytes()).provider_retry_after_ms, Some(3200), "{body}");
        }
    }

    #[test]
    fn an_object_that_is_no_answer_is_an_error_when_it_has_the_form_of_one() {
        for (object, event, is_error) in [
            (r#"{"detail":"internal"}"#, "", true),
            (r#"{"detail":[{"msg":"bad"}]}"#, "", true),
            (r#"{"errors":[{"message":"x"}]}"#, "", true),
            (r#"{"code":1302,"msg":"x"}"#, "", true),
            (r#"{"object":"error","message":"x"}"#, "", true),
            (r#"{"message":"x"}"#, "error", true),
            (r#"{"message":"x"}"#, "", false),
            (r#"{"errors":[]}"#, "", false),
            (r#"{"detail":null,"usage":{}}"#, "", false),
            (r#"{"type":"ping","code":1,"message":"x"}"#, "", false),
        ] {
            let value: &RawValue = serde_json::from_str(object).unwrap();
            assert_eq!(error_of(value, None, event).is_some(), is_error, "{object}");
        }
    }

    #[test]
    fn an_error_object_in_a_stream_is_classed_like_its_status() {
        for (error, code, status) in [
            (r#"{"code":502,"message":"gone"}"#, "SERVER", Some(502)),
            (r#"{"code":"429","message":"slow"}"#, "RATE_LIMIT", Some(429)),
            (r#"{"message":"quota exceeded","type":"rate_limit","code":429}"#, "RATE_LIMIT", Some(429)),
            (r#"{"message":"bad","type":"invalid_request_error"}"#, "INVALID_REQUEST", None),
            (r#"{"message":"x","type":"overloaded_error"}"#, "SERVER", None),
            (r#"{"message":"This exceeds the context window"}"#, "CONTEXT_WINDOW_EXCEEDED", None),
            (r#"{"message":"Connection error.","type":null,"param":null,"code":"500"}"#, "SERVER", Some(500)),
            (r#"{"code":1302,"msg":"too many requests"}"#, "SERVER", None),
            (r#"{"detail":"internal"}"#, "SERVER", None),
            (r#"{"errors":[{"message":"slow","code":429}]}"#, "RATE_LIMIT", Some(429)),
            (r#""it broke""#, "SERVER", None),
            ("17", "SERVER", None),
        ] {
            let value: &RawValue = serde_json::from_str(error).unwrap();
            let failure = in_stream(&head(200), value);
            assert_eq!((failure.code.name(), failure.status), (code, status), "{error}");
        }
    }
}
