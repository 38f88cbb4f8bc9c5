//! `dsh run`: one prompt to completion.

mod output;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use dsh_plugin_api::vocab::Block;
use tokio_util::sync::CancellationToken;

use super::{CommandError, Context};
use crate::agent::{AgentError, Composition, Session, SessionOptions, UpdateSink};
use crate::llm::credential;
use crate::store::StoreError;
use output::Output;
pub(super) use output::describe;

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
    super::block_on(super::Threads::One, async move {
        let output = Arc::new(Output::new(args.json));
        let sink: UpdateSink = {
            let output = Arc::clone(&output);
            Arc::new(move |update| output.take(update))
        };
        let opened = match &reference {
            None => Session::create(Arc::clone(&composition), options, sink).await,
            Some(reference) => Session::resume(Arc::clone(&composition), reference, options, sink).await,
        };
        let mut session = opened.map_err(|e| open_error(&e))?;
        check_model(&composition, session.model().as_deref())?;
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

fn open_error(error: &AgentError) -> CommandError {
    match error {
        AgentError::Store(StoreError::NotFound { .. } | StoreError::InvalidId(_)) => {
            CommandError::usage_text(error.to_string(), "give an id from `dsh sessions list`, or a file")
        }
        AgentError::Store(_) | AgentError::Failure(_) => CommandError::failed_text(error.to_string()),
    }
}

/// Refuses a model that does not exist or whose credential is not set, before anything is created.
fn check_model(composition: &Composition, model: Option<&str>) -> Result<(), CommandError> {
    let registry = &composition.registry;
    let agent = composition.manifest.default_agent().model;
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

/// The first SIGINT or SIGTERM ends the turn and keeps what there is; a second one ends the process. They are watched by
/// a thread of their own: the turn's may be writing to a pipe that nobody reads.
fn cancel_on_signal(cancel: CancellationToken) {
    let watch = move || -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            super::interrupted().await;
            eprintln!("dsh: stopping; press Ctrl-C again to end at once");
            cancel.cancel();
            super::interrupted().await;
            std::process::exit(130);
        })
    };
    let report = |error: std::io::Error| tracing::warn!(%error, "a signal will end the process at once");
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Err(error) = watch() {
            report(error);
        }
    });
    if let Err(error) = thread {
        report(error);
    }
}
