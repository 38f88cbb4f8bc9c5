//! `dsh demo`

use std::process::ExitCode;

use clap::Args;

use super::{CommandError, Context};

/// Arguments of `dsh demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Print one JSON object: where the session file and the provider's request log are
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &Context, args: DemoArgs) -> Result<ExitCode, CommandError> {
    let _ = (context, args);
    Err(CommandError::failed_text("stub"))
}
