//! `dsh plugins`

use std::process::ExitCode;

use clap::Subcommand;

use super::{CommandError, Context};

/// `dsh plugins …`
#[derive(Debug, Subcommand)]
pub enum PluginsCommand {
    /// List the adapters, loaded or not
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(context: &Context, command: PluginsCommand) -> Result<ExitCode, CommandError> {
    let _ = (context, command);
    Err(CommandError::failed_text("stub"))
}
