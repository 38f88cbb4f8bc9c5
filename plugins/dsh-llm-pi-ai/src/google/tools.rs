//! The tools of a request.

use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::kit::lenient::is_object;
use dsh_plugin_api::vocab::Tool;
use serde_json::value::RawValue;

/// Keywords whose value is a schema, or a list of schemas.
const SCHEMAS: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];
/// Keywords whose value holds schemas by names that are no keywords.
const NAMED_SCHEMAS: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// The list of tools.
pub(super) fn tools(offered: &[&Tool]) -> Raw {
    let declaration = |tool: &&Tool| {
        let mut out = Object::new();
        out.set("name", raw(&tool.name));
        out.set("description", raw(&tool.description));
        // A function that takes nothing has no schema.
        if is_object(&tool.parameters) {
            out.set("parametersJsonSchema", schema(&tool.parameters));
        }
        raw(&out)
    };
    let declarations: Vec<_> = offered.iter().map(declaration).collect();
    let mut list = Object::new();
    list.set("functionDeclarations", raw(&declarations));
    raw(&[list])
}

/// A schema as the provider reads it: it passes over `const`, and heeds an `enum` of one value.
fn schema(written: &RawValue) -> Raw {
    if !written.get().contains("\"const\"") {
        return written.to_owned();
    }
    if let Ok(list) = json::from_str::<Vec<Raw>>(written.get()) {
        return raw(&list.iter().map(|one| schema(one)).collect::<Vec<_>>());
    }
    let Ok(keywords) = json::from_str::<Object>(written.get()) else { return written.to_owned() };
    let mut out = Object::new();
    for (keyword, value) in keywords.iter() {
        if keyword == "const" && is_scalar(value) && keywords.get("enum").is_none() {
            out.set("enum", raw(&[value]));
        } else if SCHEMAS.contains(&keyword) {
            out.set(keyword, schema(value));
        } else if NAMED_SCHEMAS.contains(&keyword) {
            out.set(keyword, named_schemas(value));
        } else {
            out.set(keyword, value.to_owned());
        }
    }
    raw(&out)
}

fn named_schemas(written: &RawValue) -> Raw {
    let Ok(named) = json::from_str::<Object>(written.get()) else { return written.to_owned() };
    let mut out = Object::new();
    for (name, value) in named.iter() {
        out.set(name, schema(value));
    }
    raw(&out)
}

/// True for a string or a number.
fn is_scalar(value: &RawValue) -> bool {
    value.get().starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_constant_is_an_enumeration_of_one_value() {
        for (written, expected) in [
            (json!({"const": "x"}), json!({"enum": ["x"]})),
            (json!({"const": -1.5}), json!({"enum": [-1.5]})),
            (json!({"const": "x", "enum": ["x", "y"]}), json!({"const": "x", "enum": ["x", "y"]})),
            (json!({"const": null}), json!({"const": null})),
            (json!({"const": {"a": 1}}), json!({"const": {"a": 1}})),
            (
                json!({"properties": {"const": {"const": 1}, "k": {"anyOf": [{"const": 2}, {"type": "null"}]}}}),
                json!({"properties": {"const": {"enum": [1]}, "k": {"anyOf": [{"enum": [2]}, {"type": "null"}]}}}),
            ),
            (
                json!({"$defs": {"D": {"items": {"const": 3}}}, "properties": {"k": {"not": {"const": 4}}}}),
                json!({"$defs": {"D": {"items": {"enum": [3]}}}, "properties": {"k": {"not": {"enum": [4]}}}}),
            ),
            // Data is no schema.
            (
                json!({"default": {"const": "x"}, "enum": [{"const": "x"}]}),
                json!({"default": {"const": "x"}, "enum": [{"const": "x"}]}),
            ),
            (
                json!({"properties": [{"const": 1}], "items": true}),
                json!({"properties": [{"const": 1}], "items": true}),
            ),
        ] {
            let made: Value = serde_json::from_str(schema(&raw(&written)).get()).unwrap();
            assert_eq!(made, expected, "{written}");
        }
    }

    #[test]
    fn what_is_no_constant_goes_out_as_it_was_written() {
        for (written, expected) in [
            (r#"{"maximum":12345678901234567890123,"b":1.50}"#, r#"{"maximum":12345678901234567890123,"b":1.50}"#),
            (
                r#"{"maximum":12345678901234567890123,"const":1.50}"#,
                r#"{"maximum":12345678901234567890123,"enum":[1.50]}"#,
            ),
        ] {
            assert_eq!(schema(&serde_json::from_str::<Raw>(written).unwrap()).get(), expected);
        }
    }
}
