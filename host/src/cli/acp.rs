//! `dsh acp`

use std::process::ExitCode;

use clap::Args;

use super::{CommandError, Context};
use crate::acp;

/// Arguments of `dsh acp`.
#[derive(Debug, Args)]
pub struct AcpArgs {}

/// Serves until the client closes stdin, or SIGINT or SIGTERM arrives; both are an orderly end.
pub(super) fn run(context: &Context, AcpArgs {}: AcpArgs) -> Result<ExitCode, CommandError> {
    let composition = context.composition()?;
    super::block_on(super::Threads::Two, async move {
        acp::serve(composition, tokio::io::stdin(), tokio::io::stdout(), super::interrupted())
            .await
            .map_err(|error| CommandError::failed_text(error.to_string()))?;
        Ok(ExitCode::SUCCESS)
    })
}
