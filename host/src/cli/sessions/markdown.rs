//! A session as a Markdown document (CommonMark), whole: every word, tool call and result.
//!
//! What was said stands as it was said, and stays in its place: a fence or an HTML block that a message leaves open
//! ends with the message, and what a tool was told or answered stands in a fence that is longer than any in it.

use std::collections::HashMap;
use std::io::{self, Write};

use dsh_plugin_api::vocab::{Block, Image, Message, Role, Source};

use super::super::output::{plain, shown};
use super::export::Degraded;
use super::transcript::utc;
use crate::session::derive::DerivedMessage;
use crate::store::Log;

/// A log, to be written as Markdown.
pub(super) struct Markdown<'a> {
    log: &'a Log,
}

impl<'a> Markdown<'a> {
    pub fn new(log: &'a Log) -> Self {
        Self { log }
    }

    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let header = &self.log.header;
        let title = self.log.title().unwrap_or_else(|| header.id.clone());
        write!(out, "# {}\n\n{}, {} UTC", inline(&title), inline(&header.id), utc(header.created_at))?;
        if let Some(cwd) = &header.cwd {
            write!(out, ", in {}", inline(cwd))?;
        }
        writeln!(out)?;
        let history = self.log.history();
        let degraded = Degraded::of(self.log, &history);
        let mut tools = HashMap::new();
        for (position, entry) in history.iter().enumerate() {
            heading(entry, out)?;
            for Degraded { code, reason, provider, model, .. } in degraded.iter().filter(|it| it.message == position) {
                let target = inline(&format!("{provider}/{model}"));
                writeln!(out, "\n*degraded for {target}: {} ({})*", inline(reason), inline(code))?;
            }
            for block in &entry.message.content {
                if let Block::ToolCall { id, name, .. } = block {
                    tools.insert(id.as_str(), name.as_str());
                }
                write_block(block, &tools, out)?;
            }
        }
        Ok(())
    }
}

/// Who speaks. Results stand under the calls that they answer.
fn heading(entry: &DerivedMessage, out: &mut impl Write) -> io::Result<()> {
    let Message { role, source, content, .. } = &entry.message;
    if !content.is_empty() && content.iter().all(|block| matches!(block, Block::ToolResult { .. })) {
        return Ok(());
    }
    let speaker = match (role, source) {
        (Role::Assistant, Source::Model { provider, model, .. }) => {
            format!("assistant ({})", inline(&format!("{provider}/{model}")))
        }
        (Role::Assistant, _) => "assistant".to_owned(),
        (Role::System, _) => "system".to_owned(),
        (Role::User, Source::Other(_)) => "note".to_owned(),
        (Role::User, _) => "user".to_owned(),
    };
    let mark = if entry.interrupted { ", interrupted" } else { "" };
    writeln!(out, "\n## {speaker}{mark}")
}

fn write_block(block: &Block, tools: &HashMap<&str, &str>, out: &mut impl Write) -> io::Result<()> {
    match block {
        Block::Text(text) => writeln!(out, "\n{}", contained(&shown(text))),
        Block::Reasoning(text) if text.trim().is_empty() => Ok(()),
        Block::Reasoning(text) => {
            writeln!(out)?;
            shown(text).lines().try_for_each(|line| writeln!(out, "> {line}"))
        }
        Block::ToolCall { name, arguments, .. } => {
            writeln!(out, "\n**call: {}**", inline(name))?;
            let language = if serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok() { "json" } else { "" };
            fence(language, &shown(arguments), out)
        }
        Block::ToolResult { tool_call_id, content, is_error } => {
            let failed = if *is_error == Some(true) { ", failed" } else { "" };
            let of = tools.get(tool_call_id.as_str()).map(|name| format!(" of {}", inline(name))).unwrap_or_default();
            writeln!(out, "\n**result{of}{failed}**")?;
            content.iter().try_for_each(|block| match block {
                Block::Text(text) => fence("", &shown(text), out),
                other => write_block(other, tools, out),
            })
        }
        Block::Image(Image::Data { mime_type, data }) => {
            writeln!(out, "\n*image, {}, {} bytes*", inline(mime_type), data.len() / 4 * 3)
        }
        Block::Image(Image::Attachment(attachment)) => writeln!(out, "\n*image, {}*", inline(&attachment.to_string())),
        Block::Other(_) => writeln!(out, "\n*{}*", inline(&block.kind())),
    }
}

/// Text in a fence that nothing in it closes.
fn fence(language: &str, text: &str, out: &mut impl Write) -> io::Result<()> {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    writeln!(out, "\n{fence}{language}\n{text}{end}{fence}")
}

/// Text on one line whose characters mean themselves.
fn inline(text: &str) -> String {
    let mut escaped = String::new();
    for c in plain(text).chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '&' | '#' | '~' | '|' | '!') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// A code fence that is open.
struct Fence {
    mark: char,
    length: usize,
    indent: usize,
}

impl Fence {
    /// A line's fence, and what follows it (CommonMark, section 4.5).
    fn of(line: &str) -> Option<(Self, &str)> {
        let inner = line.trim_start_matches(' ');
        let indent = line.len() - inner.len();
        let mark = inner.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let rest = inner.trim_start_matches(mark);
        let length = inner.len() - rest.len();
        (indent <= 3 && length >= 3).then_some((Self { mark, length, indent }, rest))
    }

    fn is_closed_by(&self, line: &str) -> bool {
        Self::of(line).is_some_and(|(fence, rest)| {
            fence.mark == self.mark && fence.length >= self.length && rest.trim().is_empty()
        })
    }
}

/// Markdown that ends where it ends: no fence stays open, and no HTML block that only its own mark would end.
fn contained(text: &str) -> String {
    let mut open: Option<Fence> = None;
    let mut contained = String::with_capacity(text.len());
    for line in text.lines() {
        let mut line = line;
        match &open {
            Some(fence) if fence.is_closed_by(line) => open = None,
            Some(_) => {}
            None => match Fence::of(line) {
                // What follows an opening fence of backticks has none.
                Some((fence, rest)) if fence.mark == '~' || !rest.contains('`') => open = Some(fence),
                _ => {
                    if let Some(html) = html_block(line) {
                        contained.push('\\');
                        line = html;
                    }
                }
            },
        }
        contained.push_str(line);
        contained.push('\n');
    }
    if let Some(Fence { mark, length, indent }) = open {
        contained.extend(std::iter::repeat_n(' ', indent).chain(std::iter::repeat_n(mark, length)));
    }
    contained.truncate(contained.trim_end_matches('\n').len());
    contained
}

/// A line that begins an HTML block which a blank line does not end (CommonMark, section 4.6, kinds 1 to 5), without
/// its indent.
fn html_block(line: &str) -> Option<&str> {
    let html = line.trim_start_matches(' ');
    let tag = html.strip_prefix('<').filter(|_| line.len() - html.len() <= 3)?;
    let name: String = tag.chars().take_while(char::is_ascii_alphanumeric).collect();
    let open = tag.starts_with(['!', '?'])
        || ["pre", "script", "style", "textarea"].iter().any(|known| name.eq_ignore_ascii_case(known));
    open.then_some(html)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::export::{answer, degrade, log_of};
    use super::*;

    #[test]
    fn a_transcript_is_whole_and_marked() {
        let result = r#"{"type":"tool/result","data":{"turn":1,"step":1,"message":{"id":"r","role":"user","content":[{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"a\n````\n## user"}],"isError":true}],"source":{"kind":"tool","callId":"c"}}},"surfaceOp":"append"}"#;
        let content = json!([
            {"type": "reasoning", "text": "hm\n\n```"},
            {"type": "text", "text": "lo\u{1b}ok:\n~~~~ sh\nls\n~~~"},
            {"type": "tool-call", "id": "c", "name": "ba*sh", "arguments": "{\"a\":\"`b`\"}"},
            {"type": "tool-call", "id": "d", "name": "bash", "arguments": ""},
        ]);
        let log = log_of(&[
            r#"{"type":"user/message","data":{"id":"u","role":"user","content":[{"type":"text","text":"<!-- hidden\nhi"}],"source":{"kind":"user"}},"surfaceOp":"append"}"#,
            &answer("a", &content, false),
            result,
            &degrade(1, "a"),
            &answer("b", &json!([{"type": "text", "text": "half"}]), true),
        ]);
        let mut out = Vec::new();
        Markdown::new(&log).write(&mut out).unwrap();
        let expected = "\
# s

s, 1970-01-01 00:00:00 UTC, in /p

## user

\\<!-- hidden
hi

## assistant (p/m\\_1)

*degraded for q/n: the state is \\*odd\\* (C)*

> hm
> 
> ```

look:
~~~~ sh
ls
~~~
~~~~

**call: ba\\*sh**

```json
{\"a\":\"`b`\"}
```

**call: bash**

```
```

**result of ba\\*sh, failed**

`````
a
````
## user
`````

## assistant (p/m\\_1), interrupted

half
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn what_a_message_leaves_open_ends_with_it() {
        for (text, expected) in [
            ("plain\n\n", "plain"),
            ("```\na\n```", "```\na\n```"),
            ("```\na", "```\na\n```"),
            ("````\n```\na", "````\n```\na\n````"),
            ("  ~~~ x`y\na\n~~~~ z", "  ~~~ x`y\na\n~~~~ z\n  ~~~"),
            // No fences: a code span, and lines of an indented block.
            ("```a``` b", "```a``` b"),
            ("    ```\na", "    ```\na"),
            (
                "```\n<!-- a\n```\n <!-- b\n<SCRIPT>\n<prefix>\n<div>",
                "```\n<!-- a\n```\n\\<!-- b\n\\<SCRIPT>\n<prefix>\n<div>",
            ),
        ] {
            assert_eq!(contained(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_fence_is_longer_than_any_in_the_text() {
        for (text, expected) in [
            ("", "\n```\n```\n"),
            ("a``b", "\n```\na``b\n```\n"),
            ("```\n", "\n````\n```\n````\n"),
            ("x ``````", "\n```````\nx ``````\n```````\n"),
        ] {
            let mut out = Vec::new();
            fence("", text, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
