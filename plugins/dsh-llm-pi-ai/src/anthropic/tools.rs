//! The tools of a request.

use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::vocab::Tool;

use super::dialect::Dialect;

/// Keywords that the provider refuses at the root of a schema.
const COMBINATORS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// The list of tools.
pub(super) fn tools(offered: &[&Tool], dialect: &Dialect) -> Raw {
    let last = offered.len().saturating_sub(1);
    let tool = |(position, tool): (usize, &&Tool)| {
        let mut out = Object::new();
        out.set("name", raw(&tool.name));
        if !tool.description.trim().is_empty() {
            out.set("description", raw(&tool.description));
        }
        if dialect.eager_input_streaming {
            out.set("eager_input_streaming", raw(&true));
        }
        out.set("input_schema", input_schema(&tool.parameters));
        if let Some(cache) = dialect.cache_control.filter(|_| dialect.cache_control_on_tools && position == last) {
            out.set("cache_control", raw(&cache.json()));
        }
        raw(&out)
    };
    raw(&offered.iter().enumerate().map(tool).collect::<Vec<_>>())
}

/// A schema as the provider takes it: an object whose `type` is `object`, without alternatives at its root. Their
/// properties are offered together; which of them go together the host still checks when the tool is called.
fn input_schema(parameters: &Raw) -> Raw {
    let Ok(mut schema) = json::from_str::<Object>(parameters.get()) else {
        return raw(&serde_json::json!({"type": "object", "properties": {}}));
    };
    let is_object = schema.get_str("type").as_deref() == Some("object");
    if is_object && COMBINATORS.iter().all(|keyword| schema.get(keyword).is_none()) {
        return parameters.clone();
    }
    schema.set("type", raw("object"));
    let mut properties: Object = schema.take_as("properties").unwrap_or_default();
    let mut required: Vec<String> = schema.take_as("required").unwrap_or_default();
    for keyword in COMBINATORS {
        for mut branch in schema.take_as::<Vec<Object>>(keyword).unwrap_or_default() {
            let more: Object = branch.take_as("properties").unwrap_or_default();
            for (name, property) in more.iter() {
                if properties.get(name).is_none() {
                    properties.set(name, property.to_owned());
                }
            }
            if keyword == "allOf" {
                required.extend(branch.take_as::<Vec<String>>("required").unwrap_or_default());
            }
        }
    }
    schema.set("properties", raw(&properties));
    if !required.is_empty() {
        schema.set("required", raw(&required));
    }
    raw(&schema)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn every_schema_becomes_one_that_the_provider_takes() {
        let odd = json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/P"}}, "$defs": {"P": {"type": "null"}},
            "additionalProperties": false});
        let p = json!({"type": "string"});
        for (schema, expected) in [
            (odd.clone(), odd),
            (json!(null), json!({"type": "object", "properties": {}})),
            (json!(true), json!({"type": "object", "properties": {}})),
            (json!({}), json!({"type": "object", "properties": {}})),
            (
                json!({"properties": {"p": p}, "required": ["p"]}),
                json!({"type": "object", "properties": {"p": p}, "required": ["p"]}),
            ),
            (
                json!({"type": ["object", "null"], "title": "t"}),
                json!({"type": "object", "properties": {}, "title": "t"}),
            ),
            (
                json!({"anyOf": [{"properties": {"p": p}, "required": ["p"]}, {"properties": {"q": p}}, {"$ref": "#/x"}]}),
                json!({"type": "object", "properties": {"p": p, "q": p}}),
            ),
            (
                json!({"type": "object", "properties": {"p": {}}, "required": ["p"],
                    "allOf": [{"properties": {"p": p, "q": p}, "required": ["q"]}], "oneOf": 7}),
                json!({"type": "object", "properties": {"p": {}, "q": p}, "required": ["p", "q"]}),
            ),
        ] {
            let made: Value = serde_json::from_str(input_schema(&raw(&schema)).get()).unwrap();
            assert_eq!(made, expected, "{schema}");
        }
    }

    #[test]
    fn a_sound_schema_goes_out_as_it_was_written() {
        let text = r#"{"type":"object","properties":{"n":{"maximum":12345678901234567890123,"b":1.50}}}"#;
        assert_eq!(input_schema(&serde_json::from_str(text).unwrap()).get(), text);
    }
}
