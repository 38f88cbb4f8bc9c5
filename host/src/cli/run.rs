//! `dsh run`: one prompt to completion.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{Block, Failure, FailureCode};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::sessions::transcript::plain;
use super::{CommandError, Context};
use crate::agent::{AgentError, Composition, Session, SessionOptions, TurnEnd, TurnReason, Update, UpdateSink};
use crate::llm::credential;

/// Arguments of `dsh run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Model to ask, as PROVIDER/MODEL [default: the session's last, else the agent's]
    #[arg(short, long, value_name = "PROVIDER/MODEL")]
    model: Option<String>,
    /// Continue this session (an id or a path)
    #[arg(long, value_name = "ID", conflicts_with = "continue_last")]
    session: Option<String>,
    /// Continue the newest session
    #[arg(long = "continue")]
    continue_last: bool,
    /// Print each durable log event as a JSON line, and last a result line
    #[arg(long)]
    json: bool,
    /// What to ask
    prompt: String,
}

pub(super) fn run(context: &Context, args: RunArgs) -> Result<ExitCode, CommandError> {
    if args.prompt.trim().is_empty() {
        return Err(CommandError::usage_text("the prompt is blank", "say what the model should do"));
    }
    let composition = context.composition()?;
    let cwd = std::env::current_dir().map_err(|e| {
        CommandError::usage_text(format!("the current folder cannot be used: {e}"), "run dsh elsewhere")
    })?;
    let reference = match (args.session, args.continue_last) {
        (Some(reference), _) => Some(reference),
        (None, true) => Some(newest(&composition)?),
        (None, false) => None,
    };
    // A new session is not worth creating when its first request cannot go out.
    if reference.is_none() {
        check_model(&composition, args.model.as_deref())?;
    } else if let Some(model) = &args.model {
        check_model(&composition, Some(model))?;
    }
    let options = SessionOptions { model: args.model, cwd };
    super::block_on(async move {
        let output = Arc::new(Output::new(args.json));
        let sink: UpdateSink = {
            let output = Arc::clone(&output);
            Arc::new(move |update| output.take(update))
        };
        let opened = match &reference {
            None => Session::create(Arc::clone(&composition), options, sink).await,
            Some(reference) => Session::resume(Arc::clone(&composition), reference, options, sink).await,
        };
        let mut session = opened.map_err(|e| open_error(e, reference.is_some()))?;
        let cancel = CancellationToken::new();
        cancel_on_signal(cancel.clone());
        let end = session.prompt(vec![Block::Text(args.prompt)], &cancel).await;
        Ok(output.finish(session.id(), end))
    })
}

/// The id of the session that was created last.
fn newest(composition: &Composition) -> Result<String, CommandError> {
    let listed = composition.store.list().map_err(|e| CommandError::failed_text(e.to_string()))?;
    listed.into_iter().find(|entry| entry.messages.is_ok()).map(|entry| entry.id).ok_or_else(|| {
        CommandError::usage_text(
            format!("there is no session to continue in {}", composition.store.dir().display()),
            "start one without --continue",
        )
    })
}

fn open_error(error: AgentError, given: bool) -> CommandError {
    match error {
        AgentError::Store(e) if given => CommandError::failed_text(e.to_string()),
        other => CommandError::failed_text(other.to_string()),
    }
}

/// Refuses a model that does not exist or whose credential is not set, before anything is created.
fn check_model(composition: &Composition, model: Option<&str>) -> Result<(), CommandError> {
    let registry = &composition.registry;
    let agent = composition.manifest.agents.get("default").and_then(|agent| agent.model.clone());
    let Some(model) = model.map(str::to_owned).or(agent) else {
        return Err(CommandError::usage_text(
            "no model is named",
            "give one with -m PROVIDER/MODEL, or set model in [agent] of the manifest; `dsh models` lists them",
        ));
    };
    let (route, target) = registry.resolve(&model).map_err(|failure| {
        CommandError::usage_text(failure.message, "`dsh models` lists what there is, `dsh plugins list` what is loaded")
    })?;
    let Some(reference) = &route.credential else { return Ok(()) };
    if credential::is_set(reference) {
        return Ok(());
    }
    Err(CommandError::usage_text(
        format!("{target} needs the credential {reference}, and it is not set"),
        missing_help(composition, reference),
    ))
}

/// What to do about a missing credential: set it, or use a route that works now.
fn missing_help(composition: &Composition, reference: &str) -> String {
    let routes = composition.registry.routes.values();
    let model =
        |route: &crate::llm::registry::Route| Some(format!("{}/{}", route.info.name, route.info.models.first()?.id));
    let mut looked_for: Vec<&str> = routes.clone().filter_map(|route| route.credential.as_deref()).collect();
    looked_for.sort_unstable();
    looked_for.dedup();
    let ready = routes
        .clone()
        .filter(|route| route.credential.as_deref().is_some_and(credential::is_set))
        .find_map(|route| model(route));
    let keyless = routes.filter(|route| route.info.origin.is_none()).find_map(|route| model(route));
    let mut help = format!("set it with `export {reference}=…`");
    if let Some(ready) = ready {
        help.push_str(&format!(", or use a route whose credential is set: `dsh run -m {ready} …`"));
    } else {
        help.push_str(&format!(". This composition looks for {}; none is set", looked_for.join(", ")));
    }
    if let Some(keyless) = keyless {
        help.push_str(&format!(". Without any credential: `dsh run -m {keyless} …`, or `dsh demo`"));
    }
    help
}

/// The first SIGINT or SIGTERM ends the turn and keeps what there is; a second one ends the process.
fn cancel_on_signal(cancel: CancellationToken) {
    tokio::spawn(async move {
        super::interrupted().await;
        eprintln!("dsh: stopping; press Ctrl-C again to end at once");
        cancel.cancel();
        super::interrupted().await;
        std::process::exit(130);
    });
}

/// Prints a turn: text to stdout as it streams, or each durable event as a line; everything else to stderr.
struct Output {
    json: bool,
    /// Whether the last text ended a line; decides where stderr lines may go without tearing the answer.
    at_line_start: Mutex<bool>,
    /// Why stdout did not take everything; the first reason.
    unwritten: Mutex<Option<std::io::Error>>,
}

impl Output {
    fn new(json: bool) -> Self {
        Self { json, at_line_start: Mutex::new(true), unwritten: Mutex::new(None) }
    }

    fn take(&self, update: Update) {
        match update {
            Update::Durable(events) if self.json => {
                let lines: Vec<String> = events.iter().map(|event| raw(&**event).get().to_owned() + "\n").collect();
                self.write(&lines.concat());
            }
            Update::Text(text) if !self.json => {
                self.write(&text);
                if let Some(last) = text.chars().last() {
                    *self.line_start() = last == '\n';
                }
            }
            Update::ToolCall { name, arguments, .. } => {
                self.note(&format!("· {} {}", one_line(&name), one_line(&arguments)));
            }
            Update::ToolResult { content, is_error: true, .. } => {
                let text = content.iter().map(|block| if let Block::Text(text) = block { text.as_str() } else { "" });
                self.note(&format!("· failed: {}", one_line(&text.collect::<String>())));
            }
            Update::Degraded(degraded) => self.note(&format!(
                "warning: {} message {} goes out without its replay metadata: {}",
                degraded.code, degraded.message, degraded.reason
            )),
            Update::Retry { retry, max_retries, delay_ms, failure } => self.note(&format!(
                "retry {retry} of {max_retries} in {delay_ms} ms: {}: {}",
                failure.code, failure.message
            )),
            Update::AttemptDiscarded => self.note("the answer above broke off; it is asked for again"),
            Update::Notice(text) => self.note(&text),
            Update::Durable(_)
            | Update::Text(_)
            | Update::Reasoning(_)
            | Update::ToolResult { is_error: false, .. } => {}
        }
    }

    fn line_start(&self) -> std::sync::MutexGuard<'_, bool> {
        self.at_line_start.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader that went away is no reason to stop a turn. Another failure is told at its end.
    fn write(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush())
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    /// A line for the person on stderr.
    fn note(&self, text: &str) {
        let mut at_line_start = self.line_start();
        if !*at_line_start && std::io::stderr().is_terminal() {
            eprintln!();
            *at_line_start = true;
        }
        // Names and messages come from models and providers: nothing of theirs may steer a terminal.
        eprintln!("dsh: {}", plain(text));
    }

    /// Prints the end of the turn and says how the process ends.
    fn finish(&self, session: &str, end: Result<TurnEnd, AgentError>) -> ExitCode {
        let unlogged = matches!(&end, Err(AgentError::Store(_)));
        let end = end.unwrap_or_else(|error| {
            let failure = match error {
                AgentError::Failure(failure) => failure,
                AgentError::Store(error) => Failure::new(FailureCode::from("STORE"), error.to_string()),
            };
            TurnEnd {
                reason: TurnReason::Error { failure },
                text: String::new(),
                degraded: Vec::new(),
                usage: Default::default(),
            }
        });
        if self.json {
            let result = json!({
                "type": "result",
                "sessionId": session,
                "reason": end.reason,
                "text": end.text,
                "degraded": end.degraded,
                "usage": end.usage,
            });
            self.write(&format!("{result}\n"));
        } else {
            if !*self.line_start() {
                self.write("\n");
                *self.line_start() = true;
            }
            let again = format!("continue with `dsh run --session {session} …`");
            match &end.reason {
                TurnReason::Completed => {}
                TurnReason::MaxTokens => self.note(&format!("the answer was cut off by the output limit; {again}")),
                TurnReason::MaxSteps => self.note(&format!("the turn reached its limit of steps; {again}")),
                TurnReason::Aborted => self.note(&format!("stopped; {again}")),
                TurnReason::Error { failure } => {
                    self.note(&format!("the turn failed: {}: {}", failure.code, failure.message));
                    match unlogged {
                        true => self.note(&format!("what came after the last checkpoint is not in the log; {again}")),
                        false => self.note(&format!("nothing is lost; {again}")),
                    }
                }
            }
        }
        if let Some(error) = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.note(&format!("stdout cannot be written ({error}); the answer is in session {session}"));
            return ExitCode::FAILURE;
        }
        match end.reason {
            TurnReason::Completed | TurnReason::MaxTokens | TurnReason::MaxSteps => ExitCode::SUCCESS,
            TurnReason::Aborted | TurnReason::Error { .. } => ExitCode::FAILURE,
        }
    }
}

/// The first line of a text, cut at 100 characters.
fn one_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(100).collect();
    if short.len() < text.trim().len() {
        short.push('…');
    }
    short
}
