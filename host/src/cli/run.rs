//! `dsh run`

use std::process::ExitCode;

use clap::Args;

use super::{CommandError, Context};

/// Arguments of `dsh run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Model to ask, as PROVIDER/MODEL [default: the agent's]
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
    let _ = (context, args);
    Err(CommandError::failed_text("stub"))
}
