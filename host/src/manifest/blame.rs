//! Problems that show only when a composition is loaded, put at their place in the manifest.

use dsh_plugin_api::abi::calls::{ConfigProblem, ConfigRefusal};

use super::place::Place;
use super::problem::{Code, Finding};
use super::tree::{Entry, Node, Table, Value};
use super::{Manifest, ManifestError, words};

impl Manifest {
    /// An adapter refused its configuration: points at the key that the refusal names, in whichever file set it.
    ///
    /// What the refusal gives as data is told in the manifest's words, with the nearest right one.
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
        let place = self.library_place(adapter_id);
        let message = format!("the required adapter `{adapter_id}` cannot be used: {}", chain(error));
        let finding = Finding::new(Code::AdapterFailed, place, message, "required, and cannot be used")
            .help("with `required = false` the host starts without it");
        self.error(finding)
    }

    /// An adapter that is not required cannot be used: points at its `library`. `reason` is the whole chain of reasons.
    #[must_use]
    pub fn adapter_unusable(&self, adapter_id: &str, reason: &str) -> ManifestError {
        let message = format!("the adapter `{adapter_id}` cannot be used: {reason}");
        let place = self.library_place(adapter_id);
        let finding = Finding::new(Code::AdapterFailed, place, message, "cannot be used")
            .help("the host runs without it; a check does not pass");
        self.error(finding)
    }

    /// The model of an agent is served by no route: points at its `model`.
    ///
    /// `agent` is `default` for `[agent]`.
    #[must_use]
    pub fn model_error(&self, agent: &str, reason: &str) -> ManifestError {
        self.error(Finding::new(Code::UnknownModel, self.model_place(agent), reason, "served by no route"))
    }

    /// The model of an agent is none that its route lists: a warning at its `model`, since any id is passed on.
    ///
    /// `agent` is `default` for `[agent]`; `listed` are the ids of the route, at least one.
    #[must_use]
    pub fn unlisted_model(&self, agent: &str, route: &str, model: &str, listed: &[&str]) -> ManifestError {
        let message = format!("the route `{route}` does not list the model `{model}`, which is passed on as it is");
        let help = words::suggest(model, listed, "listed");
        let help = format!("{help}; `dsh models {route} --discover` asks the server, if it can be asked");
        self.error(Finding::new(Code::UnlistedModel, self.model_place(agent), message, "not listed").help(help))
    }

    fn model_place(&self, agent: &str) -> Place {
        let root = &self.document.root;
        let table = if agent == "default" {
            root.get("agent")
        } else {
            root.get("agents").and_then(|agents| agents.value.as_table()).and_then(|agents| agents.get(agent))
        };
        let model = table.and_then(|node| node.value.as_table()).and_then(|table| table.get("model"));
        model.map_or(Place::start_of(0), |node| node.place)
    }

    /// The `library` of an adapter, else the adapter.
    fn library_place(&self, adapter_id: &str) -> Place {
        self.document.root.adapter(adapter_id).map_or(Place::start_of(0), |(adapter, header)| {
            adapter.get("library").map_or(header, |library| library.place)
        })
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
    let ConfigRefusal { path, message, problem } = refusal;
    let nothing = Node { value: Value::Table(Table::default()), place: header };
    let config = adapter.get("config").unwrap_or(&nothing);
    let found = locate(config, path);
    let below = |path: &str| {
        if path.is_empty() { "in [adapter.config]".to_owned() } else { format!("in [adapter.config.{path}]") }
    };
    let unknown_key = |place: Place, key: &str, at: &str, expected: &[String]| {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        let message = format!("unknown key `{key}` {}", below(at));
        Finding::new(Code::UnknownKey, place, message, "adapter does not know it").help(words::suggest(
            key,
            &expected,
            "keys there",
        ))
    };
    match problem {
        ConfigProblem::WrongType { found: was, expected } => {
            let (node, path) = mistyped(&found, path, was);
            let (path, is) = (if path.is_empty() { "config" } else { &path }, node.value.type_name());
            let message = format!("`{path}` of adapter `{id}` must be {expected}, not {is}");
            Finding::new(Code::WrongType, node.place, message, is).help(format!("write {expected}"))
        }
        ConfigProblem::BadValue { found: was, expected } => {
            let message = format!("`{path}` of adapter `{id}` cannot be `{was}`");
            Finding::new(Code::BadValue, found.node.place, message, found.node.value.type_name())
                .help(format!("write {expected}"))
        }
        ConfigProblem::UnknownKey { key, expected } => {
            // The path may or may not end with the key itself.
            let (table, at) = match found.parent {
                Some(parent) if found.key.is_some_and(|last| last == key) || !found.whole => {
                    let ends = path.strip_suffix(key.as_str()).map(|path| path.trim_end_matches('.'));
                    (if found.whole { parent } else { found.node }, ends.unwrap_or(path))
                }
                _ => (found.node, path.as_str()),
            };
            let entry = table.value.as_table().and_then(|table| table.entry(key));
            unknown_key(entry.map_or(found.node.place, |entry| entry.key_place), key, at, expected)
        }
        ConfigProblem::Missing { key, remedy } => {
            let message = format!("`{key}` is missing {}", below(path));
            let remedy = remedy.clone().unwrap_or_else(|| format!("adapter `{id}` needs a `{key}` here"));
            Finding::new(Code::MissingKey, found.node.place, message, "here").help(remedy)
        }
        ConfigProblem::UnknownWord { word, expected } => match keyed(&found, word) {
            // A word in the place of a key: the path ends before it.
            Some(entry) => unknown_key(entry.key_place, word, path.strip_suffix(".?").unwrap_or(path), expected),
            None => {
                let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
                let message = format!("`{word}` is not possible for `{path}`");
                Finding::new(Code::UnknownVariant, found.node.place, message, "not one of the possible words")
                    .help(words::suggest(word, &expected, "possible"))
            }
        },
        ConfigProblem::Other => {
            let at = if path.is_empty() { String::new() } else { format!(" at `{path}`") };
            let place = found.key_place.filter(|_| !found.whole).unwrap_or(found.node.place);
            let message = format!("adapter `{id}` refuses its configuration{at}: {message}");
            Finding::new(Code::ConfigRefused, place, message, "refused")
        }
    }
}

/// The value that is meant, and its path. Below a key that is no plain text the path ends with `?`: then it is the first
/// value there of the type that was found.
fn mistyped<'a>(found: &Found<'a>, path: &str, was: &str) -> (&'a Node, String) {
    let is_meant = |node: &Node| {
        matches!(
            (&node.value, was),
            (Value::Integer(_), "integer")
                | (Value::Float(_), "float")
                | (Value::Boolean(_), "boolean")
                | (Value::String(_) | Value::Datetime(_), "string")
                | (Value::Array(_), "array")
                | (Value::Table(_), "table")
        )
    };
    let table = found.node.value.as_table().filter(|_| !found.whole);
    let entry = table.and_then(|table| table.entries.iter().find(|entry| is_meant(&entry.node)));
    match (entry, path.strip_suffix('?')) {
        (Some(entry), Some(above)) => (&entry.node, format!("{above}{}", entry.key)),
        _ => (found.node, path.to_owned()),
    }
}

/// The entry of that key, where a path leads to its table and no further.
fn keyed<'a>(found: &Found<'a>, name: &str) -> Option<&'a Entry> {
    found.node.value.as_table().filter(|_| !found.whole)?.entry(name)
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
