//! What stands before the conversation: the system prompt and the tools, and how they are logged.

use std::path::Path;

use dsh_plugin_api::vocab::{Target, Tool};

use crate::manifest::Agent;
use crate::session::event::{RequestConfig, RequestHeader};
use crate::tools::BuiltIn;

/// Everything of a request that is not history.
pub(super) struct Preamble {
    pub(super) system: String,
    pub(super) tools: Vec<Tool>,
}

impl Preamble {
    pub(super) fn new(agent: &Agent, cwd: &Path) -> Self {
        let tools = agent.tools.iter().filter_map(|name| BuiltIn::by_name(name)).map(BuiltIn::definition).collect();
        let system = agent.system.clone().unwrap_or_else(|| default_system(cwd));
        Self { system, tools }
    }

    /// What a `request/header` event says of a request.
    pub(super) fn header(&self, target: &Target, agent: &Agent) -> RequestHeader {
        let config = RequestConfig {
            provider: target.provider.clone(),
            model: target.model.clone(),
            max_tokens: agent.max_tokens,
            temperature: agent.temperature,
            reasoning_effort: agent.reasoning_effort.clone(),
        };
        RequestHeader { config, system: self.system.clone(), tools: self.tools.clone() }
    }
}

fn default_system(cwd: &Path) -> String {
    format!(
        "You are an agent that works in a terminal. Your working folder is {}. Use the tools to look and to act \
         instead of guessing, check the results of what you ran, and answer briefly.",
        cwd.display()
    )
}

/// A title from the first prompt: its first line, cut at 40 characters.
pub(super) fn fallback_title(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(40).collect::<String>().trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_first_line_that_says_something() {
        assert_eq!(fallback_title(" \n  fix the build \nplease").as_deref(), Some("fix the build"));
        assert_eq!(fallback_title(&"ü".repeat(50)).map(|title| title.chars().count()), Some(40));
        assert_eq!(fallback_title(" \n"), None);
    }
}
