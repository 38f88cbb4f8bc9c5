//! One route on each wire, all to one scripted provider, and how to read a request of any of them.

use serde_json::{Map, Value, json};

use crate::{Composition, Provider};

/// A route of the composition, named after its wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Its name, and the provider of its messages.
    pub name: &'static str,
    /// The adapter that serves it, as its envelopes call it.
    pub adapter: &'static str,
    /// `None` for an adapter with one wire.
    pub api: Option<&'static str>,
    /// What stands in front of the paths of its wire.
    base: &'static str,
    /// The opaque value that goes with its reasoning; empty where the wire has none.
    pub signature: &'static str,
    /// How its model names the two calls of a turn. The second name is that of every other model.
    call_ids: [&'static str; 2],
    /// The longest id of a call that the wire takes; `None` where an id has exactly [`FIXED_ID`] letters and digits.
    longest_id: Option<usize>,
}

/// A signature is opaque: what a wire takes at all has to come back as it was.
pub const ROUTES: [Route; 6] = [
    route("completions", Some("openai-completions"), "/v1", "", "functions.bash:0", Some(40)),
    route("anthropic", Some("anthropic-messages"), "", "EqQB/+ \"quoted\" é\u{1}\\==", "toolu_01ABC", Some(64)),
    route("responses", Some("openai-responses"), "/v1", "gAAAA-._~ \\u00e9 'x'", "call_9xYz", Some(64)),
    route("google", Some("google-generative-ai"), "/v1beta", "Z29vZ2xlK3NpZy8rKys=", "0", Some(64)),
    route("mistral", Some("mistral-conversations"), "/mistral", "", "D681PevKs", None),
    route("deepseek", None, "/deepseek", "", "call_00_9fe1", Some(64)),
];

/// Length of an id on the wire that has but one.
const FIXED_ID: usize = 9;

const fn route(
    name: &'static str,
    api: Option<&'static str>,
    base: &'static str,
    signature: &'static str,
    call_id: &'static str,
    longest_id: Option<usize>,
) -> Route {
    let adapter = if api.is_some() { "pi-ai" } else { "deepseek" };
    Route { name, adapter, api, base, signature, call_ids: [call_id, "call_1"], longest_id }
}

/// The route of this name.
///
/// # Panics
///
/// When there is none.
#[must_use]
pub fn named(name: &str) -> Route {
    *ROUTES.iter().find(|route| route.name == name).unwrap_or_else(|| panic!("there is no route {name:?}"))
}

/// Each route with the one that comes after it.
#[must_use]
pub fn hand_overs() -> Vec<(Route, Route)> {
    ROUTES.into_iter().zip(ROUTES.into_iter().cycle().skip(1)).collect()
}

impl Composition {
    /// A composition of both adapters with every route of [`ROUTES`] to a provider. Each has the model `m`, which
    /// thinks. Nothing is retried.
    #[must_use]
    pub fn on_every_wire(provider: &Provider) -> Self {
        let url = provider.url();
        let mut manifest = "version = 1\n".to_owned();
        for adapter in ["pi-ai", "deepseek"] {
            manifest.push_str(&format!("\n[[adapter]]\nid = \"{adapter}\"\nlibrary = \"dsh-llm-{adapter}\"\n"));
            for Route { name, api, base, .. } in ROUTES.iter().filter(|route| route.adapter == adapter) {
                let (api, thinks) = match api {
                    Some(api) => (format!("api = \"{api}\"\n"), "reasoning"),
                    None => (String::new(), "thinking"),
                };
                manifest.push_str(&format!(
                    "\n[adapter.config.providers.{name}]\n{api}base_url = \"{url}{base}\"\n\
                     models = [{{ id = \"m\", {thinks} = true, max_tokens = 4096 }}]\n"
                ));
            }
        }
        manifest.push_str(
            "\n[agent]\nmodel = \"completions/m\"\nreasoning_effort = \"high\"\ntools = [\"bash\"]\n\
             \n[transport]\nmax_retries = 0\n",
        );
        Self::new(&manifest)
    }
}

impl Route {
    /// As `-m` takes it.
    #[must_use]
    pub fn model(self) -> String {
        format!("{}/m", self.name)
    }

    /// What its model thinks.
    #[must_use]
    pub fn thought(self) -> String {
        format!("<thought of {}>", self.name)
    }

    /// What its model says before it calls.
    #[must_use]
    pub fn said(self) -> String {
        format!("<said by {}>", self.name)
    }

    /// What its model says when it is done.
    #[must_use]
    pub fn done(self) -> String {
        format!("<done by {}>", self.name)
    }

    /// What its tools find.
    #[must_use]
    pub fn found(self) -> [String; 2] {
        ["first", "second"].map(|which| format!("<{which} found for {}>", self.name))
    }

    /// The answer that thinks, speaks and calls two tools at once.
    #[must_use]
    pub fn calls(self) -> Value {
        let calls = self.call_ids.iter().zip(self.found()).map(|(id, found)| {
            let arguments = json!({ "command": format!("echo '{found}'") }).to_string();
            json!({ "id": id, "name": "bash", "arguments": arguments })
        });
        let calls: Vec<Value> = calls.collect();
        self.signed(json!({ "reasoning": self.thought(), "text": self.said(), "tool_calls": calls }))
    }

    /// The same without showing what it thinks.
    #[must_use]
    pub fn calls_with_hidden_reasoning(self) -> Value {
        let mut answer = self.calls();
        answer["reasoning_hidden"] = json!(true);
        answer
    }

    /// The answer with this route's signature.
    #[must_use]
    pub fn signed(self, mut answer: Value) -> Value {
        if !self.signature.is_empty() {
            answer["signature"] = json!(self.signature);
        }
        answer
    }

    /// The answers to one turn: the calls, and an end without a thought.
    #[must_use]
    pub fn turn(self) -> [Value; 2] {
        [self.calls(), json!({ "text": self.done() })]
    }

    /// True for an id of a call that the wire takes. The letters that its own model wrote are legal, whatever they are.
    fn takes_id(self, id: &str) -> bool {
        let extra: &[u8] = if self.longest_id.is_some() { b"_-" } else { b"" };
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || extra.contains(&byte);
        let has_length = self.longest_id.map_or(id.len() == FIXED_ID, |longest| (1..=longest).contains(&id.len()));
        has_length && id.strip_prefix(self.call_ids[0]).unwrap_or(id).bytes().all(is_letter)
    }

    /// Checks that a request holds so many calls, each with its result right behind them, and that their ids are legal
    /// and unique.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn check_ids(self, body: &Value, expected: usize) {
        let (calls, results) = ids(body);
        assert_eq!((&calls, calls.len()), (&results, expected), "{}: {body:#}", self.name);
        let mut unique = calls.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), calls.len(), "{}: {calls:?}", self.name);
        assert!(calls.iter().all(|id| self.takes_id(id)), "{}: {calls:?}", self.name);
    }

    /// How often its thought and its signature stand in a request.
    #[must_use]
    pub fn traces(self, body: &Value) -> (usize, usize) {
        let (mut thoughts, mut signatures) = (0, 0);
        each_string(body, &mut |text| {
            thoughts += text.matches(&self.thought()).count();
            if !self.signature.is_empty() {
                signatures += text.matches(self.signature).count();
            }
        });
        (thoughts, signatures)
    }

    /// What [`Route::traces`] finds where so many of its answers with a thought are native.
    #[must_use]
    pub const fn native_traces(self, answers: usize) -> (usize, usize) {
        (answers, if self.signature.is_empty() { 0 } else { answers })
    }
}

/// The ids of the calls and of the results of a request of any wire, each in order.
#[must_use]
pub fn ids(body: &Value) -> (Vec<String>, Vec<String>) {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    let note = |list: &mut Vec<String>, id: &Value| list.push(id.as_str().expect("an id").to_owned());
    each_object(body, &mut |object| {
        let kind = object.get("type").and_then(Value::as_str);
        match (kind, object.get("role").and_then(Value::as_str)) {
            (Some("tool_use"), _) => note(&mut calls, &object["id"]),
            (Some("tool_result"), _) => note(&mut results, &object["tool_use_id"]),
            (Some("function_call"), _) => note(&mut calls, &object["call_id"]),
            (Some("function_call_output"), _) => note(&mut results, &object["call_id"]),
            // The declaration of a tool has the same type and no id.
            (Some("function"), _) if object.contains_key("id") => note(&mut calls, &object["id"]),
            (_, Some("tool")) => note(&mut results, &object["tool_call_id"]),
            _ => {}
        }
        for (member, list) in [("functionCall", &mut calls), ("functionResponse", &mut results)] {
            if let Some(part) = object.get(member) {
                // Some models of this wire go without ids; then a result belongs to the call of its place.
                let place = json!(list.len().to_string());
                note(list, part.get("id").unwrap_or(&place));
            }
        }
    });
    (calls, results)
}

/// True when the text stands in a string of the request.
#[must_use]
pub fn shows(body: &Value, text: &str) -> bool {
    let mut found = false;
    each_string(body, &mut |string| found |= string.contains(text));
    found
}

fn each_object(value: &Value, see: &mut impl FnMut(&Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            see(object);
            object.values().for_each(|value| each_object(value, see));
        }
        Value::Array(list) => list.iter().for_each(|value| each_object(value, see)),
        _ => {}
    }
}

fn each_string(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Object(object) => object.values().for_each(|value| each_string(value, see)),
        Value::Array(list) => list.iter().for_each(|value| each_string(value, see)),
        _ => {}
    }
}
