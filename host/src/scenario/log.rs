//! Reads session files by the letter of the format, and by code of its own: what `dsh` writes is judged with it, so its
//! own reader cannot be the judge. It knows no damage but a torn last line, and refuses any other.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

/// What a decoder that knows nothing of sessions makes of a compressed file, up to where it ends.
///
/// # Errors
///
/// There is no memory for a decoder.
pub fn decompressed(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut decoder = zstd::stream::read::Decoder::new(bytes).map_err(|e| e.to_string())?;
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    // A frame that goes on ends with an error, behind all that could be decoded.
    while let Ok(length @ 1..) = decoder.read(&mut piece) {
        all.extend_from_slice(&piece[..length]);
    }
    Ok(all)
}

/// A session file.
#[derive(Debug, Clone)]
pub struct SessionLog {
    /// Line 1.
    pub header: Value,
    /// The events, packed rows expanded. Their `seq` is their position.
    pub events: Vec<Value>,
    /// True when the last line has neither end nor sense.
    pub torn: bool,
}

impl SessionLog {
    /// Reads a file; `None` while it has no complete header.
    ///
    /// # Errors
    ///
    /// The file and why: it cannot be read, a line before the last is no JSON, a packed row is not whole, or a `seq` is
    /// not the next number.
    pub fn read(path: &Path) -> Result<Option<Self>, String> {
        Self::read_file(path).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn read_file(path: &Path) -> Result<Option<Self>, String> {
        let mut bytes = fs::read(path).map_err(|e| e.to_string())?;
        if path.extension().is_some_and(|ending| ending == "zst") {
            bytes = decompressed(&bytes)?;
        }
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let text = std::str::from_utf8(&bytes[..complete]).map_err(|e| e.to_string())?;
        let mut lines = text.lines().enumerate();
        let parse = |(number, line): (usize, &str)| {
            serde_json::from_str::<Value>(line).map_err(|e| format!("line {}: {e}", number + 1))
        };
        let Some(header) = lines.next().map(parse).transpose()? else { return Ok(None) };
        let mut log = Self { header, events: Vec::new(), torn: false };
        for line in lines {
            log.line(parse(line)?).map_err(|e| format!("line {}: {e}", line.0 + 1))?;
        }
        match serde_json::from_slice(&bytes[complete..]) {
            Ok(last) => log.line(last)?,
            Err(_) => log.torn = complete < bytes.len(),
        }
        match log.events.iter().enumerate().find(|(position, event)| event["seq"] != json!(position)) {
            Some((position, event)) => Err(format!("where seq {position} belongs stands {event}")),
            None => Ok(Some(log)),
        }
    }

    fn line(&mut self, line: Value) -> Result<(), String> {
        let (chunk, pieces) = match line["type"].as_str() {
            Some("text-chunks") => ("text-delta", "texts"),
            Some("reasoning-chunks") => ("reasoning-delta", "texts"),
            Some("tool-call-chunks") => ("tool-call-delta", "args"),
            _ => {
                self.events.push(line);
                return Ok(());
            }
        };
        let data = &line["data"];
        let wrong = |what: &str| format!("a packed row {what}: {line}");
        let pieces = data[pieces].as_array().ok_or_else(|| wrong("has no pieces"))?;
        let gaps = data["dt"].as_array().ok_or_else(|| wrong("has no gaps"))?;
        if gaps.len() + 1 != pieces.len() {
            return Err(wrong("has not one gap between two pieces"));
        }
        let first = line["seq0"].as_u64().ok_or_else(|| wrong("has no seq"))?;
        let mut time = line["time0"].as_u64().ok_or_else(|| wrong("has no time"))?;
        for (seq, piece) in (first..).zip(pieces) {
            if let Some(gap) = usize::try_from(seq - first).ok().and_then(|n| gaps.get(n.checked_sub(1)?)) {
                time += gap.as_u64().ok_or_else(|| wrong("has a gap that is no number of milliseconds"))?;
            }
            let mut delta = json!({ "type": chunk, "index": data["index"] });
            if chunk == "tool-call-delta" {
                for member in ["id", "name"].into_iter().filter(|member| data.get(*member).is_some()) {
                    delta[member] = data[member].clone();
                }
                delta["argumentsDelta"] = piece.clone();
            } else {
                delta["text"] = piece.clone();
            }
            let data = json!({ "turn": data["turn"], "step": data["step"], "chunk": delta });
            self.events.push(json!({ "type": "assistant/chunk", "seq": seq, "time": time, "data": data }));
        }
        Ok(())
    }

    /// The visible text that was streamed since the last event of this type.
    #[must_use]
    pub fn text_since(&self, kind: &str) -> String {
        let start = self.events.iter().rposition(|event| event["type"] == kind).map_or(0, |at| at + 1);
        let chunks = self.events[start..].iter().map(|event| &event["data"]["chunk"]);
        chunks.filter(|chunk| chunk["type"] == "text-delta").filter_map(|chunk| chunk["text"].as_str()).collect()
    }
}
