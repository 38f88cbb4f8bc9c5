//! The steps of a scenario: what its client does.

use serde::Deserialize;

use super::client::Permission;
use super::folder::MAIN;

/// One step. A session is meant by its name, `main` where none is given; each runs one prompt at a time.
///
/// `fails` is the code of the error that the agent has to answer with. Any other error fails the scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "step", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub(super) enum Step {
    /// Starts `dsh acp` where none runs, and says hello.
    Initialize {
        fails: Option<i64>,
    },
    NewSession {
        session: Option<String>,
        fails: Option<i64>,
    },
    /// Loads a session that `newSession` made, or that lies in `sessions/` under this name.
    LoadSession {
        session: Option<String>,
        fails: Option<i64>,
    },
    /// Sends a prompt and waits for its answer, or only until something has happened.
    Prompt {
        session: Option<String>,
        text: String,
        /// The agent's text has these words.
        until: Option<String>,
        /// The working folder has this file.
        until_file: Option<String>,
        /// Answers to the permission requests that come from here on, in order.
        #[serde(default)]
        permissions: Vec<Permission>,
        fails: Option<i64>,
    },
    /// Cancels the prompt that was left running, and waits for its answer.
    Cancel {
        session: Option<String>,
    },
    /// Sets a config option of a session.
    SetConfig {
        session: Option<String>,
        option: String,
        value: String,
        fails: Option<i64>,
    },
    /// Closes the input, and waits until the process has ended.
    Close {},
    /// Kills the process with SIGKILL; with `onceLogged` not before the streamed text in the log of `session` has these
    /// words.
    Kill {
        session: Option<String>,
        once_logged: Option<String>,
    },
}

impl Step {
    /// The session that the step makes or loads.
    pub fn opens(&self) -> Option<String> {
        match self {
            // A session that cannot be made or loaded has no log to compare.
            Self::NewSession { fails: Some(_), .. } | Self::LoadSession { fails: Some(_), .. } => None,
            Self::NewSession { session, .. } | Self::LoadSession { session, .. } => Some(name(session.as_deref())),
            _ => None,
        }
    }
}

/// The name of a session.
pub(super) fn name(session: Option<&str>) -> String {
    session.unwrap_or(MAIN).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_misspelt_is_an_error() {
        for wrong in [
            r#"{ "step": "promt", "text": "a" }"#,
            r#"{ "step": "prompt", "txt": "a" }"#,
            r#"{ "step": "prompt", "text": "a", "untill": "b" }"#,
            r#"{ "step": "kill", "once_logged": "a" }"#,
            r#"{ "step": "cancel", "text": "a" }"#,
            r#"{ "step": "prompt", "text": "a", "permissions": ["yes"] }"#,
        ] {
            assert!(serde_json::from_str::<Step>(wrong).is_err(), "{wrong}");
        }
        let kill: Step = serde_json::from_str(r#"{ "step": "kill", "onceLogged": "a" }"#).unwrap();
        assert!(matches!(kill, Step::Kill { once_logged: Some(words), session: None } if words == "a"));
        let prompt = r#"{ "step": "prompt", "text": "a", "permissions": ["allow_once", "cancelled"] }"#;
        let prompt: Step = serde_json::from_str(prompt).unwrap();
        let expected = [Permission::AllowOnce, Permission::Cancelled];
        assert!(matches!(prompt, Step::Prompt { permissions, .. } if permissions == expected));
    }

    #[test]
    fn a_session_that_is_not_opened_has_no_log() {
        let opens = |text: &str| serde_json::from_str::<Step>(text).unwrap().opens();
        assert_eq!(opens(r#"{ "step": "newSession" }"#).as_deref(), Some("main"));
        assert_eq!(opens(r#"{ "step": "loadSession", "session": "old" }"#).as_deref(), Some("old"));
        assert_eq!(opens(r#"{ "step": "loadSession", "session": "old", "fails": -32002 }"#), None);
    }
}
