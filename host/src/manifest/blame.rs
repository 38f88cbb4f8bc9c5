//! Problems that show only when a composition is loaded, put at their place in the manifest.

use dsh_plugin_api::abi::calls::ConfigRefusal;

use super::place::Place;
use super::problem::{Code, Finding};
use super::tree::{Entry, Node, Table, Value};
use super::{Manifest, ManifestError, words};

impl Manifest {
    /// An adapter refused its configuration: points at the key that the refusal names, in whichever file set it.
    ///
    /// The texts of serde (`unknown field …`, `missing field …`, `unknown variant …`, `invalid type …`, `invalid value …`)
    /// are told in the manifest's words, with the nearest right one.
    #[must_use]
    pub fn config_error(&self, adapter_id: &str, refusal: &ConfigRefusal) -> ManifestError {
        let finding = match self.document.root.adapter(adapter_id) {
            Some((adapter, header)) => refused(adapter, header, adapter_id, refusal),
            None => Finding::new(Code::ConfigRefused, Place::start_of(0), refusal.message.clone(), "refused"),
        };
        self.error(finding)
    }

    /// Two adapters serve one route: points at both.
    #[must_use]
    pub fn route_conflict(&self, route: &str, first_adapter: &str, second_adapter: &str) -> ManifestError {
        let message = format!("adapters `{first_adapter}` and `{second_adapter}` both serve the route `{route}`");
        let finding = Finding::new(
            Code::RouteConflict,
            self.route_place(second_adapter, route),
            message,
            format!("`{second_adapter}` serves it again"),
        )
        .also(self.route_place(first_adapter, route), format!("`{first_adapter}` serves `{route}`"))
        .help("a route has one owner: rename or remove one of the two");
        self.error(finding)
    }

    /// A required adapter cannot be used: points at its `library` and tells the whole chain of reasons.
    #[must_use]
    pub fn adapter_error(&self, adapter_id: &str, error: &dyn std::error::Error) -> ManifestError {
        let place = self.document.root.adapter(adapter_id).map_or(Place::start_of(0), |(adapter, header)| {
            adapter.get("library").map_or(header, |library| library.place)
        });
        let message = format!("the required adapter `{adapter_id}` cannot be used: {}", chain(error));
        let finding = Finding::new(Code::AdapterFailed, place, message, "required, and cannot be used")
            .help("with `required = false` the host starts without it");
        self.error(finding)
    }

    /// The model of an agent is served by no route: points at its `model`.
    ///
    /// `agent` is `default` for `[agent]`.
    #[must_use]
    pub fn model_error(&self, agent: &str, reason: &str) -> ManifestError {
        let root = &self.document.root;
        let table = if agent == "default" {
            root.get("agent")
        } else {
            root.get("agents").and_then(|agents| agents.value.as_table()).and_then(|agents| agents.get(agent))
        };
        let model = table.and_then(|node| node.value.as_table()).and_then(|table| table.get("model"));
        let place = model.map_or(Place::start_of(0), |node| node.place);
        self.error(Finding::new(Code::UnknownModel, place, reason, "served by no route"))
    }

    fn error(&self, finding: Finding) -> ManifestError {
        ManifestError::new(vec![finding], &self.document.sources)
    }

    /// `[adapter.config.providers.ROUTE]`, else the adapter.
    fn route_place(&self, adapter_id: &str, route: &str) -> Place {
        let Some((adapter, header)) = self.document.root.adapter(adapter_id) else { return Place::start_of(0) };
        let Some(config) = adapter.get("config") else { return header };
        let found = locate(config, &format!("providers.{route}"));
        if found.whole { found.node.place } else { header }
    }
}

/// Every reason of an error, the first one first; a reason that the one before repeats is told once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(reason) = source {
        let reason_text = reason.to_string();
        if !text.contains(&reason_text) {
            text.push_str(": ");
            text.push_str(&reason_text);
        }
        source = reason.source();
    }
    text
}

fn refused(adapter: &Table, header: Place, id: &str, refusal: &ConfigRefusal) -> Finding {
    let code = Code::ConfigRefused;
    let message = without_json_place(&refusal.message);
    let nothing = Node { value: Value::Table(Table::default()), place: header };
    let config = adapter.get("config").unwrap_or(&nothing);
    let found = locate(config, &refusal.path);
    let below = |path: &str| {
        if path.is_empty() { "in [adapter.config]".to_owned() } else { format!("in [adapter.config.{path}]") }
    };
    let (kind, name) = serde_words(message);
    let candidates = expected(message);
    if let (Kind::WrongType | Kind::BadValue, Some((was, wanted))) = (kind, mismatch(message)) {
        let (node, path) = mistyped(&found, &refusal.path, was);
        let (wanted, is) = (in_words(wanted), node.value.type_name());
        let path = if path.is_empty() { "config".to_owned() } else { path };
        let (code, message) = if kind == Kind::WrongType {
            (Code::WrongType, format!("`{path}` of adapter `{id}` must be {wanted}, not {is}"))
        } else {
            (
                Code::BadValue,
                format!("`{path}` of adapter `{id}` cannot be {}", was.split_once(' ').map_or(was, |(_, value)| value)),
            )
        };
        return Finding::new(code, node.place, message, is).help(format!("write {wanted}"));
    }
    match (kind, name) {
        (Kind::UnknownField, Some(name)) => {
            // The path may or may not end with the key itself.
            let (table, table_path) = match found.parent {
                Some(parent) if found.key.is_some_and(|key| key == name) || !found.whole => {
                    let ends = refusal.path.strip_suffix(name).map(|path| path.trim_end_matches('.'));
                    (if found.whole { parent } else { found.node }, ends.unwrap_or(&refusal.path))
                }
                _ => (found.node, refusal.path.as_str()),
            };
            let entry = table.value.as_table().and_then(|table| table.entry(name));
            let place = entry.map_or(found.node.place, |entry| entry.key_place);
            let at = below(table_path);
            Finding::new(Code::UnknownKey, place, format!("unknown key `{name}` {at}"), "adapter does not know it")
                .help(words::suggest(name, &candidates, "keys there"))
        }
        (Kind::MissingField, Some(name)) => Finding::new(
            Code::MissingKey,
            found.node.place,
            format!("`{name}` is missing {}", below(&refusal.path)),
            "here",
        )
        .help(remedy(message).map_or_else(|| format!("adapter `{id}` needs a `{name}` here"), str::to_owned)),
        // A word in the place of a key: the path ends before it.
        (Kind::UnknownVariant, Some(name)) if keyed(&found, name).is_some() => {
            let place = keyed(&found, name).map_or(found.node.place, |entry| entry.key_place);
            let at = below(refusal.path.strip_suffix(".?").unwrap_or(&refusal.path));
            Finding::new(Code::UnknownKey, place, format!("unknown key `{name}` {at}"), "adapter does not know it")
                .help(words::suggest(name, &candidates, "keys there"))
        }
        (Kind::UnknownVariant, Some(name)) => {
            let message = format!("`{name}` is not possible for `{}`", refusal.path);
            Finding::new(Code::UnknownVariant, found.node.place, message, "not one of the possible words")
                .help(words::suggest(name, &candidates, "possible"))
        }
        _ => {
            let at = if refusal.path.is_empty() { String::new() } else { format!(" at `{}`", refusal.path) };
            let place = found.key_place.filter(|_| !found.whole).unwrap_or(found.node.place);
            Finding::new(code, place, format!("adapter `{id}` refuses its configuration{at}: {message}"), "refused")
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    UnknownField,
    MissingField,
    UnknownVariant,
    WrongType,
    BadValue,
    Other,
}

/// What serde says, and the word that it says it of.
fn serde_words(message: &str) -> (Kind, Option<&str>) {
    let kinds = [
        ("unknown field `", Kind::UnknownField),
        ("missing field `", Kind::MissingField),
        ("unknown variant `", Kind::UnknownVariant),
    ];
    for (start, kind) in kinds {
        if let Some(rest) = message.strip_prefix(start) {
            return (kind, rest.split_once('`').map(|(name, _)| name));
        }
    }
    let kinds = [("invalid type: ", Kind::WrongType), ("invalid value: ", Kind::BadValue)];
    let kind = kinds.into_iter().find(|(start, _)| message.starts_with(start));
    (kind.map_or(Kind::Other, |(_, kind)| kind), None)
}

/// The text without ` at line 1 column 31`: adapters get their configuration as JSON, whose places nobody has seen.
fn without_json_place(message: &str) -> &str {
    let place = message.rfind(" at line ").map(|at| message.split_at(at));
    let is_place = |place: &str| {
        let place = place.strip_prefix(" at line ").and_then(|rest| rest.split_once(" column "));
        place.is_some_and(|(line, column)| [line, column].iter().all(|part| part.parse::<u32>().is_ok()))
    };
    place.filter(|(_, place)| is_place(place)).map_or(message, |(text, _)| text)
}

/// What was found and what is expected, as serde says it: ``integer `5` `` and `a string`.
fn mismatch(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once(": ")?;
    rest.rsplit_once(", expected ")
}

/// What serde expects, in the words of TOML.
fn in_words(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "an integer of 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "an integer",
        "f32" | "f64" => "a number",
        "a boolean" => "`true` or `false`",
        "a sequence" => "an array",
        "string or map" => "a string",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// The value that is meant, and its path. Below a key that is no plain text the path of serde ends with `?`: then it is
/// the first value there of the type that was found.
fn mistyped<'a>(found: &Found<'a>, path: &str, was: &str) -> (&'a Node, String) {
    let kinds = [
        ("integer", "an integer"),
        ("floating", "a float"),
        ("boolean", "a boolean"),
        ("string", "a string"),
        ("sequence", "an array"),
        ("map", "a table"),
    ];
    let kind = kinds.into_iter().find(|(start, _)| was.starts_with(start)).map(|(_, name)| name);
    let table = found.node.value.as_table().filter(|_| !found.whole);
    let entry = table.and_then(|table| table.entries.iter().find(|entry| Some(entry.node.value.type_name()) == kind));
    match (entry, path.strip_suffix('?')) {
        (Some(entry), Some(above)) => (&entry.node, format!("{above}{}", entry.key)),
        _ => (found.node, path.to_owned()),
    }
}

/// The entry of that key, where a path leads to its table and no further.
fn keyed<'a>(found: &Found<'a>, name: &str) -> Option<&'a Entry> {
    found.node.value.as_table().filter(|_| !found.whole)?.entry(name)
}

/// What an adapter says behind serde's words: `missing field `x`; …`.
fn remedy(message: &str) -> Option<&str> {
    message.split_once("`; ").map(|(_, remedy)| remedy)
}

/// The words in backquotes behind `expected`.
fn expected(message: &str) -> Vec<&str> {
    let Some((_, expected)) = message.split_once("`, expected ") else { return Vec::new() };
    expected.split('`').skip(1).step_by(2).collect()
}

/// How far a dotted path leads.
struct Found<'a> {
    node: &'a Node,
    parent: Option<&'a Node>,
    key: Option<&'a str>,
    key_place: Option<Place>,
    /// Whether the whole path was found.
    whole: bool,
}

/// Follows a dotted path such as `providers.deepseek.models[0].id`. Keys may hold dots themselves, so at each table the
/// longest key that fits is taken.
fn locate<'a>(config: &'a Node, path: &str) -> Found<'a> {
    let mut found = Found { node: config, parent: None, key: None, key_place: None, whole: true };
    let mut rest = path;
    while !rest.is_empty() {
        let step = match &found.node.value {
            Value::Table(table) => table
                .entries
                .iter()
                .filter_map(|entry| {
                    let after = rest.strip_prefix(entry.key.as_str())?;
                    let ends = after.is_empty() || after.starts_with(['.', '[']);
                    ends.then_some((entry.key.len(), &entry.node, Some(entry), after))
                })
                .max_by_key(|(length, ..)| *length),
            Value::Array(nodes) => index(rest).and_then(|(at, after)| Some((0, nodes.get(at)?, None, after))),
            _ => None,
        };
        let Some((_, node, entry, after)) = step else {
            found.whole = false;
            return found;
        };
        found = Found {
            parent: Some(found.node),
            key: entry.map(|entry| entry.key.as_str()),
            key_place: entry.map(|entry| entry.key_place),
            node,
            whole: true,
        };
        rest = after.strip_prefix('.').unwrap_or(after);
    }
    found
}

/// `[3]…` or `3…`
fn index(text: &str) -> Option<(usize, &str)> {
    let (number, after) = match text.strip_prefix('[') {
        Some(inner) => inner.split_once(']')?,
        None => text.split_at(text.find(['.', '[']).unwrap_or(text.len())),
    };
    Some((number.parse().ok()?, after))
}
