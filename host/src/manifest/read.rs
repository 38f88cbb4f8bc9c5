//! From a merged tree to a validated composition. Every problem is collected; none stops the reading.

mod texts;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::Value as Json;

use super::paths::{self, PathError, Surroundings};
use super::place::{Place, Source};
use super::problem::{Code, Finding};
use super::tree::{self, Node, Table, Value};
use super::{AdapterEntry, Agent, Compression, Sessions, Transport, words};
use crate::loader::{LibraryRef, LibrarySpec};
use crate::tools::BuiltIn;

/// Keys of each table. The published schema has the same; a test holds them together.
pub(super) const ROOT: &[&str] = &["version", "sessions", "adapter", "agent", "agents", "transport"];
pub(super) const SESSIONS: &[&str] = &["dir", "compression"];
pub(super) const ADAPTER: &[&str] = &["id", "library", "isolation", "sha256", "required", "config"];
pub(super) const AGENT: &[&str] =
    &["model", "tools", "system", "max_tokens", "temperature", "reasoning_effort", "max_steps"];
pub(super) const TRANSPORT: &[&str] =
    &["connect_timeout_ms", "idle_timeout_ms", "progress_timeout_ms", "max_retries", "retry_base_ms", "retry_max_ms"];

/// Levels of `reasoning_effort`.
pub(super) const EFFORTS: &[&str] = &["off", "minimal", "low", "medium", "high", "xhigh", "max"];

/// A week in milliseconds: longer waits are mistakes, and far longer ones overflow clocks.
pub(super) const MAX_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// What a valid tree holds.
pub(super) struct Parts {
    pub sessions: Sessions,
    pub adapters: Vec<AdapterEntry>,
    pub agents: BTreeMap<String, Agent>,
    pub transport: Transport,
    /// Libraries named by path: where, and as written.
    pub library_paths: Vec<(Place, String)>,
    /// `{ file = … }` outside the folder of the manifest that names it: where, and as written.
    pub outside_files: Vec<(Place, String)>,
}

/// Reads a tree; `Err` holds at least one finding.
pub(super) fn read(
    root: &Table,
    sources: &[Source],
    home: &std::path::Path,
    around: &Surroundings,
) -> Result<Parts, Vec<Finding>> {
    let mut reader =
        Reader { sources, around, findings: Vec::new(), library_paths: Vec::new(), outside_files: Vec::new() };
    reader.version(root);
    // A newer version may mean anything by its keys: complaints about them would only mislead.
    if !reader.findings.is_empty() && root.get("version").is_some() {
        return Err(reader.findings);
    }
    reader.known_keys(root, "at the top level", ROOT);
    let sessions = reader.sessions(root, home);
    let adapters = reader.adapters(root);
    let agents = reader.agents(root);
    let transport = reader.transport(root);
    if reader.findings.is_empty() {
        let Reader { library_paths, outside_files, .. } = reader;
        Ok(Parts { sessions, adapters, agents, transport, library_paths, outside_files })
    } else {
        Err(reader.findings)
    }
}

struct Reader<'a> {
    sources: &'a [Source],
    around: &'a Surroundings<'a>,
    findings: Vec<Finding>,
    library_paths: Vec<(Place, String)>,
    outside_files: Vec<(Place, String)>,
}

impl Reader<'_> {
    fn report(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    fn version(&mut self, root: &Table) {
        let help = "write `version = 1` at the top";
        let Some(node) = root.get("version") else {
            let place = Place::start_of(0);
            self.report(
                Finding::new(Code::Version, place, "`version` is missing", "the format's version belongs here")
                    .help(help),
            );
            return;
        };
        match node.value {
            Value::Integer(1) => {}
            Value::Integer(other) => self.report(
                Finding::new(Code::Version, node.place, format!("manifest version {other}"), "not known here")
                    .help("this build reads version 1"),
            ),
            _ => self.wrong_type(node, "`version`", "the integer 1"),
        }
    }

    fn wrong_type(&mut self, node: &Node, what: &str, expected: &str) {
        let found = node.value.type_name();
        self.report(
            Finding::new(Code::WrongType, node.place, format!("{what} must be {expected}, not {found}"), found)
                .help(format!("write {expected}")),
        );
    }

    fn bad(&mut self, place: Place, message: String, label: &str, help: impl Into<String>) {
        self.report(Finding::new(Code::BadValue, place, message, label).help(help));
    }

    fn known_keys(&mut self, table: &Table, at: &str, known: &[&str]) {
        for entry in &table.entries {
            let key = entry.key.as_str();
            if known.contains(&key) {
                continue;
            }
            let near = words::nearest(key, known.iter().copied());
            let help = match near.map_or_else(|| home_of(key), |_| None) {
                Some(table) => {
                    format!("`{key}` belongs into {table}; keys {at}: {}", words::list(known.iter().copied()))
                }
                None => words::suggest(key, known, &format!("keys {at}")),
            };
            let message = format!("unknown key `{key}` {at}");
            self.report(Finding::new(Code::UnknownKey, entry.key_place, message, "nothing reads this").help(help));
        }
    }

    /// A table under a key, when there is one.
    fn table<'t>(&mut self, parent: &'t Table, key: &str, shape: &str) -> Option<&'t Table> {
        let node = parent.get(key)?;
        match &node.value {
            Value::Table(table) => Some(table),
            _ => {
                self.wrong_type(node, &format!("`{key}`"), shape);
                None
            }
        }
    }

    fn string<'t>(&mut self, table: &'t Table, key: &str) -> Option<(&'t str, Place)> {
        let node = table.get(key)?;
        let text = node.value.as_str();
        if text.is_none() {
            self.wrong_type(node, &format!("`{key}`"), "a string");
        }
        text.map(|text| (text, node.place))
    }

    fn boolean(&mut self, table: &Table, key: &str) -> Option<bool> {
        let node = table.get(key)?;
        if let Value::Boolean(truth) = node.value {
            return Some(truth);
        }
        self.wrong_type(node, &format!("`{key}`"), "`true` or `false`");
        None
    }

    fn integer(&mut self, table: &Table, key: &str, range: RangeInclusive<u64>, unit: &str) -> Option<u64> {
        let node = table.get(key)?;
        let Value::Integer(number) = node.value else {
            self.wrong_type(node, &format!("`{key}`"), "an integer");
            return None;
        };
        let within = u64::try_from(number).ok().filter(|number| range.contains(number));
        if within.is_none() {
            let help = format!("write a number of {unit} from {} to {}", range.start(), range.end());
            self.bad(node.place, format!("`{key}` cannot be {number}"), "out of range", help);
        }
        within
    }

    fn variant<'t>(&mut self, table: &'t Table, key: &str, variants: &[&str]) -> Option<(&'t str, Place)> {
        let (word, place) = self.string(table, key)?;
        if variants.contains(&word) {
            return Some((word, place));
        }
        let help = words::suggest(word, variants, "possible");
        let message = format!("`{key}` cannot be `{word}`");
        self.report(Finding::new(Code::UnknownVariant, place, message, "not one of the possible words").help(help));
        None
    }

    fn unsupported(&mut self, place: Place, message: &str, help: &str) {
        self.report(Finding::new(Code::Unsupported, place, message, "not in this version").help(help));
    }

    fn path(&mut self, text: &str, place: Place, what: &str) -> Option<std::path::PathBuf> {
        let dir = &self.sources.get(place.file)?.dir;
        match paths::resolve(text, dir, self.around) {
            Ok(path) => Some(path),
            Err(PathError::Unset(name)) => {
                self.report(
                    Finding::new(
                        Code::UnsetVariable,
                        place,
                        format!("{what} needs ${name}, which is not set"),
                        format!("${name} has no value"),
                    )
                    .help(format!("export {name}=…, or write the path itself")),
                );
                None
            }
            Err(PathError::Empty) => {
                self.bad(place, format!("{what} is empty"), "no path", "write a path, or leave the key out");
                None
            }
            Err(PathError::Dollar) => {
                let help = "a variable is $NAME or ${NAME}; a plain dollar is $$";
                self.bad(place, format!("{what} has a `$` without a name"), "no variable", help);
                None
            }
            Err(PathError::Tilde) => {
                let help = "only `~/…` is understood, and only where a user's home folder is known";
                self.bad(place, format!("{what} has a `~` that cannot be expanded"), "no home folder", help);
                None
            }
        }
    }

    fn sessions(&mut self, root: &Table, home: &std::path::Path) -> Sessions {
        let mut sessions = Sessions { dir: home.join("sessions"), compression: Compression::None };
        let Some(table) = self.table(root, "sessions", "a table: [sessions]") else { return sessions };
        self.known_keys(table, "in [sessions]", SESSIONS);
        if let Some((text, place)) = self.string(table, "dir")
            && let Some(dir) = self.path(text, place, "`sessions.dir`")
        {
            sessions.dir = dir;
        }
        if let Some(("zstd", _)) = self.variant(table, "compression", &["none", "zstd"]) {
            sessions.compression = Compression::Zstd;
        }
        sessions
    }

    fn adapters(&mut self, root: &Table) -> Vec<AdapterEntry> {
        let Some(node) = root.get("adapter") else { return Vec::new() };
        let Value::Array(nodes) = &node.value else {
            let place = root.entry("adapter").map_or(node.place, |entry| entry.key_place);
            let message = "`adapter` must be an array of tables".to_owned();
            let help = "begin each adapter with `[[adapter]]` and its `id`, before its `[adapter.config…]` tables";
            self.report(Finding::new(Code::WrongType, place, message, node.value.type_name()).help(help));
            return Vec::new();
        };
        let mut taken: Vec<(String, Place)> = Vec::new();
        let mut adapters = Vec::new();
        for node in nodes {
            let Value::Table(table) = &node.value else {
                self.wrong_type(node, "an adapter", "a table: [[adapter]]");
                continue;
            };
            let id = self.adapter_id(table, node.place, &mut taken);
            adapters.extend(self.adapter(table, node.place, id.as_deref()));
        }
        adapters
    }

    fn adapter_id(&mut self, table: &Table, header: Place, taken: &mut Vec<(String, Place)>) -> Option<String> {
        if table.get("id").is_none() {
            let message = "an adapter without `id`";
            let label = "this adapter";
            self.report(
                Finding::new(Code::MissingKey, header, message, label)
                    .help("give it a name of its own: id = \"my-adapter\""),
            );
            return None;
        }
        let (id, place) = self.string(table, "id")?;
        if !words::is_id(id) {
            let help = "an id has 1 to 64 letters, digits, `-`, `_` or `.`, and begins with a letter or digit";
            self.bad(place, format!("`{}` cannot be an id", id.escape_debug()), "not an id", help);
            return None;
        }
        if let Some((_, first)) = taken.iter().find(|(other, _)| other == id) {
            let finding =
                Finding::new(Code::DuplicateId, place, format!("two adapters with the id `{id}`"), "taken already")
                    .also(*first, format!("`{id}` stands here first"))
                    .help("give each adapter an id of its own; an overlay extends one by naming its id once");
            self.report(finding);
            return None;
        }
        taken.push((id.to_owned(), place));
        Some(id.to_owned())
    }

    fn adapter(&mut self, table: &Table, header: Place, id: Option<&str>) -> Option<AdapterEntry> {
        let name = id.map_or_else(|| "an adapter".to_owned(), |id| format!("adapter `{id}`"));
        self.known_keys(table, "in [[adapter]]", ADAPTER);
        let library = self.library(table, header, &name);
        if let Some(("process", place)) = self.variant(table, "isolation", &["in-process", "process"]) {
            self.unsupported(
                place,
                "this version runs adapters in its own process only",
                "write \"in-process\", or leave the key out",
            );
        }
        let sha256 = self.string(table, "sha256").and_then(|(hash, place)| {
            let right = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
            if !right {
                let help = "64 hexadecimal digits, as `sha256sum FILE` prints them";
                self.bad(
                    place,
                    "`sha256` is no SHA-256".to_owned(),
                    &format!("{} characters", hash.chars().count()),
                    help,
                );
            }
            right.then(|| hash.to_ascii_lowercase())
        });
        let required = self.boolean(table, "required").unwrap_or_default();
        let config = match table.get("config") {
            None => Json::Object(serde_json::Map::new()),
            Some(node) if node.value.as_table().is_some() => self.config(node),
            Some(node) => {
                self.wrong_type(node, "`config`", "a table: [adapter.config]");
                Json::Null
            }
        };
        let (library, reference) = library?;
        let spec = LibrarySpec { library: reference, sha256 };
        Some(AdapterEntry { id: id?.to_owned(), library, spec, required, config })
    }

    fn library(&mut self, table: &Table, header: Place, name: &str) -> Option<(String, LibraryRef)> {
        if table.get("library").is_none() {
            self.report(
                Finding::new(Code::MissingKey, header, format!("{name} without `library`"), "this adapter")
                    .help("name its library, such as \"dsh-llm-pi-ai\", or the path of its file"),
            );
            return None;
        }
        let (library, place) = self.string(table, "library")?;
        if paths::is_path(library) {
            self.library_paths.push((place, library.to_owned()));
            let path = self.path(library, place, "`library`")?;
            return Some((library.to_owned(), LibraryRef::Path(path)));
        }
        if library.is_empty() {
            let help = "name its library, such as \"dsh-llm-pi-ai\", or the path of its file";
            self.bad(place, format!("{name} has an empty `library`"), "empty", help);
            return None;
        }
        if !library.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
            let help = format!("a name has letters, digits, `-` and `_`; for a file write its path: \"./{library}\"");
            self.bad(place, format!("`{library}` is not the name of a library"), "neither name nor path", help);
            return None;
        }
        Some((library.to_owned(), LibraryRef::Name(library.to_owned())))
    }

    /// The configuration as JSON, with the texts of files in place and credential references as plain names.
    fn config(&mut self, node: &Node) -> Json {
        let mut json = tree::to_json(&self.with_texts(node), &mut self.findings);
        let providers = node.value.as_table().and_then(|table| table.get("providers"));
        for route in providers.and_then(|node| node.value.as_table()).into_iter().flat_map(|table| &table.entries) {
            let Some(credential) = route.node.value.as_table().and_then(|table| table.get("credential")) else {
                continue;
            };
            let text = match &credential.value {
                Value::String(text) => text.as_str(),
                // Not even from a file: a secret that stands in a configuration reaches the adapter.
                Value::Table(_) => "",
                _ => continue,
            };
            if let Some(name) = words::reference(text) {
                json["providers"][&route.key]["credential"] = Json::from(name);
                continue;
            }
            let message = format!("the credential of route `{}` is no reference", route.key);
            self.report(
                Finding::new(Code::CredentialForm, credential.place, message, "not the name of a variable").help(
                    "name an environment variable in capitals, such as \"DEEPSEEK_API_KEY\"; the secret itself never \
                     stands in a manifest",
                ),
            );
        }
        json
    }

    fn agents(&mut self, root: &Table) -> BTreeMap<String, Agent> {
        let mut agents = BTreeMap::from([("default".to_owned(), Agent::default())]);
        if let Some(table) = self.table(root, "agent", "a table: [agent]") {
            agents.insert("default".to_owned(), self.agent(table, "in [agent]"));
        }
        let Some(table) = self.table(root, "agents", "a table of agents: [agents.NAME]") else { return agents };
        for entry in &table.entries {
            let name = &entry.key;
            let Value::Table(agent) = &entry.node.value else {
                self.wrong_type(&entry.node, &format!("`agents.{name}`"), &format!("a table: [agents.{name}]"));
                continue;
            };
            if name == "default" {
                let message = "the agent `default` is [agent]".to_owned();
                self.bad(entry.key_place, message, "a name with a meaning", "write [agent], or choose another name");
            } else if !words::is_id(name) {
                let help = "a name has 1 to 64 letters, digits, `-`, `_` or `.`, and begins with a letter or digit";
                let message = format!("`{}` cannot be the name of an agent", name.escape_debug());
                self.bad(entry.key_place, message, "not a name", help);
            } else {
                let agent = self.agent(agent, &format!("in [agents.{name}]"));
                agents.insert(name.clone(), agent);
            }
        }
        agents
    }

    fn agent(&mut self, table: &Table, at: &str) -> Agent {
        self.known_keys(table, at, AGENT);
        let mut agent = Agent::default();
        if let Some((model, place)) = self.string(table, "model") {
            self.model(model, place);
            agent.model = Some(model.to_owned());
        }
        agent.tools = self.tools(table);
        agent.system = self.string(table, "system").map(|(text, _)| text.to_owned());
        agent.max_tokens = self.integer(table, "max_tokens", 1..=i64::MAX as u64, "tokens");
        agent.temperature = self.temperature(table);
        agent.reasoning_effort = self
            .variant(table, "reasoning_effort", EFFORTS)
            .filter(|(level, _)| *level != "off")
            .map(|(level, _)| level.to_owned());
        let steps = self.integer(table, "max_steps", 0..=u64::from(u32::MAX), "requests");
        if let Some(steps) = steps.and_then(|steps| u32::try_from(steps).ok()) {
            agent.max_steps = steps;
        }
        agent
    }

    fn model(&mut self, model: &str, place: Place) {
        if model.split_once('/').is_some_and(|(route, id)| !route.trim().is_empty() && !id.trim().is_empty()) {
            return;
        }
        let help = if model.contains('$') {
            "environment variables are expanded in paths only; on the command line use -m PROVIDER/MODEL"
        } else {
            "write the provider route, a slash and the model id, such as \"deepseek/deepseek-chat\""
        };
        self.bad(place, format!("`{model}` is not PROVIDER/MODEL"), "no route and model in it", help);
    }

    fn tools(&mut self, table: &Table) -> Vec<String> {
        let Some(node) = table.get("tools") else { return Vec::new() };
        let Value::Array(nodes) = &node.value else {
            self.wrong_type(node, "`tools`", "an array of names, such as [\"bash\"]");
            return Vec::new();
        };
        let mut tools: Vec<String> = Vec::new();
        for node in nodes {
            let Some(name) = node.value.as_str() else {
                self.wrong_type(node, "a tool", "a string");
                continue;
            };
            if !BuiltIn::NAMES.contains(&name) {
                let help = words::suggest(name, &BuiltIn::NAMES, "tools of this build");
                let message = format!("this build has no tool `{name}`");
                self.report(Finding::new(Code::UnknownTool, node.place, message, "no such tool").help(help));
            } else if tools.iter().any(|tool| tool == name) {
                self.bad(node.place, format!("the tool `{name}` is named twice"), "again", "name each tool once");
            } else {
                tools.push(name.to_owned());
            }
        }
        tools
    }

    fn temperature(&mut self, table: &Table) -> Option<f64> {
        let node = table.get("temperature")?;
        let number = match node.value {
            Value::Float(number) => number,
            Value::Integer(number @ 0..=2) => f64::from(u8::try_from(number).unwrap_or_default()),
            Value::Integer(_) => -1.0,
            _ => {
                self.wrong_type(node, "`temperature`", "a number");
                return None;
            }
        };
        if (0.0..=2.0).contains(&number) {
            return Some(number);
        }
        self.bad(node.place, "`temperature` is out of range".to_owned(), "out of range", "write a number from 0 to 2");
        None
    }

    fn transport(&mut self, root: &Table) -> Transport {
        let mut transport = Transport::default();
        let Some(table) = self.table(root, "transport", "a table: [transport]") else { return transport };
        self.known_keys(table, "in [transport]", TRANSPORT);
        let timeouts = [
            ("connect_timeout_ms", &mut transport.connect_timeout_ms, 1),
            ("idle_timeout_ms", &mut transport.idle_timeout_ms, 1),
            ("progress_timeout_ms", &mut transport.progress_timeout_ms, 1),
            ("retry_base_ms", &mut transport.retry_base_ms, 0),
            ("retry_max_ms", &mut transport.retry_max_ms, 0),
        ];
        for (key, value, least) in timeouts {
            if let Some(ms) = self.integer(table, key, least..=MAX_MS, "milliseconds") {
                *value = ms;
            }
        }
        let retries = self.integer(table, "max_retries", 0..=100, "retries");
        if let Some(retries) = retries.and_then(|retries| u32::try_from(retries).ok()) {
            transport.max_retries = retries;
        }
        transport
    }
}

/// The table that a misplaced key belongs into. A key written below another header is the commonest mistake in TOML.
fn home_of(key: &str) -> Option<&'static str> {
    let tables = [
        (SESSIONS, "[sessions]"),
        (ADAPTER, "[[adapter]]"),
        (AGENT, "[agent]"),
        (TRANSPORT, "[transport]"),
        (ROOT, "the top level, before the first header"),
    ];
    tables.iter().find(|(keys, _)| keys.contains(&key)).map(|(_, table)| *table)
}
