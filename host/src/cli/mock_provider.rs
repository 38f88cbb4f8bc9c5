//! `dsh mock-provider`

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::{CommandError, Context};
use crate::mock::{MockError, MockProvider, Script, ScriptError};

/// Arguments of `dsh mock-provider`.
#[derive(Debug, Args)]
pub struct MockProviderArgs {
    /// Script (TOML or JSON) of what to answer
    #[arg(long, value_name = "FILE")]
    script: PathBuf,
    /// Port on 127.0.0.1 [default: a free one]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// File that received requests are written to, one JSON object a line [default: the script's `log`]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

pub(super) fn run(_: &Context, args: MockProviderArgs) -> Result<ExitCode, CommandError> {
    let script = Script::load(&args.script).map_err(|error| {
        let help = match &error {
            ScriptError::Read { .. } => "give a readable file with --script FILE",
            ScriptError::Form { .. } | ScriptError::Response { .. } => "docs/mock-provider.md describes the script",
        };
        CommandError::usage_text(error.to_string(), help)
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| CommandError::failed_text(format!("cannot start the runtime: {e}")))?;
    runtime.block_on(serve(script, args))
}

async fn serve(script: Script, args: MockProviderArgs) -> Result<ExitCode, CommandError> {
    let failed = |e: std::io::Error| CommandError::failed_text(format!("cannot wait for signals: {e}"));
    // Before the URL is printed: who reads it may send the signal at once.
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let provider = MockProvider::start(script, args.log.as_deref(), args.port).await.map_err(|error| {
        let help = match &error {
            MockError::Listen { .. } => "give another port with --port N, or none for a free one",
            MockError::Log { .. } => "give a file in a folder that exists with --log FILE",
        };
        CommandError::usage_text(error.to_string(), help)
    })?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", provider.url())
        .and_then(|()| stdout.flush())
        .map_err(|e| CommandError::failed_text(format!("cannot print the URL: {e}")))?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(ExitCode::SUCCESS)
}
