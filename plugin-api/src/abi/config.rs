//! A configuration from JSON, with what is wrong in it as data.
//!
//! `serde_json` tells what is wrong in English. A host that shows it beside the manifest needs the words themselves:
//! which key, what stands there, what could. This reads a [`Value`] as `serde_json` does, and keeps them.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapDeserializer, SeqDeserializer, StringDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

use super::calls::{ConfigProblem, ConfigRefusal};

/// Reads a configuration.
///
/// # Errors
///
/// The first thing that is wrong, with its path.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> Result<T, ConfigRefusal> {
    serde_path_to_error::deserialize(Node(value)).map_err(|error| {
        let path = error.path().to_string();
        let Refused { message, problem } = error.into_inner();
        // `.` is the whole.
        ConfigRefusal { path: if path == "." { String::new() } else { path }, message, problem }
    })
}

/// What is wrong, in words and as data.
#[derive(Debug)]
struct Refused {
    message: String,
    problem: ConfigProblem,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { message: message.to_string(), problem: ConfigProblem::Other }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = in_words(&expected.to_string());
        let message = format!("{expected} belongs here, not {found}");
        Self { message, problem: ConfigProblem::WrongType { found: type_of(found).to_owned(), expected } }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = in_words(&expected.to_string());
        let message = format!("{expected} belongs here, not {found}");
        Self { message, problem: ConfigProblem::BadValue { found: value_of(found), expected } }
    }

    fn unknown_variant(word: &str, expected: &'static [&'static str]) -> Self {
        let message = format!("`{word}` is not possible here; possible: {}", listed(expected));
        Self { message, problem: ConfigProblem::UnknownWord { word: word.to_owned(), expected: owned(expected) } }
    }

    fn unknown_field(key: &str, expected: &'static [&'static str]) -> Self {
        let message = format!("the key `{key}` is not known here; keys there: {}", listed(expected));
        Self { message, problem: ConfigProblem::UnknownKey { key: key.to_owned(), expected: owned(expected) } }
    }

    fn missing_field(key: &'static str) -> Self {
        let message = format!("`{key}` is missing");
        Self { message, problem: ConfigProblem::Missing { key: key.to_owned(), remedy: None } }
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Words in backquotes, for hosts that show the message alone.
fn listed(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// What a type of Rust is called in a manifest; what a visitor says in its own words stays.
fn in_words(expected: &str) -> String {
    let words = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "an integer of 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "an integer",
        "f32" | "f64" => "a number",
        "a boolean" => "`true` or `false`",
        "a sequence" => "an array",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    words.to_owned()
}

fn type_of(found: Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "integer",
        Unexpected::Float(_) => "float",
        Unexpected::Str(_) | Unexpected::Char(_) => "string",
        Unexpected::Seq => "array",
        Unexpected::Map => "table",
        _ => "other",
    }
}

fn value_of(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(truth) => truth.to_string(),
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Float(number) => number.to_string(),
        Unexpected::Str(text) => text.to_owned(),
        other => other.to_string(),
    }
}

/// A value that is read with [`Refused`] as its error.
struct Node(Value);

impl IntoDeserializer<'_, Refused> for Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Node {
    type Error = Refused;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(truth) => visitor.visit_bool(truth),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (None, Some(number)) => visitor.visit_i64(number),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_string(text),
            Value::Array(values) => {
                let mut values = SeqDeserializer::new(values.into_iter().map(Node));
                let read = visitor.visit_seq(&mut values)?;
                values.end().map(|()| read)
            }
            Value::Object(members) => {
                let mut members = MapDeserializer::new(members.into_iter().map(|(key, value)| (key, Node(value))));
                let read = visitor.visit_map(&mut members)?;
                members.end().map(|()| read)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Refused> {
        // A value that is kept as it was written is between `serde_json` and itself.
        if name.starts_with("$serde_json::") {
            return self.0.deserialize_newtype_struct(name, visitor).map_err(de::Error::custom);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        match self.0 {
            Value::String(word) => visitor.visit_enum(StringDeserializer::new(word)),
            // A variant with content, `{ name = … }`: rare, and told in the words of `serde_json`.
            Value::Object(members) => {
                Value::Object(members).deserialize_enum(name, variants, visitor).map_err(de::Error::custom)
            }
            // Whatever a word is not is told by whoever reads one.
            other => Node(other).deserialize_any(Word(PhantomData)),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// Takes nothing, and says that a string belongs there.
struct Word<T>(PhantomData<T>);

impl<T> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {
        #[serde(default)]
        routes: BTreeMap<String, Route>,
        raw: Option<Box<RawValue>>,
        tuple: Option<(u8, String)>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Route {
        url: String,
        wire: Option<Wire>,
        size: Option<u64>,
        ratio: Option<f64>,
        on: Option<bool>,
        list: Option<Vec<Wire>>,
        either: Option<Either>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Wire {
        Plain,
        Rich(u8),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u64),
        Text(String),
    }

    #[test]
    fn every_form_of_value_is_read() {
        let config: Config = read(json!({
            "routes": { "r": {
                "url": "u", "wire": { "rich": 7 }, "size": u64::MAX, "ratio": 3, "on": true,
                "list": ["plain", { "rich": 1 }], "either": "text",
            } },
            "raw": { "b": [1.50, null], "a": 1 },
            "tuple": [1, "x"],
        }))
        .unwrap();
        let route = &config.routes["r"];
        assert_eq!(
            (route.url.as_str(), route.size, route.ratio, route.on),
            ("u", Some(u64::MAX), Some(3.0), Some(true))
        );
        assert_eq!((&route.wire, &route.either), (&Some(Wire::Rich(7)), &Some(Either::Text("text".into()))));
        assert_eq!(route.list, Some(vec![Wire::Plain, Wire::Rich(1)]));
        assert_eq!(config.raw.unwrap().get(), r#"{"b":[1.5,null],"a":1}"#);
        assert_eq!(config.tuple, Some((1, "x".into())));
        let nothing: Config = read(json!({ "raw": null })).unwrap();
        assert!(nothing.routes.is_empty() && nothing.raw.is_none());
    }

    #[test]
    fn what_is_wrong_is_told_as_data_with_its_path() {
        let known = owned(&["url", "wire", "size", "ratio", "on", "list", "either"]);
        let wrong =
            |found: &str, expected: &str| ConfigProblem::WrongType { found: found.into(), expected: expected.into() };
        let variants = || owned(&["plain", "rich"]);
        for (route, path, problem) in [
            (json!({}), "", ConfigProblem::Missing { key: "url".into(), remedy: None }),
            (json!({ "url": "u", "uri": 1 }), ".uri", ConfigProblem::UnknownKey { key: "uri".into(), expected: known }),
            (json!({ "url": 5 }), ".url", wrong("integer", "a string")),
            (
                json!({ "url": "u", "wire": "flat" }),
                ".wire",
                ConfigProblem::UnknownWord { word: "flat".into(), expected: variants() },
            ),
            (
                json!({ "url": "u", "list": ["plain", "x"] }),
                ".list[1]",
                ConfigProblem::UnknownWord { word: "x".into(), expected: variants() },
            ),
            (json!({ "url": "u", "wire": 5 }), ".wire", wrong("integer", "a string")),
            (json!({ "url": "u", "wire": ["plain"] }), ".wire", wrong("array", "a string")),
            (
                json!({ "url": "u", "size": -6 }),
                ".size",
                ConfigProblem::BadValue { found: "-6".into(), expected: "an integer of 0 or more".into() },
            ),
            (json!({ "url": "u", "size": 1.5 }), ".size", wrong("float", "an integer of 0 or more")),
            (json!({ "url": "u", "on": "yes" }), ".on", wrong("string", "`true` or `false`")),
            (json!({ "url": "u", "list": {} }), ".list", wrong("table", "an array")),
            (json!({ "url": "u", "either": [] }), ".either", ConfigProblem::Other),
        ] {
            let refusal = read::<Config>(json!({ "routes": { "r": route } })).unwrap_err();
            assert_eq!(
                (refusal.path.as_str(), &refusal.problem),
                (format!("routes.r{path}").as_str(), &problem),
                "{route}"
            );
            assert!(!refusal.message.is_empty());
        }
        let too_long = read::<Config>(json!({ "routes": { "r": { "url": "u", "wire": u64::MAX } } })).unwrap_err();
        assert!(too_long.message.contains(&u64::MAX.to_string()), "{}", too_long.message);
        assert_eq!(read::<Config>(json!(5)).unwrap_err().path, "");
    }
}
