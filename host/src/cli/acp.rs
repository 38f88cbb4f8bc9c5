//! `dsh acp`

use std::process::ExitCode;

use clap::Args;

use super::{CommandError, Context};

/// Arguments of `dsh acp`.
#[derive(Debug, Args)]
pub struct AcpArgs {}

pub(super) fn run(context: &Context, args: AcpArgs) -> Result<ExitCode, CommandError> {
    let _ = (context, args);
    Err(CommandError::failed_text("stub"))
}
