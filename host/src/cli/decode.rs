//! `dsh decode`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{CommandError, Context};

/// Arguments of `dsh decode`.
#[derive(Debug, Args)]
pub struct DecodeArgs {
    /// Whose decoder to use, as PROVIDER/MODEL
    #[arg(short, long, value_name = "PROVIDER/MODEL")]
    model: String,
    /// HTTP status of the response
    #[arg(long, default_value_t = 200, value_name = "N")]
    status: u16,
    /// Response header, as "Name: value"; may be given several times
    #[arg(long, value_name = "K: V")]
    header: Vec<String>,
    /// Feed the bytes in pieces of this many
    #[arg(long, value_name = "BYTES")]
    split: Option<usize>,
    /// The connection broke at the end of the bytes
    #[arg(long)]
    cut: bool,
    /// Captured response body
    file: PathBuf,
}

pub(super) fn run(context: &Context, args: DecodeArgs) -> Result<ExitCode, CommandError> {
    let _ = (context, args);
    Err(CommandError::failed_text("stub"))
}
