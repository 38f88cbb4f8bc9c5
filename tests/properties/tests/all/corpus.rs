//! What the fuzzers found worth keeping runs again with every test run.

use dsh_properties::anthropic::Anthropic;
use dsh_properties::completions::Completions;
use dsh_properties::decoding::COMMON_APIS;
use dsh_properties::google::Google;
use dsh_properties::mistral::Mistral;
use dsh_properties::responses::Responses;
use dsh_properties::{decoding, framing, restoring, session_log};

use crate::adapter;
use crate::wire::replay;

#[test]
fn sse_framing() {
    replay("sse_framing", framing::check);
}

#[test]
fn completions_decode() {
    replay("completions_decode", |data| decoding::check::<Completions>(adapter(), data));
}

#[test]
fn responses_decode() {
    replay("responses_decode", |data| decoding::check::<Responses>(adapter(), data));
}

#[test]
fn anthropic_decode() {
    replay("anthropic_decode", |data| decoding::check::<Anthropic>(adapter(), data));
}

#[test]
fn google_decode() {
    replay("google_decode", |data| decoding::check::<Google>(adapter(), data));
}

#[test]
fn mistral_decode() {
    replay("mistral_decode", |data| decoding::check::<Mistral>(adapter(), data));
}

#[test]
fn envelope_restore() {
    replay("envelope_restore", |data| restoring::check(adapter(), &COMMON_APIS, data));
}

#[test]
fn session_log() {
    session_log::seeds().iter().for_each(|seed| session_log::check(seed));
    replay("session_log", session_log::check);
}
