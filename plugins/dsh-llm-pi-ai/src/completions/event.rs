//! One event of the wire, read: the members that count, the rest skipped.
//!
//! What servers send has nearly always the expected types, and is then read in one pass. Where a member has another
//! type that pass fails, and each object is read by itself with [`members`], by the rules of `lenient`: a member of
//! another type is absent. Both ways give the same for what both can read.

use std::fmt;

use dsh_plugin_api::kit::lenient::{elements, members, members_of, object};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::replay::REASONING_FIELDS;

object! {
    /// An event, or a whole answer.
    pub(super) struct Event<'a> {
        error: &'a RawValue,
        id: &'a RawValue,
        model: &'a RawValue,
        usage: &'a RawValue,
        /// Holds nothing where there is no object in it.
        choices: First<Choice<'a>>,
    }
}

object! {
    /// One of the answers that were asked for.
    pub(super) struct Choice<'a> {
        usage: &'a RawValue,
        error: &'a RawValue,
        delta: Delta<'a>,
        /// Rare, and read by [`Delta::of_message`].
        message: &'a RawValue,
        finish_reason: &'a RawValue,
    }
}

object! {
    /// A piece of an answer, or the whole message.
    pub(super) struct Delta<'a> {
        reasoning_content: &'a RawValue,
        reasoning: &'a RawValue,
        reasoning_text: &'a RawValue,
        reasoning_details: &'a RawValue,
        content: &'a RawValue,
        refusal: &'a RawValue,
        tool_calls: Vec<Call<'a>>,
        function_call: Function<'a>,
    }
}

object! {
    /// A piece of a tool call.
    pub(super) struct Call<'a> {
        index: &'a RawValue,
        id: &'a RawValue,
        function: Function<'a>,
    }
}

object! {
    /// Name and arguments of a call.
    pub(super) struct Function<'a> {
        name: &'a RawValue,
        arguments: &'a RawValue,
    }
}

impl<'a> Event<'a> {
    /// Reads an event. `Ok(None)` for JSON that is no object.
    ///
    /// # Errors
    ///
    /// The text is no JSON.
    pub fn read(data: &'a str) -> serde_json::Result<Option<Self>> {
        serde_json::from_str(data).map_or_else(|_| Self::read_leniently(data), |event| Ok(Some(event)))
    }

    fn read_leniently(data: &'a str) -> serde_json::Result<Option<Self>> {
        let found = members(data, ["error", "id", "model", "usage", "choices"])?;
        Ok(found.map(|[error, id, model, usage, choices]| {
            let first = |choices| First(elements(Some(choices)).into_iter().next().and_then(Choice::read));
            Self { error, id, model, usage, choices: choices.map(first) }
        }))
    }
}

impl<'a> Choice<'a> {
    fn read(value: &'a RawValue) -> Option<Self> {
        let [usage, error, delta, message, finish_reason] =
            members_of(value, ["usage", "error", "delta", "message", "finish_reason"])?;
        // One that is no object says nothing, but it is there.
        let read = |delta| Delta::read(delta).unwrap_or_default();
        Some(Self { usage, error, delta: delta.map(read), message, finish_reason })
    }
}

impl<'a> Delta<'a> {
    fn read(value: &'a RawValue) -> Option<Self> {
        let [first, second, third] = REASONING_FIELDS;
        let names = [first, second, third, "reasoning_details", "content", "refusal", "tool_calls", "function_call"];
        let [reasoning_content, reasoning, reasoning_text, reasoning_details, content, refusal, calls, legacy] =
            members_of(value, names)?;
        let tool_calls = calls.map(|calls| elements(Some(calls)).into_iter().filter_map(Call::read).collect());
        Some(Self {
            reasoning_content,
            reasoning,
            reasoning_text,
            reasoning_details,
            content,
            refusal,
            tool_calls,
            function_call: legacy.map(|legacy| Function::read(legacy).unwrap_or_default()),
        })
    }

    /// A whole message. One that is no object says nothing.
    pub fn of_message(message: &'a RawValue) -> Self {
        Self::read(message).unwrap_or_default()
    }

    /// The reasoning by field, in the order of [`REASONING_FIELDS`].
    pub fn reasoning(&self) -> [(&'static str, Option<&'a RawValue>); 3] {
        let [first, second, third] = REASONING_FIELDS;
        [(first, self.reasoning_content), (second, self.reasoning), (third, self.reasoning_text)]
    }
}

impl<'a> Call<'a> {
    fn read(value: &'a RawValue) -> Option<Self> {
        let [index, id, function] = members_of(value, ["index", "id", "function"])?;
        Some(Self { index, id, function: function.and_then(Function::read) })
    }
}

impl<'a> Function<'a> {
    fn read(value: &'a RawValue) -> Option<Self> {
        let [name, arguments] = members_of(value, ["name", "arguments"])?;
        Some(Self { name, arguments })
    }
}

/// The first element of an array; the others are skipped.
#[derive(Debug, Default)]
pub(super) struct First<T>(pub Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for First<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Elements<T> {
            type Value = First<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<First<T>, A::Error> {
                let first = First(sequence.next_element()?);
                while sequence.next_element::<IgnoredAny>()?.is_some() {}
                Ok(first)
            }
        }
        deserializer.deserialize_seq(Elements(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Any value for a member, often the expected one, or a form of it that is nearly that.
    fn value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            4 => "\"[a-c]{0,3}\"",
            1 => prop_oneof![Just("null"), Just("true"), Just("7"), Just("-1.5e999"), Just("[]"), Just("{}"), Just("\"\\ud83d\"")]
                .prop_map(str::to_owned),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let name = prop_oneof![
                12 => proptest::sample::select(&["choices", "delta", "message", "content", "tool_calls", "function", "name",
                    "arguments", "function_call", "index", "id", "reasoning", "reasoning_details", "usage", "error",
                    "finish_reason", "model", "refusal"][..]).prop_map(str::to_owned),
                1 => Just("\\ud83d".to_owned()),
                1 => Just("conten\\u0074".to_owned()),
            ];
            prop_oneof![
                3 => proptest::collection::vec((name, inner.clone()), 0..5).prop_map(|members| {
                    let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
                    format!("{{{}}}", members.join(","))
                }),
                1 => proptest::collection::vec(inner, 0..3).prop_map(|elements| format!("[{}]", elements.join(" ,"))),
            ]
        })
    }

    fn likely() -> impl Strategy<Value = String> {
        (value(), value(), value(), value()).prop_map(|(a, b, c, d)| {
            format!(
                r#"{{"id":{a},"choices":[{{"delta":{{"content":{b},"tool_calls":[{{"index":{c},"function":{{"name":"f","arguments":{d}}}}}]}}}}]}}"#
            )
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn one_pass_reads_what_the_lenient_way_reads(data in prop_oneof![value(), likely()], cut in any::<prop::sample::Index>()) {
            let cut = &data[..cut.index(data.len() + 1)];
            for data in [&*data, cut] {
                if let Ok(event) = serde_json::from_str::<Event>(data) {
                    let lenient = Event::read_leniently(data).unwrap();
                    prop_assert_eq!(format!("{:?}", Some(event)), format!("{lenient:?}"), "{}", data);
                }
                // Reading fails exactly for what is no JSON. A number that is too great for a float is JSON.
                let is_json = serde_json::from_str::<&RawValue>(data).is_ok();
                prop_assert_eq!(Event::read(data).is_ok(), is_json, "{}", data);
            }
        }
    }

    #[test]
    fn a_member_of_another_type_is_absent_and_takes_nothing_with_it() {
        for (data, expected) in [
            (r#"{"choices":[["a"]],"id":"x"}"#, "none"),
            (r#"{"choices":{"0":1},"id":"x"}"#, "none"),
            (r#"{"choices":[7,{"delta":{"content":"a"}}],"id":"x"}"#, "none"),
            (r#"{"choices":[{"delta":["a"]}],"id":"x"}"#, "null"),
            (r#"{"choices":[{"delta":{"tool_calls":{"index":0},"content":"a"}}],"id":"x"}"#, r#""a""#),
            (r#"{"choices":[{"delta":{"content":1},"delta":{"content":"a"}}],"id":"x"}"#, r#""a""#),
            (r#"{"choices":[{"delta":{"content":"a","\ud83d":1}}],"id":"x"}"#, r#""a""#),
        ] {
            let event = Event::read(data).unwrap().unwrap();
            assert_eq!(event.id.map(RawValue::get), Some(r#""x""#), "{data}");
            let choice = event.choices.unwrap().0;
            let content = choice.map(|choice| choice.delta.unwrap().content.map(|content| content.get().to_owned()));
            let shown = match content {
                None => "none".to_owned(),
                Some(content) => content.unwrap_or_else(|| Value::Null.to_string()),
            };
            assert_eq!(shown, expected, "{data}");
        }
    }
}
