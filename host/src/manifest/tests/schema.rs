use super::super::{json_schema, read};

#[test]
fn the_schema_has_the_keys_that_are_read() {
    let schema = json_schema();
    let schema = schema.as_value();
    let keys = |table: &serde_json::Value| -> Vec<String> {
        assert_eq!(table["additionalProperties"], false);
        let mut keys: Vec<String> = table["properties"].as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    let sorted = |known: &[&str]| -> Vec<String> {
        let mut known: Vec<String> = known.iter().map(|key| (*key).to_owned()).collect();
        known.sort();
        known
    };
    assert_eq!(keys(schema), sorted(read::ROOT));
    let tables = [
        ("Sessions", read::SESSIONS),
        ("Adapter", read::ADAPTER),
        ("Agent", read::AGENT),
        ("Transport", read::TRANSPORT),
    ];
    for (name, known) in tables {
        assert_eq!(keys(&schema["$defs"][name]), sorted(known), "{name}");
    }
    assert_eq!(schema["required"], serde_json::json!(["version"]));
}

#[test]
fn the_schema_beside_the_default_manifest_is_this_one() {
    let shipped: serde_json::Value = serde_json::from_str(include_str!("../../../../loader.schema.json")).unwrap();
    assert_eq!(&shipped, json_schema().as_value(), "write it again with `dsh manifest schema`");
}

#[test]
fn every_key_is_described_in_the_documentation() {
    let page = include_str!("../../../../docs/manifest.md");
    let tables = [read::ROOT, read::SESSIONS, read::ADAPTER, read::AGENT, read::TRANSPORT];
    for key in tables.into_iter().flatten() {
        let described = [format!("\n{key} = "), format!("[{key}]"), format!("[[{key}]]"), format!("[{key}.")];
        let described = described.iter().any(|form| page.contains(form)) || page.contains(&format!(".{key}]"));
        assert!(described, "docs/manifest.md says nothing of `{key}`");
    }
}
