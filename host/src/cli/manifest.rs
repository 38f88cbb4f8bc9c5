//! `dsh manifest`

use std::process::ExitCode;

use clap::Subcommand;

use super::{CommandError, Context};

/// `dsh manifest …`
#[derive(Debug, Subcommand)]
pub enum ManifestCommand {
    /// Validate the manifest and load what it names
    Check,
}

pub(super) fn run(context: &Context, command: ManifestCommand) -> Result<ExitCode, CommandError> {
    let _ = (context, command);
    Err(CommandError::failed_text("stub"))
}
