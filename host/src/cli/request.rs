//! `dsh request`: the provider request that would be sent.
//!
//! A request of the polled exchange has no HTTP form. It is shown with method `POLL`, the URL `poll:PROVIDER/MODEL`, no
//! headers, and the value that the adapter's decoder would be opened with as its body.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::vocab::{Exchange, Failure, HeaderValue, HttpRequest, Repair, Request, Source, Target, Tool};
use serde::Serialize;

use super::{CommandError, Context};
use crate::agent::spared_routes;
use crate::llm::prepare::{Degraded, HistoryMessage, Neutral, Prepared, Replay, RequestInput, prepare};
use crate::llm::registry::Route;
use crate::llm::view::RepairKind;
use crate::manifest::Manifest;
use crate::session::event::kind;
use crate::store::Log;

/// Arguments of `dsh request`.
#[derive(Debug, Args)]
pub struct RequestArgs {
    /// Where the request would go, as PROVIDER/MODEL
    #[arg(short, long, value_name = "PROVIDER/MODEL")]
    model: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Build the request from this session (an id or a path)
    #[arg(long, value_name = "ID", conflicts_with = "file")]
    session: Option<String>,
    /// Request file: {"system"?, "messages", "tools"?, "maxTokens"?, "temperature"?, "reasoningEffort"?}
    #[arg(required_unless_present = "session")]
    file: Option<PathBuf>,
}

pub(super) fn run(context: &Context, args: RequestArgs) -> Result<ExitCode, CommandError> {
    let manifest = context.manifest()?;
    let registry = context.registry(&manifest)?;
    let (route, target) = registry
        .resolve(&args.model)
        .map_err(|failure| CommandError::usage_text(failure.message, "`dsh models` lists what the manifest serves"))?;
    let failed = |failure| CommandError::failed_text(format!("{target}: {failure}"));
    let prepared = match (&args.session, &args.file) {
        (Some(session), _) => {
            let log = context.store().read(session).map_err(|e| CommandError::failed_text(e.to_string()))?;
            prepare_session(&log, &manifest, &route, &target).map_err(failed)?
        }
        (None, Some(file)) => prepare(&route, &target, &input_of_file(file)?, Replay::Routed).map_err(failed)?,
        (None, None) => return Err(CommandError::usage_text("there is no request", "name a file or a --session")),
    };
    let shown = Shown::of(&prepared);
    let mut out = io::stdout().lock();
    let written = if args.json {
        for degraded in &prepared.degraded {
            eprintln!("warning: {}", degraded.describe());
        }
        writeln!(out, "{}", raw(&shown).get())
    } else {
        shown.print(&mut out)
    };
    match written {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::failed_text(format!("cannot write to stdout: {e}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The request in a file. A message may carry `"interrupted": true`, the mark that a log keeps beside it.
fn input_of_file(file: &Path) -> Result<RequestInput, CommandError> {
    let bytes = std::fs::read(file)
        .map_err(|e| CommandError::usage_text(format!("cannot read {}: {e}", file.display()), "name a request file"))?;
    let request: Request = json::from_slice(&bytes).map_err(|e| {
        let place = format!("{}:{}:{}", file.display(), e.line(), e.column());
        let text = e.to_string();
        let text = text.split(" at line ").next().unwrap_or_default();
        CommandError::usage_text(
            format!("{place}: {text}"),
            "a request file is {\"system\"?, \"messages\": [...], \"tools\"?, \"maxTokens\"?, \"temperature\"?, \"reasoningEffort\"?}",
        )
    })?;
    let mut input = RequestInput::from(request);
    for entry in &mut input.history {
        entry.interrupted = entry.message.extra.take("interrupted").is_some_and(|mark| mark.get() == "true");
    }
    Ok(input)
}

/// The next request of a session to this model, with the repairs that recovery made. What its route refused of the
/// session before is left out.
pub(super) fn prepare_session(
    log: &Log,
    manifest: &Manifest,
    route: &Arc<Route>,
    target: &Target,
) -> Result<Prepared, Failure> {
    let spared = spared_routes(log.events.singles()).remove(&target.provider).unwrap_or_default();
    let input = RequestInput { images_from: spared.images_from, ..input_of_session(log, manifest) };
    let mut prepared = prepare(route, target, &input, spared.replay())?;
    prepared.repairs.extend(closed_calls(log));
    prepared.repairs.sort_by_key(|repair| repair.message);
    Ok(prepared)
}

/// The next request of a session: its history, the system prompt and tools that it last used, and the limits of the
/// manifest's default agent.
fn input_of_session(log: &Log, manifest: &Manifest) -> RequestInput {
    let header = log
        .events
        .singles()
        .rev()
        .filter(|event| event.kind == kind::REQUEST_HEADER)
        .find_map(|event| json::from_str::<Object>(event.data.get()).ok()?.take_as::<Object>("header"));
    let agent = manifest.default_agent();
    let mut input = RequestInput {
        history: log.history().into_iter().map(HistoryMessage::from).collect(),
        max_tokens: agent.max_tokens,
        temperature: agent.temperature,
        reasoning_effort: agent.reasoning_effort,
        ..RequestInput::default()
    };
    if let Some(mut header) = header {
        input.system = header.take_as("system");
        input.tools = header.take_as::<Vec<Tool>>("tools").unwrap_or_default();
    }
    input
}

/// The results that recovery gave to calls whose process died. They are not in the file yet, so the request shows
/// them as the repairs they are.
fn closed_calls(log: &Log) -> Vec<Repair> {
    let stored = log.events.len() - log.recovered;
    let history = log.history().into_iter().enumerate();
    let closed =
        history.filter(|(_, entry)| entry.seq >= stored && matches!(entry.message.source, Source::Tool { .. }));
    closed.map(|(message, _)| Repair { message, kind: RepairKind::UnansweredCall.name().to_owned() }).collect()
}

/// The fixed JSON form.
#[derive(Serialize)]
struct Shown<'a> {
    method: &'a str,
    url: String,
    headers: Object,
    body: &'a Raw,
    degraded: &'a [Degraded],
    neutral: &'a [Neutral],
    repairs: &'a [Repair],
}

impl<'a> Shown<'a> {
    fn of(prepared: &'a Prepared) -> Self {
        let (method, url, headers, body) = match &prepared.exchange {
            Exchange::Http(request) => (request.method.as_str(), request.url.clone(), headers(request), &request.body),
            Exchange::Polled(value) => ("POLL", format!("poll:{}", prepared.target), Object::new(), value),
        };
        let Prepared { degraded, neutral, repairs, .. } = prepared;
        Self { method, url, headers, body, degraded, neutral, repairs }
    }

    /// For a person.
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{} {}", self.method, self.url)?;
        for (name, value) in self.headers.iter() {
            writeln!(out, "{name}: {}", json::from_str::<String>(value.get()).unwrap_or_default())?;
        }
        writeln!(out, "\n{}\n", pretty(self.body.get()))?;
        for degraded in self.degraded {
            writeln!(out, "degraded: {}", degraded.describe())?;
        }
        for neutral in self.neutral {
            writeln!(out, "neutral: message {} goes out provider-neutral: {}", neutral.message, neutral.reason)?;
        }
        for repair in self.repairs {
            writeln!(out, "repair: message {}: {}", repair.message, explain(&repair.kind))?;
        }
        Ok(())
    }
}

/// Name and meaning of a repair. Those of adapters have a name only.
pub(super) fn explain(kind: &str) -> String {
    match RepairKind::ALL.iter().find(|known| known.name() == kind) {
        Some(known) => format!("{kind}: {}", known.description()),
        None => kind.to_owned(),
    }
}

/// Names and values; secrets by reference only. A name that comes twice has its values joined (RFC 9110, 5.3).
fn headers(request: &HttpRequest) -> Object {
    let mut headers = Object::new();
    for header in &request.headers {
        let value = match &header.value {
            HeaderValue::Text(text) => text.clone(),
            HeaderValue::Credential { reference, prefix } => format!("{prefix}<credential {reference}>"),
        };
        let name = header.name.to_ascii_lowercase();
        let value = headers.get_str(&name).map_or(value.clone(), |earlier| format!("{earlier}, {value}"));
        headers.set(&name, raw(&value));
    }
    if headers.get("content-type").is_none() {
        headers.set("content-type", raw("application/json"));
    }
    headers
}

/// Valid JSON with line breaks and indentation, its tokens as they stand.
fn pretty(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0usize;
    let mut in_string = false;
    let mut escaped = false;
    let mut opened = false;
    let break_line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    for c in text.chars() {
        if in_string {
            out.push(c);
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        if c.is_ascii_whitespace() {
            continue;
        }
        if matches!(c, '}' | ']') {
            depth = depth.saturating_sub(1);
            if !opened {
                break_line(&mut out, depth);
            }
        } else if opened {
            break_line(&mut out, depth);
        }
        out.push(c);
        opened = matches!(c, '{' | '[');
        match c {
            '{' | '[' => depth += 1,
            ',' => break_line(&mut out, depth),
            ':' => out.push(' '),
            '"' => in_string = true,
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::vocab::HttpHeader;

    use super::*;

    fn request(headers: Vec<(&str, HeaderValue)>) -> HttpRequest {
        let headers = headers.into_iter().map(|(name, value)| HttpHeader { name: name.to_owned(), value }).collect();
        HttpRequest {
            method: "POST".to_owned(),
            url: "https://x".to_owned(),
            headers,
            body: raw(&serde_json::json!({})),
        }
    }

    #[test]
    fn headers_name_secrets_and_never_hold_them() {
        let secret = HeaderValue::Credential { reference: "KEY".to_owned(), prefix: "Bearer ".to_owned() };
        let bare = HeaderValue::Credential { reference: "KEY".to_owned(), prefix: String::new() };
        let text = |text: &str| HeaderValue::Text(text.to_owned());
        let headers = headers(&request(vec![
            ("authorization", secret),
            ("X-Api-Key", bare),
            ("beta", text("a")),
            ("beta", text("b")),
        ]));
        assert_eq!(
            raw(&headers).get(),
            r#"{"authorization":"Bearer <credential KEY>","x-api-key":"<credential KEY>","beta":"a, b","content-type":"application/json"}"#
        );
        let own = request(vec![("content-type", text("application/x"))]);
        assert_eq!(raw(&super::headers(&own)).get(), r#"{"content-type":"application/x"}"#);
    }

    #[test]
    fn pretty_json_keeps_every_token() {
        let text = r#"{"a":[],"b":{"c":12345678901234567890123,"d":"x \"{,}\\"},"e":[1,{}]}"#;
        let expected = "{\n  \"a\": [],\n  \"b\": {\n    \"c\": 12345678901234567890123,\n    \"d\": \"x \\\"{,}\\\\\"\n  },\n  \"e\": [\n    1,\n    {}\n  ]\n}";
        assert_eq!(pretty(text), expected);
    }

    #[test]
    fn a_request_file_may_mark_interrupted_answers_and_says_where_it_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("request.json");
        std::fs::write(
            &file,
            r#"{"system":"s","messages":[{"role":"assistant","content":[],"interrupted":true},{"role":"user","content":[],"interrupted":"x"}]}"#,
        )
        .unwrap();
        let input = input_of_file(&file).unwrap();
        assert_eq!(input.history.iter().map(|entry| entry.interrupted).collect::<Vec<_>>(), [true, false]);
        assert!(input.history[0].message.extra.is_empty());
        std::fs::write(&file, "{\n  \"messages\": 7\n}").unwrap();
        let error = format!("{:?}", input_of_file(&file).unwrap_err());
        assert!(error.contains("request.json:2:"), "{error}");
    }
}
