//! The envelope of kind `replay`, version 1.
//!
//! Response half: `{kind, version, provider, model, response, recorded?}`, where `response` is the 0-based number of
//! the response in its script or log. Block entries: `{type, recorded?}`.
//!
//! A recorded finish carries the metadata of the adapter that made the recording. It is never passed on as if it were
//! ours, since that adapter would then find its own metadata under a route that it does not serve. It is kept under
//! `recorded`, for people who look at the log; nothing reads it. A recording of a replay does not nest: what it holds
//! under `recorded` is taken over.

use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::vocab::{InvalidReplay, ReplayEnvelope, Target};

/// Kind of the envelope.
pub const KIND: &str = "replay";
/// Its version.
pub const VERSION: u32 = 1;

/// What a recording held, without what says nothing.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub response: Option<Raw>,
    pub entries: Option<Vec<Option<Raw>>>,
}

impl Recorded {
    pub(crate) fn of(envelope: &ReplayEnvelope) -> Self {
        let head = json::from_str::<Object>(envelope.response.get()).unwrap_or_default();
        let is_own = head.get_str("kind").as_deref() == Some(KIND);
        let response =
            if is_own { head.get("recorded").map(ToOwned::to_owned) } else { Some(envelope.response.clone()) };
        let entry = |entry: &Raw| {
            let Ok(mut o) = json::from_str::<Object>(entry.get()) else { return Some(entry.clone()) };
            let own = o.take("recorded");
            if is_own {
                return own;
            }
            let says_more = own.is_some() || o.iter().any(|(name, _)| name != "type");
            says_more.then(|| entry.clone())
        };
        let entries = envelope.blocks.as_ref().map(|blocks| blocks.iter().map(entry).collect());
        Self { response, entries }
    }
}

/// A response half.
pub(crate) fn half(target: &Target, response: u64, recorded: Option<Raw>) -> Raw {
    let mut o = Object::new();
    o.set("kind", raw(KIND));
    o.set("version", raw(&VERSION));
    o.set("provider", raw(&target.provider));
    o.set("model", raw(&target.model));
    o.set("response", raw(&response));
    if let Some(recorded) = recorded {
        o.set("recorded", recorded);
    }
    raw(&o)
}

/// Checks what the host leaves to the adapter.
pub(crate) fn check(envelope: &ReplayEnvelope) -> Result<(), InvalidReplay> {
    let invalid = |reason: &str| Err(InvalidReplay::Invalid(reason.to_owned()));
    let Ok(half) = json::from_str::<Object>(envelope.response.get()) else {
        return invalid("the response half is not an object");
    };
    match half.get("response").map(|number| serde_json::from_str::<u64>(number.get())) {
        Some(Ok(_)) => Ok(()),
        Some(Err(_)) => invalid("response.response is not the number of a response"),
        None => invalid("response.response is missing"),
    }
}
