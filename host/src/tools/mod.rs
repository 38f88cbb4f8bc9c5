//! The tools that an agent may call.
//!
//! A tool gets the raw JSON text of its arguments and answers with content blocks for the model. Bad arguments and
//! failures are answers, not errors of the host: the model reads them and can act.

mod bash;
mod capture;

use std::path::Path;
use std::pin::Pin;

use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{Block, Tool};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// A tool that is part of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltIn {
    /// Runs a command with `bash -c`.
    Bash,
}

/// What a tool runs in.
#[derive(Debug, Clone, Copy)]
pub struct ToolContext<'a> {
    /// Working folder, absolute.
    pub cwd: &'a Path,
    /// Environment variables that tools must not see: the manifest's credential references.
    pub hidden_env: &'a [String],
}

/// What the model gets.
#[derive(Debug, Clone)]
pub struct ToolOutput {
    /// Text blocks.
    pub content: Vec<Block>,
    /// True when the tool failed.
    pub is_error: bool,
    /// True when the user stopped it while it ran.
    pub aborted: bool,
}

impl ToolOutput {
    /// A text answer.
    #[must_use]
    pub fn text(text: impl Into<String>, is_error: bool) -> Self {
        Self { content: vec![Block::Text(text.into())], is_error, aborted: false }
    }
}

/// Runs the calls of a session. [`BuiltIns`] does so for real; whoever drives the agent loop without the world around it
/// puts something else in its place.
pub trait RunTool: Send + Sync {
    /// Runs a call of `tool` with these arguments, a JSON object's text or nothing. Cancelling ends it soon, with
    /// [`ToolOutput::aborted`].
    fn run<'a>(
        &'a self,
        tool: BuiltIn,
        arguments: &'a str,
        context: ToolContext<'a>,
        cancel: &'a CancellationToken,
    ) -> Running<'a>;
}

/// A call that runs.
pub type Running<'a> = Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>>;

/// The tools of this build.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIns;

impl RunTool for BuiltIns {
    fn run<'a>(
        &'a self,
        tool: BuiltIn,
        arguments: &'a str,
        context: ToolContext<'a>,
        cancel: &'a CancellationToken,
    ) -> Running<'a> {
        Box::pin(tool.run(arguments, context, cancel))
    }
}

impl BuiltIn {
    /// Every tool of this build.
    pub const ALL: [Self; 1] = [Self::Bash];
    /// Their names, in the same order.
    pub const NAMES: [&str; 1] = [Self::Bash.name()];

    /// The tool of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Its name, as in the manifest and towards the model.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
        }
    }

    /// What the model is told of it.
    #[must_use]
    pub fn definition(self) -> Tool {
        let (description, parameters) = match self {
            Self::Bash => (bash::description(), bash::parameters()),
        };
        Tool { name: self.name().to_owned(), description, parameters: raw(&parameters) }
    }

    /// Runs it. Cancelling kills what it started and answers with an error.
    pub async fn run(self, arguments: &str, context: ToolContext<'_>, cancel: &CancellationToken) -> ToolOutput {
        match self {
            Self::Bash => match parse_arguments(self, arguments) {
                Ok(arguments) => bash::run(arguments, context, cancel).await,
                Err(output) => output,
            },
        }
    }
}

/// Reads a call's arguments; empty text stands for `{}`. The error tells the model what to send instead.
fn parse_arguments<T: DeserializeOwned>(tool: BuiltIn, arguments: &str) -> Result<T, ToolOutput> {
    let text = if arguments.trim().is_empty() { "{}" } else { arguments };
    dsh_plugin_api::json::from_str(text).map_err(|e| {
        let schema = tool.definition().parameters;
        let name = tool.name();
        ToolOutput::text(
            format!(
                "The call was not run: the arguments of {name} do not fit its schema: {e}. The schema is {}",
                schema.get()
            ),
            true,
        )
    })
}

/// Why a call of an attempt cannot be run, when its arguments are not a JSON object; `None` when they are.
///
/// Such a call was cut off or garbled by the provider. It never runs, whatever the tool would make of it.
#[must_use]
pub fn unparseable(arguments: &str) -> Option<String> {
    if arguments.trim().is_empty() {
        return None;
    }
    match dsh_plugin_api::json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments) {
        Ok(_) => None,
        Err(e) => Some(format!(
            "The call was not run: its arguments are not a JSON object ({e}). They may have been cut off. \
             Send the call again with complete arguments."
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_json_object_can_run() {
        for (arguments, runs) in [
            ("", true),
            (" ", true),
            ("{}", true),
            (r#"{"a":1}"#, true),
            (r#"{"a":"#, false),
            ("[]", false),
            ("7", false),
        ] {
            assert_eq!(unparseable(arguments).is_none(), runs, "{arguments:?}");
        }
    }

    #[tokio::test]
    async fn arguments_that_do_not_fit_the_schema_are_answered_with_it() {
        let context = ToolContext { cwd: Path::new("/"), hidden_env: &[] };
        let output = BuiltIn::Bash.run(r#"{"comand":"ls"}"#, context, &CancellationToken::new()).await;
        let Block::Text(text) = &output.content[0] else { panic!("no text") };
        assert!(output.is_error && text.contains("comand") && text.contains("\"command\""), "{text}");
    }
}
