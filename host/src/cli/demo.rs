//! `dsh demo`

use std::io::Write;
use std::process::ExitCode;

use clap::Args;

use super::{CommandError, Context};
use crate::demo::{self, Narrator};

/// Arguments of `dsh demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Print one JSON object: where the session file and the provider's request log are
    #[arg(long)]
    json: bool,
}

pub(super) fn run(_: &Context, args: DemoArgs) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| CommandError::failed_text(format!("cannot start the runtime: {e}")))?;
    let mut narrator = if args.json { Narrator::stderr() } else { Narrator::stdout() };
    let outcome = runtime.block_on(demo::run(&mut narrator)).map_err(|error| {
        if args.json {
            print(&serde_json::json!({ "ok": false, "error": error.to_string() }));
        }
        CommandError::failed_text(format!("the demo could not be told to its end: {error}"))
    })?;
    if args.json {
        print(&outcome);
    }
    if outcome.ok {
        return Ok(ExitCode::SUCCESS);
    }
    Err(CommandError::failed_text(format!("the demo's claims do not hold:\n{}", outcome.wrong.join("\n"))))
}

/// One object on stdout. A reader that has left is not told.
fn print<T: serde::Serialize>(value: &T) {
    drop(writeln!(std::io::stdout(), "{}", dsh_plugin_api::json::raw(value)));
}
