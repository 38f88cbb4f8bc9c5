//! A session for people: roles, words, dimmed reasoning, each tool call on one line, and marks on answers.

use std::io::{self, Write};

use dsh_plugin_api::vocab::{Block, Image, Role, Source};

use super::super::output::{clip, plain, shown};
use super::export::Degraded;
use crate::session::derive::DerivedMessage;
use crate::store::Log;

/// Longest tool argument or result that is shown, in characters.
const TOOL_WIDTH: usize = 100;

/// How a transcript is marked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// With colours.
    Terminal,
    /// Without.
    Plain,
}

/// The derived history of a log, to be written for a person.
pub(super) struct Transcript<'a> {
    log: &'a Log,
    look: Look,
}

impl<'a> Transcript<'a> {
    pub fn new(log: &'a Log, look: Look) -> Self {
        Self { log, look }
    }

    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Log { header, .. } = self.log;
        let title = self.log.title().unwrap_or_else(|| header.id.clone());
        let about = match &header.cwd {
            Some(cwd) => format!("{}, {} UTC, in {}", header.id, utc(header.created_at), cwd),
            None => format!("{}, {} UTC", header.id, utc(header.created_at)),
        };
        writeln!(out, "{}\n{}", self.bold(&plain(&title)), self.dim(&plain(&about)))?;
        let history = self.log.history();
        let degraded = Degraded::of(self.log, &history);
        for (position, entry) in history.iter().enumerate() {
            let degraded: Vec<&Degraded> = degraded.iter().filter(|it| it.message == position).collect();
            self.entry(entry, &degraded, out)?;
        }
        Ok(())
    }

    fn entry(&self, entry: &DerivedMessage, degraded: &[&Degraded], out: &mut impl Write) -> io::Result<()> {
        let message = &entry.message;
        let results_only = message.content.iter().all(|block| matches!(block, Block::ToolResult { .. }));
        if !results_only || message.content.is_empty() {
            let mut speaker = match (&message.role, &message.source) {
                (Role::Assistant, Source::Model { provider, model, .. }) => format!("assistant ({provider}/{model})"),
                (Role::Assistant, _) => "assistant".to_owned(),
                (Role::System, _) => "system".to_owned(),
                (Role::User, Source::Other(_)) => "note".to_owned(),
                (Role::User, _) => "user".to_owned(),
            };
            // What its own model gets back as it was, and what some request had to do without.
            let kept = matches!(message.source, Source::Model { replay_state: Some(_), .. });
            match (degraded.is_empty(), kept) {
                (false, _) => speaker.push_str(" [degraded]"),
                (true, true) => speaker.push_str(" [native]"),
                (true, false) => {}
            }
            if entry.interrupted {
                speaker.push_str(" [interrupted]");
            }
            writeln!(out, "\n{}", self.bold(&plain(&speaker)))?;
            for Degraded { provider, model, reason, code, .. } in degraded {
                self.line(&format!("degraded for {provider}/{model}: {reason} ({code})"), out)?;
            }
        }
        message.content.iter().try_for_each(|block| self.block(block, out))
    }

    fn block(&self, block: &Block, out: &mut impl Write) -> io::Result<()> {
        match block {
            Block::Text(text) => writeln!(out, "{}", shown(text)),
            Block::Reasoning(text) if text.trim().is_empty() => Ok(()),
            Block::Reasoning(text) => {
                let quote = if self.look == Look::Plain { "> " } else { "" };
                shown(text).lines().try_for_each(|line| writeln!(out, "{quote}{}", self.dim(line)))
            }
            Block::Image(Image::Data { mime_type, data }) => {
                self.line(&format!("[image {mime_type}, {} bytes]", data.len() / 4 * 3), out)
            }
            Block::Image(Image::Attachment(attachment)) => self.line(&format!("[image {attachment}]"), out),
            Block::ToolCall { name, arguments, .. } => self.line(&format!("-> {name} {arguments}"), out),
            Block::ToolResult { content, is_error, .. } => {
                let mark = if *is_error == Some(true) { "<- failed:" } else { "<-" };
                let words: Vec<String> = content
                    .iter()
                    .map(|block| match block {
                        Block::Text(text) => text.clone(),
                        other => format!("[{}]", other.kind()),
                    })
                    .collect();
                self.line(&format!("{mark} {}", words.join(" ")), out)
            }
            Block::Other(_) => self.line(&format!("[{}]", block.kind()), out),
        }
    }

    /// One folded line.
    fn line(&self, text: &str, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "  {}", self.dim(&clip(text, TOOL_WIDTH)))
    }

    fn bold(&self, text: &str) -> String {
        self.styled("1", text)
    }

    fn dim(&self, text: &str) -> String {
        self.styled("2", text)
    }

    fn styled(&self, code: &str, text: &str) -> String {
        if self.look == Look::Terminal { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Unix milliseconds as `2026-11-30 21:42:44`.
pub(super) fn utc(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Civil date from days since 1970-01-01: years of 365.2425 days that begin in March, in eras of 400.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::export::{answer, degrade, log_of};
    use super::*;

    #[test]
    fn answers_are_marked_and_calls_are_folded() {
        let long = "x".repeat(300);
        let call = json!([
            {"type": "text", "text": "Look:\n  1\u{1b}[31m"},
            {"type": "tool-call", "id": "c", "name": "bash", "arguments": format!("{{\"command\":\"{long}\\n\"}}")},
        ]);
        let with_metadata =
            |line: String| line.replace(r#""model":"m_1""#, r#""model":"m_1","replayState":{"kind":"k"}"#);
        let result = r#"{"type":"tool/result","data":{"turn":1,"step":1,"message":{"id":"r","role":"user","content":[{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"a\nb"}],"isError":true}],"source":{"kind":"tool","callId":"c"}}},"surfaceOp":"append"}"#;
        let log = log_of(&[
            &with_metadata(answer("a", &call, false)),
            result,
            &with_metadata(answer("b", &json!([{"type": "text", "text": "second"}]), false)),
            &degrade(2, "b"),
            &answer("c", &json!([{"type": "text", "text": "third"}]), true),
            &answer("d", &json!([{"type": "text", "text": "fourth"}]), false),
        ]);
        let mut out = Vec::new();
        Transcript::new(&log, Look::Plain).write(&mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        for expected in [
            "\nassistant (p/m_1) [native]\nLook:\n  1",
            "\n  -> bash {\"command\":\"xxx",
            "\n  <- failed: a b\n",
            "\nassistant (p/m_1) [degraded]\n  degraded for q/n: ",
            "\nassistant (p/m_1) [interrupted]\nthird\n",
            "\nassistant (p/m_1)\nfourth\n",
        ] {
            assert!(out.contains(expected), "{expected:?} is not in\n{out}");
        }
        assert!(!out.contains('\u{1b}') && out.lines().all(|line| line.chars().count() < 130), "{out}");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (milliseconds, expected) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400_000, "2000-02-29 00:00:00"),
            (1_709_251_199_999, "2024-02-29 23:59:59"),
            (1_709_251_200_000, "2024-03-01 00:00:00"),
            (4_102_444_799_000, "2099-12-31 23:59:59"),
        ] {
            assert_eq!(utc(milliseconds), expected);
        }
    }
}
