use std::sync::Arc;

use dsh_plugin_api::vocab::{Failure, FailureCode};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::llm::testing::{FakeAdapter, panicked, route as fake_route, target};

fn history(values: Value) -> Vec<HistoryMessage> {
    json::from_str::<Vec<Message>>(&values.to_string()).unwrap().into_iter().map(HistoryMessage::from).collect()
}

/// An answer of `provider/model`: reasoning, text.
fn answer(provider: &str, model: &str, state: Value) -> Value {
    json!({
        "id": "a", "role": "assistant",
        "content": [{"type": "reasoning", "text": "r"}, {"type": "text", "text": "t"}],
        "source": {"kind": "model", "provider": provider, "model": model, "replayState": state}
    })
}

fn sound() -> Value {
    json!({
        "response": {"kind": "fake", "version": 2, "provider": "p", "model": "m", "stopReason": "stop"},
        "blocks": [{"type": "reasoning", "s": 1}, {"type": "text"}]
    })
}

/// The sound state after an edit.
fn with(edit: impl FnOnce(&mut Value)) -> Value {
    let mut state = sound();
    edit(&mut state);
    state
}

fn routed(values: Value) -> Routed {
    route(&fake_route(Arc::default()), &target(), &history(values), Replay::Routed)
}

/// What is reported of one answer made by the target.
fn degrade_reason(state: Value) -> String {
    let routed = routed(json!([answer("p", "m", state)]));
    assert_eq!(routed.fates, [Fate::Foreign]);
    assert!(routed.neutral.is_empty());
    let [degraded] = routed.degraded.as_slice() else { panic!("{:?}", routed.degraded) };
    assert_eq!((degraded.message, degraded.message_id.as_str()), (0, "a"));
    assert_eq!(degraded.code, "INVALID_REPLAY_STATE");
    degraded.reason.clone()
}

#[test]
fn every_unusable_state_degrades_with_its_reason() {
    for (state, reason) in [
        (Value::Null, "not an object"),
        (json!("junk"), "not an object"),
        (json!([1]), "not an object"),
        (json!({}), "no response half"),
        (json!({"kind": "fake", "version": 1, "stopReason": "stop", "blocks": []}), "flat form of version 1"),
        (with(|s| s["response"] = json!(7)), "response half is not an object"),
        (with(|s| s["response"]["kind"] = json!(7)), "kind is not a string"),
        (with(|s| s["response"] = json!({"version": 2})), "names no kind"),
        (with(|s| s["response"] = json!({"kind": "fake"})), "names no version"),
        (with(|s| s["response"]["kind"] = json!("other")), "of kind \"other\", this adapter writes \"fake\""),
        (with(|s| s["response"]["version"] = json!(1)), "has version 1 of \"fake\", this adapter reads version 2"),
        (with(|s| s["response"]["version"] = json!(99)), "has version 99"),
        (with(|s| s["response"]["version"] = json!("2")), "has version \"2\""),
        (with(|s| s["response"]["provider"] = json!("q")), "names provider \"q\", the message itself \"p\""),
        (with(|s| s["response"]["model"] = json!("n")), "names model \"n\", the message itself \"m\""),
        (with(|s| s["response"]["model"] = json!(4)), "model is not a string"),
        (with(|s| s["blocks"] = json!({})), "blocks are not an array"),
        (with(|s| s["blocks"] = json!([{"type": "reasoning"}])), "1 block entries, the message 2 blocks"),
        (with(|s| s["blocks"].as_array_mut().unwrap().push(json!({"type": "text"}))), "3 block entries"),
        (with(|s| s["blocks"].as_array_mut().unwrap().reverse()), "entry 0 of its replay state is of type \"text\""),
    ] {
        let said = degrade_reason(state.clone());
        assert!(said.contains(reason), "{state}: {said}");
    }
}

#[test]
fn the_first_thing_that_is_wrong_is_the_reason() {
    let everything = with(|s| {
        *s = json!({"response": {"kind": "other", "version": 9, "provider": "q", "model": "n"}, "blocks": []});
    });
    let steps: [(&str, Value); 5] = [
        ("of kind", json!("fake")),
        ("version 9", json!(2)),
        ("names provider", json!("p")),
        ("names model", json!("m")),
        ("0 block entries", Value::Null),
    ];
    let mut state = everything;
    for ((reason, right), member) in steps.into_iter().zip(["kind", "version", "provider", "model", ""]) {
        let said = degrade_reason(state.clone());
        assert!(said.contains(reason), "{said}");
        if !member.is_empty() {
            state["response"][member] = right;
        }
    }
}

#[test]
fn a_state_may_leave_out_what_the_host_need_not_know() {
    for state in [
        sound(),
        with(|s| {
            s.as_object_mut().unwrap().remove("blocks");
        }),
        with(|s| s["response"] = json!({"kind": "fake", "version": 2})),
        with(|s| s["blocks"] = json!([{"s": 1}, {"type": "text"}])),
    ] {
        let routed = routed(json!([answer("p", "m", state.clone())]));
        assert_eq!(routed.fates, [Fate::Native], "{state}");
        assert!(routed.degraded.is_empty() && routed.neutral.is_empty());
    }
}

#[test]
fn a_hand_over_is_neutral_and_names_who_made_the_message() {
    for (provider, model) in [("q", "m"), ("p", "n")] {
        let state = with(|s| {
            s["response"]["provider"] = json!(provider);
            s["response"]["model"] = json!(model);
        });
        let routed = routed(json!([{"id": "u", "role": "user", "content": []}, answer(provider, model, state)]));
        assert_eq!(routed.fates, [Fate::Foreign, Fate::Foreign]);
        assert!(routed.degraded.is_empty());
        let reason = format!("it was made by {provider}/{model}");
        assert_eq!(routed.neutral, [Neutral { message: 1, reason }]);
    }
}

#[test]
fn an_unusable_state_of_another_model_is_still_reported() {
    let routed = routed(json!([answer("q", "n", Value::Null)]));
    assert_eq!(routed.degraded.len(), 1);
    assert!(routed.neutral.is_empty());
}

#[test]
fn a_message_without_state_is_neutral_and_other_roles_are_not_mentioned() {
    let text = json!([{"type": "text", "text": "t"}]);
    let routed = routed(json!([
        {"role": "user", "content": text, "source": {"kind": "user"}},
        {"role": "assistant", "content": text, "source": {"kind": "model", "provider": "p", "model": "m"}},
        {"role": "assistant", "content": text, "source": {"kind": "user"}},
        {"role": "assistant", "content": text, "source": {"kind": "plugin", "plugin": "x"}},
        {"role": "assistant", "content": text, "source": {"kind": "tool", "callId": "c"}},
        {"role": "system", "content": text, "source": {"kind": "user"}},
    ]));
    assert_eq!(routed.neutral.iter().map(|n| n.message).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(routed.neutral.iter().all(|n| n.reason == "it has no replay state"));
    assert!(routed.degraded.is_empty());
}

#[test]
fn a_state_whose_source_names_no_maker_degrades() {
    let routed = routed(json!([{"role": "assistant", "content": [{"type": "text", "text": "t"}],
        "source": {"kind": "model", "replayState": sound()}}]));
    assert!(routed.degraded[0].reason.contains("names no provider and model"));
}

#[test]
fn failed_attempts_are_recognised_in_both_forms_and_the_interrupted_mark_wins() {
    for stop_reason in ["error", "aborted"] {
        let new = with(|s| s["response"]["stopReason"] = json!(stop_reason));
        let flat = json!({"kind": "fake", "version": 1, "stopReason": stop_reason});
        for state in [new, flat] {
            let routed = routed(json!([answer("p", "m", state)]));
            assert_eq!(routed.fates, [Fate::FailedAttempt]);
            assert!(routed.degraded.is_empty() && routed.neutral.is_empty());
        }
    }
    let mut kept = history(json!([answer("p", "m", with(|s| s["response"]["stopReason"] = json!("aborted")))]));
    kept[0].interrupted = true;
    let routed = route(&fake_route(Arc::default()), &target(), &kept, Replay::Routed);
    assert_eq!(routed.fates, [Fate::Native]);
}

#[test]
fn a_message_that_says_nothing_is_not_reported() {
    for content in [json!([]), json!([{"type": "text", "text": " \n"}])] {
        for state in [Value::Null, with(|s| s["response"]["kind"] = json!("other"))] {
            let routed = routed(json!([{"role": "assistant", "content": content,
                "source": {"kind": "model", "provider": "q", "model": "m", "replayState": state}}]));
            assert!(routed.degraded.is_empty() && routed.neutral.is_empty(), "{content}");
        }
    }
}

#[test]
fn the_adapter_is_asked_once_for_all_that_pass_and_its_verdicts_land_on_their_messages() {
    let adapter = Arc::new(FakeAdapter {
        check: Box::new(|_| {
            Ok(vec![
                Some(InvalidReplay::Invalid("bad signature".into())),
                None,
                Some(InvalidReplay::OtherOrigin("other api".into())),
            ])
        }),
        ..FakeAdapter::default()
    });
    let values = json!([
        answer("p", "m", sound()),
        {"role": "user", "content": []},
        answer("p", "m", sound()),
        answer("p", "m", Value::Null),
        answer("p", "m", sound()),
        answer("q", "m", with(|s| s["response"]["provider"] = json!("q"))),
    ]);
    let routed = route(&fake_route(Arc::clone(&adapter)), &target(), &history(values), Replay::Routed);
    use Fate::{Foreign, Native};
    assert_eq!(routed.fates, [Foreign, Foreign, Native, Foreign, Foreign, Foreign]);
    let degraded: Vec<_> = routed.degraded.iter().map(|d| (d.message, d.reason.as_str())).collect();
    assert_eq!(degraded[0], (0, "bad signature"));
    assert_eq!(degraded[1].0, 3);
    assert_eq!(degraded.len(), 2);
    let neutral: Vec<_> = routed.neutral.iter().map(|n| (n.message, n.reason.as_str())).collect();
    assert_eq!(neutral, [(4, "other api"), (5, "it was made by q/m")]);
    let checked = adapter.checked.lock().unwrap();
    assert_eq!(checked.len(), 1);
    assert_eq!(checked[0].messages.len(), 3);
    assert_eq!(checked[0].target, target());
}

#[test]
fn an_adapter_that_is_not_needed_is_not_asked() {
    let adapter = Arc::<FakeAdapter>::default();
    let values = json!([answer("p", "m", Value::Null)]);
    let routed = route(&fake_route(Arc::clone(&adapter)), &target(), &history(values), Replay::Routed);
    assert_eq!(routed.fates, [Fate::Foreign]);
    assert!(adapter.checked.lock().unwrap().is_empty());
}

#[test]
fn an_adapter_that_fails_to_answer_costs_fidelity_only() {
    type Answer = fn() -> Result<Vec<Option<InvalidReplay>>, Failure>;
    let answers: [(Answer, &str); 3] = [
        (|| Err(panicked()), "failed to check it: PLUGIN_PANIC"),
        (|| Ok(vec![None]), "answered 1 verdicts for 2 messages"),
        (|| Ok(vec![None; 3]), "answered 3 verdicts for 2 messages"),
    ];
    for (answer_of, reason) in answers {
        let adapter = FakeAdapter { check: Box::new(move |_| answer_of()), ..FakeAdapter::default() };
        let values = json!([answer("p", "m", sound()), answer("p", "m", sound())]);
        let routed = route(&fake_route(Arc::new(adapter)), &target(), &history(values), Replay::Routed);
        assert_eq!(routed.fates, [Fate::Foreign, Fate::Foreign]);
        assert_eq!(routed.degraded.len(), 2);
        assert!(routed.degraded.iter().all(|d| d.reason.contains(reason)), "{:?}", routed.degraded);
    }
}

#[test]
fn on_the_last_rung_nothing_is_native_and_the_adapter_is_not_asked() {
    let adapter = Arc::<FakeAdapter>::default();
    let values = json!([answer("p", "m", sound()), answer("p", "m", Value::Null)]);
    let routed = route(&fake_route(Arc::clone(&adapter)), &target(), &history(values), Replay::AllForeign);
    assert_eq!(routed.fates, [Fate::Foreign, Fate::Foreign]);
    assert_eq!(routed.neutral.len(), 1);
    assert!(routed.neutral[0].reason.contains("after the provider refused it"));
    assert_eq!(routed.degraded.len(), 1);
    assert!(adapter.checked.lock().unwrap().is_empty());
}

#[test]
fn giving_up_native_degrades_the_native_messages_in_order() {
    let entries = history(json!([
        answer("p", "m", sound()),
        answer("p", "m", Value::Null),
        answer("q", "m", with(|s| s["response"]["provider"] = json!("q"))),
        answer("p", "m", sound()),
    ]));
    let mut routed = route(&fake_route(Arc::default()), &target(), &entries, Replay::Routed);
    routed.give_up_native(&entries, "because");
    assert_eq!(routed.fates, [Fate::Foreign; 4]);
    let degraded: Vec<_> = routed.degraded.iter().map(|d| (d.message, d.reason == "because")).collect();
    assert_eq!(degraded, [(0, true), (1, false), (3, true)]);
}

#[test]
fn the_hook_hears_of_each_degraded_message_once_and_its_failure_changes_nothing() {
    let adapter =
        Arc::new(FakeAdapter { hook: Err(Failure::new(FailureCode::PluginPanic, "boom")), ..FakeAdapter::default() });
    let route = fake_route(Arc::clone(&adapter));
    let entries = history(json!([answer("p", "m", Value::Null), answer("p", "m", json!(1))]));
    let routed = super::route(&route, &target(), &entries, Replay::Routed);
    assert!(adapter.told.lock().unwrap().is_empty());
    announce(&route, &target(), &routed.degraded);
    let told = adapter.told.lock().unwrap();
    assert_eq!(told.iter().map(|event| event.message).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(told[0].message_id, "a");
    assert_eq!(told[0].code, "INVALID_REPLAY_STATE");
    assert_eq!(told[0].reason, routed.degraded[0].reason);
    assert_eq!(told[0].target, target());
}

/// A message with any kind of state, and the mark of the log.
fn any_entry() -> impl Strategy<Value = HistoryMessage> {
    let states = vec![
        json!({"kind": "fake", "version": 1}),
        Value::Null,
        json!(7),
        with(|s| s["response"]["kind"] = json!("other")),
        with(|s| s["response"]["stopReason"] = json!("error")),
        with(|s| s["blocks"] = json!([])),
        with(|s| {
            s["response"]["provider"] = json!("q");
        }),
        sound(),
        sound(),
    ];
    let makers = prop::sample::select(vec!["p", "q"]);
    (makers, prop::option::of(prop::sample::select(states)), 0u8..6, any::<bool>()).prop_map(
        |(maker, state, form, interrupted)| {
            let mut message = answer(maker, "m", state.clone().unwrap_or_default());
            if state.is_none() {
                message["source"].as_object_mut().unwrap().remove("replayState");
            }
            match form {
                0 => message["role"] = json!("user"),
                1 => message["source"] = json!({"kind": "plugin", "plugin": "x", "replayState": state}),
                _ => {}
            }
            HistoryMessage { interrupted, ..history(json!([message])).remove(0) }
        },
    )
}

/// Each assistant message has one outcome, told once, at its own position; nothing is told of other messages.
fn check_outcomes(routed: &Routed, history: &[HistoryMessage]) -> Result<(), TestCaseError> {
    prop_assert_eq!(routed.fates.len(), history.len());
    prop_assert!(routed.degraded.is_sorted_by(|a, b| a.message < b.message));
    prop_assert!(routed.neutral.is_sorted_by(|a, b| a.message < b.message));
    for (position, (entry, fate)) in history.iter().zip(&routed.fates).enumerate() {
        let told = routed.degraded.iter().filter(|d| d.message == position).count()
            + routed.neutral.iter().filter(|n| n.message == position).count();
        let foreign_answer = entry.message.role == Role::Assistant && *fate == Fate::Foreign;
        prop_assert_eq!(told, usize::from(foreign_answer), "message {}: {:?}", position, fate);
    }
    Ok(())
}

proptest! {
    /// Any states, any verdicts of the adapter.
    #[test]
    fn every_answer_has_one_outcome(
        history in proptest::collection::vec(any_entry(), 0..8),
        verdicts in proptest::collection::vec(0u8..3, 8),
        answers_all: bool,
        replay in prop::sample::select(vec![Replay::Routed, Replay::AllForeign]),
    ) {
        let check = move |call: &CheckHistory| {
            let verdict = |verdict: &u8| match verdict {
                0 => None,
                1 => Some(InvalidReplay::Invalid("invalid".to_owned())),
                _ => Some(InvalidReplay::OtherOrigin("other".to_owned())),
            };
            let missing = usize::from(!answers_all);
            Ok(verdicts.iter().take(call.messages.len() - missing).map(verdict).collect())
        };
        let adapter = Arc::new(FakeAdapter { check: Box::new(check), ..FakeAdapter::default() });
        let mut routed = route(&fake_route(Arc::clone(&adapter)), &target(), &history, replay);
        check_outcomes(&routed, &history)?;
        prop_assert!(adapter.checked.lock().unwrap().len() <= 1);
        prop_assert!(replay == Replay::Routed || !routed.fates.contains(&Fate::Native));
        routed.give_up_native(&history, "given up");
        check_outcomes(&routed, &history)?;
        prop_assert!(!routed.fates.contains(&Fate::Native));
    }
}
