//! `dsh sessions`

use std::process::ExitCode;

use clap::Subcommand;

use super::{CommandError, Context};

/// `dsh sessions …`
#[derive(Debug, Subcommand)]
pub enum SessionsCommand {
    /// List the sessions, newest first
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show one session
    Show {
        /// Session id or file
        session: String,
        /// Show the derived messages
        #[arg(long, conflicts_with = "events")]
        messages: bool,
        /// Show the expanded events
        #[arg(long)]
        events: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a session file for damage
    Verify {
        /// Session id or file
        session: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a session in another form to stdout
    Export {
        /// Session id or file
        session: String,
        /// Form of the output
        #[arg(long, value_enum, default_value_t = ExportFormat::Markdown)]
        format: ExportFormat,
    },
}

/// Forms of `dsh sessions export`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum ExportFormat {
    /// The derived messages as a JSON array
    Json,
    /// A readable transcript
    Markdown,
    /// A session log of packed rows
    Dsh,
}

pub(super) fn run(context: &Context, command: SessionsCommand) -> Result<ExitCode, CommandError> {
    let _ = (context, command);
    Err(CommandError::failed_text("stub"))
}
