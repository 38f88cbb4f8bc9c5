//! TOML with a place at every key and value, and how an overlay merges over it.

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::place::{Place, Source};
use super::problem::{Code, Finding};
use super::words;

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub value: Value,
    pub place: Place,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    String(String),
    Integer(i128),
    Float(f64),
    Boolean(bool),
    Datetime(String),
    Array(Vec<Node>),
    Table(Table),
}

/// Entries in the order of the file.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    pub entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub key: String,
    pub key_place: Place,
    pub node: Node,
}

impl Value {
    /// The type with its article, for messages.
    pub(super) const fn type_name(&self) -> &'static str {
        match self {
            Self::String(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Boolean(_) => "a boolean",
            Self::Datetime(_) => "a date",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
        }
    }

    pub(super) const fn as_table(&self) -> Option<&Table> {
        match self {
            Self::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(super) const fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text.as_str()),
            _ => None,
        }
    }
}

impl Table {
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// The tables of `[[adapter]]`, in order, with the places of their headers.
    pub(super) fn adapters(&self) -> impl Iterator<Item = (&Table, Place)> {
        let nodes = match self.get("adapter").map(|node| &node.value) {
            Some(Value::Array(nodes)) => nodes.as_slice(),
            _ => &[],
        };
        nodes.iter().filter_map(|node| node.value.as_table().map(|table| (table, node.place)))
    }

    /// The `[[adapter]]` with an id.
    pub(super) fn adapter(&self, id: &str) -> Option<(&Table, Place)> {
        self.adapters().find(|(table, _)| id_of(table) == Some(id))
    }
}

fn id_of(table: &Table) -> Option<&str> {
    table.get("id").and_then(|node| node.value.as_str())
}

/// Parses a source as far as it can be parsed, and masks in it what must not be shown.
pub(super) fn parse(source: &mut Source, file: usize) -> (Table, Vec<Finding>) {
    let text = std::sync::Arc::clone(&source.text);
    let (document, errors) = DeTable::parse_recoverable(&text);
    let mut findings: Vec<Finding> = errors.iter().map(|error| syntax(error, file, &text)).collect();
    let root = table(document.into_inner(), file, &mut findings);
    let mut secrets = secrets(&root);
    if !findings.is_empty() {
        secrets.extend(secret_lines(&text, file));
    }
    source.mask(&secrets);
    (root, findings)
}

fn syntax(error: &toml::de::Error, file: usize, text: &str) -> Finding {
    let span = error.span().unwrap_or(text.len()..text.len());
    let place = Place::new(file, span.clone());
    let message = error.message();
    if message == "duplicate key" {
        let key = text.get(span).unwrap_or_default();
        return Finding::new(
            Code::DuplicateKey,
            place,
            format!("duplicate key `{key}`"),
            "stands here for the second time",
        )
        .help("a table has each key, and each [header], once: merge the two or delete one");
    }
    let found = text.get(span).unwrap_or_default();
    let (what, help) = match message.split_once(", expected ") {
        Some(_) if found.starts_with(['“', '”', '‘', '’', '„']) => {
            ("quotes of another kind", "TOML quotes are the plain \" and '".to_owned())
        }
        Some(("string values must be quoted", _)) if found.is_empty() => {
            ("a key without a value", "write a value behind the `=`".to_owned())
        }
        Some((what @ "string values must be quoted", _)) => (what, "write the value in double quotes".to_owned()),
        Some((what, "nothing")) => (what, "remove it".to_owned()),
        Some((what, expected)) => (what, format!("expected here: {expected}")),
        None => (message, "see https://toml.io for the format".to_owned()),
    };
    Finding::new(Code::Syntax, place, format!("not valid TOML: {what}"), "here").help(help)
}

fn table(source: DeTable<'_>, file: usize, findings: &mut Vec<Finding>) -> Table {
    let mut entries: Vec<Entry> = source
        .into_iter()
        .map(|(key, value)| Entry {
            key_place: Place::new(file, key.span()),
            key: key.into_inner().into_owned(),
            node: node(value, file, findings),
        })
        .collect();
    entries.sort_by_key(|entry| entry.key_place);
    Table { entries }
}

fn node(value: Spanned<DeValue<'_>>, file: usize, findings: &mut Vec<Finding>) -> Node {
    let place = Place::new(file, value.span());
    let value = match value.into_inner() {
        DeValue::String(text) => Value::String(text.into_owned()),
        DeValue::Integer(number) => {
            Value::Integer(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or_else(|_| {
                findings.push(too_large(place));
                0
            }))
        }
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            Ok(float) if float.is_finite() => Value::Float(float),
            Ok(_) | Err(_) => {
                findings.push(
                    Finding::new(Code::BadValue, place, "not a finite number", "cannot be used")
                        .help("write a plain number such as 0.7"),
                );
                Value::Float(0.0)
            }
        },
        DeValue::Boolean(truth) => Value::Boolean(truth),
        DeValue::Datetime(date) => Value::Datetime(date.to_string()),
        DeValue::Array(nodes) => Value::Array(nodes.into_iter().map(|inner| node(inner, file, findings)).collect()),
        DeValue::Table(inner) => Value::Table(table(inner, file, findings)),
    };
    Node { value, place }
}

fn too_large(place: Place) -> Finding {
    Finding::new(Code::BadValue, place, "an integer that is too large", "too large")
        .help("integers go from -9223372036854775808 to 18446744073709551615")
}

/// Values below `[adapter.config]` that may be secrets: credentials that are no reference, and keys by their name.
/// Reports show source lines, and a secret that was written there by mistake must not be among them.
fn secrets(root: &Table) -> Vec<Place> {
    fn walk(table: &Table, found: &mut Vec<Place>) {
        for entry in &table.entries {
            search(&entry.key, &entry.node, found);
        }
    }
    fn search(key: &str, node: &Node, found: &mut Vec<Place>) {
        match &node.value {
            Value::String(text) if words::may_hold_a_secret(key) && words::reference(text).is_none() => {
                found.push(node.place);
            }
            Value::Table(inner) => walk(inner, found),
            Value::Array(nodes) => nodes.iter().for_each(|inner| search(key, inner, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(root, &mut found);
    found
}

/// The same by lines, for text that is not TOML yet: an unquoted secret is in no tree.
fn secret_lines(text: &str, file: usize) -> Vec<Place> {
    let mut found = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if let Some((key, value)) = line.split_once('=')
            && words::may_hold_a_secret(key.trim())
            && words::reference(value.trim().trim_matches(['"', '\'']).trim()).is_none()
        {
            let from = start + key.len();
            found.push(Place::new(file, from..start + line.len() + 1));
        }
        start += line.len();
    }
    found
}

/// Merges an overlay: tables deep, `[[adapter]]` by `id`, everything else replaced.
pub(super) fn merge(base: &mut Table, overlay: Table) {
    merge_tables(base, overlay, true);
}

fn merge_tables(base: &mut Table, overlay: Table, top: bool) {
    for entry in overlay.entries {
        let Some(existing) = base.entries.iter_mut().find(|existing| existing.key == entry.key) else {
            base.entries.push(entry);
            continue;
        };
        let Entry { key, key_place, node } = entry;
        match (&mut existing.node.value, node.value) {
            (Value::Table(under), Value::Table(over)) => merge_tables(under, over, false),
            (Value::Array(under), Value::Array(over)) if top && key == "adapter" => merge_adapters(under, over),
            (_, value) => {
                existing.key_place = key_place;
                existing.node = Node { value, place: node.place };
            }
        }
    }
}

/// An id that the overlay itself names twice is appended, so that validation finds the duplicate.
fn merge_adapters(under: &mut Vec<Node>, over: Vec<Node>) {
    let mut merged: Vec<String> = Vec::new();
    for node in over {
        let id = node.value.as_table().and_then(id_of).map(str::to_owned);
        let first = id.filter(|id| !merged.contains(id));
        let target = first.as_deref().and_then(|id| {
            under.iter_mut().find_map(|node| match &mut node.value {
                Value::Table(table) if id_of(table) == Some(id) => Some(table),
                _ => None,
            })
        });
        match (target, node) {
            (Some(table), Node { value: Value::Table(over), .. }) => merge_tables(table, over, false),
            (_, node) => under.push(node),
        }
        merged.extend(first);
    }
}

/// A value as JSON; dates become strings. What JSON cannot hold is reported.
pub(super) fn to_json(node: &Node, findings: &mut Vec<Finding>) -> Json {
    match &node.value {
        Value::String(text) | Value::Datetime(text) => Json::from(text.as_str()),
        Value::Integer(number) => {
            if let Ok(number) = i64::try_from(*number) {
                Json::from(number)
            } else if let Ok(number) = u64::try_from(*number) {
                Json::from(number)
            } else {
                findings.push(too_large(node.place));
                Json::Null
            }
        }
        Value::Float(number) => Json::from(*number),
        Value::Boolean(truth) => Json::from(*truth),
        Value::Array(nodes) => Json::Array(nodes.iter().map(|inner| to_json(inner, findings)).collect()),
        Value::Table(table) => Json::Object(
            table.entries.iter().map(|entry| (entry.key.clone(), to_json(&entry.node, findings))).collect(),
        ),
    }
}
