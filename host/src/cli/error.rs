//! How a command fails: an exit code and a report.

use std::process::ExitCode;

/// A failed command.
#[derive(Debug)]
pub struct CommandError {
    exit: u8,
    report: miette::Report,
}

impl CommandError {
    /// Bad usage or a bad manifest: exit code 2.
    pub fn usage(report: impl Into<miette::Report>) -> Self {
        Self { exit: 2, report: report.into() }
    }

    /// Bad usage, said in words; `help` says what to do.
    pub fn usage_text(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::usage(miette::miette!(help = help.into(), "{}", message.into()))
    }

    /// The turn or the check failed: exit code 1.
    pub fn failed(report: impl Into<miette::Report>) -> Self {
        Self { exit: 1, report: report.into() }
    }

    /// A failure, said in words.
    pub fn failed_text(message: impl Into<String>) -> Self {
        Self::failed(miette::miette!("{}", message.into()))
    }

    /// Prints the report to stderr.
    #[must_use]
    pub fn report(&self) -> ExitCode {
        eprintln!("{:?}", self.report);
        ExitCode::from(self.exit)
    }
}
