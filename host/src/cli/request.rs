//! `dsh request`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{CommandError, Context};

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
    let _ = (context, args);
    Err(CommandError::failed_text("stub"))
}
