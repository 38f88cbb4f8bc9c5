//! `dsh mock-provider`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{CommandError, Context};

/// Arguments of `dsh mock-provider`.
#[derive(Debug, Args)]
pub struct MockProviderArgs {
    /// Script (TOML or JSON) of what to answer
    #[arg(long, value_name = "FILE")]
    script: PathBuf,
    /// Port on 127.0.0.1 [default: a free one]
    #[arg(long, default_value_t = 0)]
    port: u16,
}

pub(super) fn run(context: &Context, args: MockProviderArgs) -> Result<ExitCode, CommandError> {
    let _ = (context, args);
    Err(CommandError::failed_text("stub"))
}
