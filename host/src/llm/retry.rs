//! Retry policy: which failures are worth a further attempt, and how long to wait before it.
//!
//! Pure: it reads no clock and draws no numbers but for [`jitter`], which its caller passes in. The status decides
//! first where it is one that is always or never passing; the code, which the adapter read from the body, second.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, SystemTime};

use dsh_plugin_api::vocab::{Failure, FailureCode};

use crate::manifest::Transport;

/// Further attempts after an empty answer, at most: a model that has nothing to say rarely says more when asked again.
const EMPTY_ANSWER_RETRIES: u32 = 2;

/// Whether a failure may pass by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The same request may succeed later.
    Retryable,
    /// The same request would fail again.
    Fatal,
}

/// What to do after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Try again after this many milliseconds.
    After(u64),
    /// End the turn with the failure as it is.
    GiveUp(GiveUp),
}

/// Why there is no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GiveUp {
    /// See [`Class::Fatal`].
    #[error("the same request would fail again")]
    Fatal,
    /// `max_retries` of the manifest, or the smaller budget of empty answers.
    #[error("{retries} further attempts failed as well")]
    Spent {
        /// How many there were.
        retries: u32,
    },
    /// The provider asks for a longer wait than `retry_max_ms` allows.
    #[error("the provider asks to wait {requested_ms} ms, longer than retry_max_ms = {cap_ms}")]
    WaitTooLong {
        /// What it asks for.
        requested_ms: u64,
        /// What the manifest allows.
        cap_ms: u64,
    },
}

/// Whether a failure may pass by itself.
///
/// Retryable are 408, 409, 429 and 5xx, failures of the connection, timeouts, overload inside a stream, and empty
/// answers. `PROTOCOL` is not: a provider that breaks its own wire does so again. Neither is anything that the
/// body names as lasting, whatever the status: a used-up quota comes as 429 too.
#[must_use]
pub fn classify(failure: &Failure) -> Class {
    use FailureCode as Code;
    match (&failure.code, failure.status) {
        (
            Code::Auth
            | Code::Quota
            | Code::ContextWindowExceeded
            | Code::Refused
            | Code::UnknownModel
            | Code::MissingCredential
            | Code::InvalidCredential
            | Code::Unsupported
            | Code::Aborted
            | Code::PluginPanic
            | Code::PluginCrashed
            | Code::PluginTimeout,
            _,
        ) => Class::Fatal,
        (_, Some(408 | 409 | 429 | 500..=599)) => Class::Retryable,
        (_, Some(300..=499)) => Class::Fatal,
        (Code::RateLimit | Code::Server | Code::Timeout | Code::Transport | Code::EmptyResponse, _) => Class::Retryable,
        (Code::InvalidRequest | Code::Protocol | Code::Other(_), _) => Class::Fatal,
    }
}

/// What to do after a failed attempt. `retry` is the number of the coming attempt among the further ones, from 1;
/// `jitter` is a number from 0 to 1 (see [`jitter`]).
///
/// The wait is `retry_base_ms` doubled for each earlier retry, capped at `retry_max_ms` and scaled to between half and
/// all of it. A wait that the provider asks for is never cut short; above the cap it ends the turn at once.
#[must_use]
pub fn delay(config: &Transport, retry: u32, failure: &Failure, jitter: f64) -> Decision {
    if classify(failure) == Class::Fatal {
        return Decision::GiveUp(GiveUp::Fatal);
    }
    let cap_ms = config.retry_max_ms;
    let requested_ms = failure.provider_retry_after_ms.unwrap_or(0);
    if requested_ms > cap_ms {
        return Decision::GiveUp(GiveUp::WaitTooLong { requested_ms, cap_ms });
    }
    let budget = match failure.code {
        FailureCode::EmptyResponse => config.max_retries.min(EMPTY_ANSWER_RETRIES),
        _ => config.max_retries,
    };
    if retry > budget {
        return Decision::GiveUp(GiveUp::Spent { retries: retry.saturating_sub(1) });
    }
    let doubled = 2u64.saturating_pow(retry.saturating_sub(1));
    let backoff = config.retry_base_ms.saturating_mul(doubled).min(cap_ms);
    let scaled = backoff as f64 * (0.5 + jitter.clamp(0.0, 1.0) / 2.0);
    // A float may round up beyond the cap.
    Decision::After((scaled as u64).min(cap_ms).max(requested_ms))
}

/// A fresh number from 0 to 1, not for secrets: the standard library keys each hasher at random.
#[must_use]
pub fn jitter() -> f64 {
    f64::from((RandomState::new().build_hasher().finish() >> 32) as u32) / f64::from(u32::MAX)
}

/// The wait that response headers (names in lower case) ask for, in milliseconds: `retry-after-ms`, or `retry-after`
/// in seconds or as an HTTP date (RFC 9110, 10.2.3). A date counts from the response's own `date`, else from `now`;
/// one in the past is 0.
#[must_use]
pub fn retry_after_ms(headers: &[(String, String)], now: SystemTime) -> Option<u64> {
    let header = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim());
    let number = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    if let Some(ms) = header("retry-after-ms").and_then(number) {
        return Some(ms.ceil() as u64);
    }
    let after = header("retry-after")?;
    if let Some(seconds) = number(after) {
        return Some((seconds * 1000.0).ceil() as u64);
    }
    let at = httpdate::parse_http_date(after).ok()?;
    let from = header("date").and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(now);
    let wait = at.duration_since(from).unwrap_or(Duration::ZERO);
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failure(code: &str, status: Option<u16>) -> Failure {
        Failure { status, ..Failure::new(code.into(), "x") }
    }

    fn asking(ms: u64) -> Failure {
        Failure { provider_retry_after_ms: Some(ms), ..failure("RATE_LIMIT", Some(429)) }
    }

    const CONFIG: Transport = Transport {
        connect_timeout_ms: 1,
        idle_timeout_ms: 1,
        progress_timeout_ms: 1,
        max_retries: 4,
        retry_base_ms: 500,
        retry_max_ms: 3_000,
    };

    #[test]
    fn what_may_pass_is_retried_and_what_lasts_is_not() {
        use Class::{Fatal, Retryable};
        for (code, status, class) in [
            ("TRANSPORT", None, Retryable),
            ("TRANSPORT", Some(200), Retryable),
            ("TIMEOUT", None, Retryable),
            ("TIMEOUT", Some(408), Retryable),
            ("INVALID_REQUEST", Some(408), Retryable),
            ("INVALID_REQUEST", Some(409), Retryable),
            ("RATE_LIMIT", Some(429), Retryable),
            ("RATE_LIMIT", None, Retryable),
            ("SERVER", None, Retryable),
            ("SERVER", Some(500), Retryable),
            ("SERVER", Some(529), Retryable),
            ("PROTOCOL", Some(503), Retryable),
            ("SOMETHING_NEW", Some(502), Retryable),
            ("EMPTY_RESPONSE", None, Retryable),
            ("EMPTY_RESPONSE", Some(200), Retryable),
            ("QUOTA", Some(429), Fatal),
            ("AUTH", Some(401), Fatal),
            ("TRANSPORT", Some(401), Fatal),
            ("INVALID_REQUEST", Some(400), Fatal),
            ("INVALID_REQUEST", Some(307), Fatal),
            ("INVALID_REQUEST", None, Fatal),
            ("CONTEXT_WINDOW_EXCEEDED", Some(400), Fatal),
            ("CONTEXT_WINDOW_EXCEEDED", Some(500), Fatal),
            ("REFUSED", None, Fatal),
            ("PROTOCOL", None, Fatal),
            ("PROTOCOL", Some(200), Fatal),
            ("UNKNOWN_MODEL", Some(404), Fatal),
            ("MISSING_CREDENTIAL", None, Fatal),
            ("INVALID_CREDENTIAL", None, Fatal),
            ("UNSUPPORTED", None, Fatal),
            ("ABORTED", None, Fatal),
            ("PLUGIN_PANIC", None, Fatal),
            ("PLUGIN_CRASHED", None, Fatal),
            ("SOMETHING_NEW", None, Fatal),
        ] {
            assert_eq!(classify(&failure(code, status)), class, "{code} {status:?}");
        }
    }

    #[test]
    fn the_wait_doubles_up_to_the_cap_and_jitter_halves_it_at_most() {
        let lost = failure("TRANSPORT", None);
        for (retry, jitter, wait) in [
            (1, 1.0, 500),
            (1, 0.0, 250),
            (2, 1.0, 1_000),
            (3, 1.0, 2_000),
            (4, 1.0, 3_000),
            (4, 0.0, 1_500),
            (1, f64::INFINITY, 500),
            (1, -1.0, 250),
        ] {
            assert_eq!(delay(&CONFIG, retry, &lost, jitter), Decision::After(wait), "retry {retry}, jitter {jitter}");
        }
    }

    #[test]
    fn a_requested_wait_is_never_cut_short_and_one_above_the_cap_ends_the_turn() {
        for (requested, retry, decision) in [
            (0, 1, Decision::After(500)),
            (100, 1, Decision::After(500)),
            (2_000, 1, Decision::After(2_000)),
            (3_000, 1, Decision::After(3_000)),
            (3_001, 1, Decision::GiveUp(GiveUp::WaitTooLong { requested_ms: 3_001, cap_ms: 3_000 })),
            (2_000, 5, Decision::GiveUp(GiveUp::Spent { retries: 4 })),
        ] {
            assert_eq!(delay(&CONFIG, retry, &asking(requested), 1.0), decision, "asked for {requested} ms");
        }
    }

    #[test]
    fn budgets_end() {
        let spent = |retries| Decision::GiveUp(GiveUp::Spent { retries });
        assert_eq!(delay(&CONFIG, 5, &failure("TRANSPORT", None), 0.5), spent(4));
        assert_eq!(delay(&CONFIG, 2, &failure("EMPTY_RESPONSE", None), 0.0), Decision::After(500));
        assert_eq!(delay(&CONFIG, 3, &failure("EMPTY_RESPONSE", None), 0.0), spent(2));
        let none = Transport { max_retries: 0, ..CONFIG };
        assert_eq!(delay(&none, 1, &failure("TRANSPORT", None), 0.5), spent(0));
        assert_eq!(delay(&CONFIG, 1, &failure("AUTH", Some(401)), 0.5), Decision::GiveUp(GiveUp::Fatal));
    }

    #[test]
    fn every_spelling_of_retry_after_is_read() {
        const LATER: &str = "Sun, 06 Nov 1994 08:49:40 GMT";
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:00 GMT").unwrap();
        for (headers, wait) in [
            (vec![("retry-after", "2")], Some(2_000)),
            (vec![("retry-after", " 1.5 ")], Some(1_500)),
            (vec![("retry-after-ms", "20"), ("retry-after", "1")], Some(20)),
            (vec![("retry-after-ms", "soon"), ("retry-after", "1")], Some(1_000)),
            (vec![("retry-after", LATER)], Some(40_000)),
            (vec![("retry-after", LATER), ("date", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(3_000)),
            (vec![("retry-after", "Sunday, 06-Nov-94 08:49:40 GMT")], Some(40_000)),
            (vec![("retry-after", "Sun Nov  6 08:49:40 1994")], Some(40_000)),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")], Some(0)),
            (vec![("retry-after", "1e300")], Some(u64::MAX)),
            (vec![("retry-after", "-1")], None),
            (vec![("retry-after", "NaN")], None),
            (vec![("retry-after", "")], None),
            (vec![("date", LATER)], None),
        ] {
            let owned: Vec<_> = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(retry_after_ms(&owned, now), wait, "{headers:?}");
        }
    }

    #[test]
    fn jitter_varies_within_its_range() {
        let values: Vec<f64> = (0..50).map(|_| jitter()).collect();
        assert!(values.iter().all(|value| (0.0..=1.0).contains(value)), "{values:?}");
        assert!(values.iter().any(|value| *value != values[0]), "always {}", values[0]);
    }

    proptest! {
        #[test]
        fn a_wait_lies_between_what_is_asked_and_the_cap(
            retry in 1u32..80, base in any::<u64>(), cap in any::<u64>(), asked in any::<u64>(), jitter in any::<f64>(),
        ) {
            let config = Transport { max_retries: 80, retry_base_ms: base, retry_max_ms: cap, ..CONFIG };
            match delay(&config, retry, &asking(asked), jitter) {
                Decision::After(wait) => prop_assert!(wait >= asked && wait <= cap),
                Decision::GiveUp(why) => {
                    prop_assert_eq!(why, GiveUp::WaitTooLong { requested_ms: asked, cap_ms: cap });
                    prop_assert!(asked > cap);
                }
            }
        }
    }
}
