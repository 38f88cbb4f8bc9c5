//! `dsh models`

use std::process::ExitCode;

use clap::Args;

use super::{CommandError, Context};

/// Arguments of `dsh models`.
#[derive(Debug, Args)]
pub struct ModelsArgs {
    /// Only this provider route
    provider: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &Context, args: ModelsArgs) -> Result<ExitCode, CommandError> {
    let _ = (context, args);
    Err(CommandError::failed_text("stub"))
}
