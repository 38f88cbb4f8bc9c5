//! Reads session files by the letter of the format, and by code of its own: what `dsh` writes is judged here, so its
//! own reader cannot be the judge. It knows no damage but a torn last line, and panics at any other.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

/// What a decoder that knows nothing of sessions makes of a compressed file, up to where it ends.
///
/// # Panics
///
/// When there is no memory for a decoder.
#[must_use]
pub fn decompressed(bytes: &[u8]) -> Vec<u8> {
    let mut decoder = zstd::stream::read::Decoder::new(bytes).unwrap();
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    // A frame that goes on ends with an error, behind all that could be decoded.
    while let Ok(length @ 1..) = decoder.read(&mut piece) {
        all.extend_from_slice(&piece[..length]);
    }
    all
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
    /// # Panics
    ///
    /// When the file cannot be read, a line before the last is no JSON, or a `seq` is not the next number.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let mut bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if path.extension().is_some_and(|ending| ending == "zst") {
            bytes = decompressed(&bytes);
        }
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let text = std::str::from_utf8(&bytes[..complete]).expect("complete lines are UTF-8");
        let mut lines = text.lines().enumerate().map(|(number, line)| {
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{}, line {}: {e}", path.display(), number + 1))
        });
        let header = lines.next()?;
        let mut log = Self { header, events: Vec::new(), torn: false };
        lines.for_each(|line| log.line(line));
        match serde_json::from_slice(&bytes[complete..]) {
            Ok(last) => log.line(last),
            Err(_) => log.torn = complete < bytes.len(),
        }
        for (position, event) in log.events.iter().enumerate() {
            assert_eq!(event["seq"], json!(position), "{}: {event}", path.display());
        }
        Some(log)
    }

    fn line(&mut self, line: Value) {
        let (chunk, pieces) = match line["type"].as_str() {
            Some("text-chunks") => ("text-delta", "texts"),
            Some("reasoning-chunks") => ("reasoning-delta", "texts"),
            Some("tool-call-chunks") => ("tool-call-delta", "args"),
            _ => return self.events.push(line),
        };
        let data = &line["data"];
        let pieces = data[pieces].as_array().expect("a packed row has pieces");
        let gaps = data["dt"].as_array().expect("a packed row has gaps");
        assert_eq!(gaps.len() + 1, pieces.len(), "one gap between two pieces: {line}");
        let mut time = line["time0"].as_u64().expect("a packed row has a time");
        for (n, piece) in pieces.iter().enumerate() {
            if n > 0 {
                time += gaps[n - 1].as_u64().expect("a gap is a number of milliseconds");
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
            let seq = line["seq0"].as_u64().expect("a packed row has a seq") + n as u64;
            let data = json!({ "turn": data["turn"], "step": data["step"], "chunk": delta });
            self.events.push(json!({ "type": "assistant/chunk", "seq": seq, "time": time, "data": data }));
        }
    }

    /// The visible text that was streamed since the last event of this type.
    #[must_use]
    pub fn text_since(&self, kind: &str) -> String {
        let start = self.events.iter().rposition(|event| event["type"] == kind).map_or(0, |at| at + 1);
        let chunks = self.events[start..].iter().map(|event| &event["data"]["chunk"]);
        chunks.filter(|chunk| chunk["type"] == "text-delta").filter_map(|chunk| chunk["text"].as_str()).collect()
    }
}
