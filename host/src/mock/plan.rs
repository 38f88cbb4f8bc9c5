//! From an answer of the script to the bytes that go out, and when.

use std::time::Duration;

use super::http::{Client, Request, reason};
use super::script::{Body, Close, Entry, Framing};
use super::wire::{Ask, Wire};

/// A body piece and the pause before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub delay: Duration,
    pub bytes: Vec<u8>,
}

/// Everything about one response.
#[derive(Debug)]
pub(super) struct Plan {
    pub head_delay: Duration,
    /// None: not even a head is sent.
    pub head: Option<Vec<u8>>,
    /// Pieces as they go over the connection, framing included.
    pub pieces: Vec<Piece>,
    /// The pause after so many pieces; without a length it lasts until the client leaves.
    pub stall: Option<(usize, Option<Duration>)>,
    /// What ends the body.
    pub end: &'static [u8],
    pub close: Close,
    /// The connection takes another request afterwards.
    pub keep_alive: bool,
}

/// What the head says: the status as it is sent, the rest unless the script says otherwise.
struct Head {
    status: u16,
    content_type: &'static str,
    framing: Framing,
}

impl Plan {
    /// What this entry answers to this request, or why it cannot.
    pub fn new(entry: &Entry, request: &Request, number: usize) -> Result<Self, String> {
        let mut status = 200;
        let (content_type, pieces, framing) = match entry.body() {
            Body::Raw(pieces) => {
                let pieces: Vec<_> =
                    pieces.into_iter().map(|(ms, bytes)| Piece { delay: Duration::from_millis(ms), bytes }).collect();
                let is_json = matches!(pieces.as_slice(), [piece] if serde_json::from_slice::<serde::de::IgnoredAny>(&piece.bytes).is_ok());
                let content_type = match &entry.chunks {
                    Some(_) => "text/event-stream",
                    None if is_json => "application/json",
                    None => "text/plain; charset=utf-8",
                };
                (content_type, pieces, if entry.chunks.is_some() { Framing::Chunked } else { Framing::Length })
            }
            Body::Described(described) => {
                let wire = Wire::of(&request.path).ok_or_else(|| {
                    format!(
                        "the script describes an answer, but no wire is known at {}; known are {}. \
                         Give the answer as `body` or `chunks`",
                        request.path,
                        Wire::paths()
                    )
                })?;
                let reply = wire.spell(&described, &Ask::new(request, number)?)?;
                let delay = |position| Duration::from_millis(if position == 0 { 0 } else { described.delay_ms });
                let piece =
                    |(position, bytes): (usize, String)| Piece { delay: delay(position), bytes: bytes.into_bytes() };
                (reply.content_type, reply.pieces.into_iter().enumerate().map(piece).collect(), Framing::Chunked)
            }
            Body::Refused(error) => {
                // Servers of no known wire refuse in the manner of the most common one.
                let (own, body) = Wire::of(&request.path).unwrap_or(Wire::Completions).refuse(&error, number);
                status = own;
                ("application/json", vec![Piece { delay: Duration::ZERO, bytes: body.into_bytes() }], Framing::Length)
            }
        };
        let head = Head { status: entry.status.unwrap_or(status), content_type, framing };
        Ok(Self::framed(entry, request.client(), &head, pieces))
    }

    /// A short JSON answer.
    pub fn json(status: u16, body: String, client: Client) -> Self {
        let head = Head { status, content_type: "application/json", framing: Framing::Length };
        let piece = Piece { delay: Duration::ZERO, bytes: body.into_bytes() };
        Self::framed(&Entry::default(), client, &head, vec![piece])
    }

    fn framed(entry: &Entry, client: Client, default: &Head, mut pieces: Vec<Piece>) -> Self {
        let own = |name: &str| entry.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let framing = match entry.framing.unwrap_or(default.framing) {
            _ if own("content-length").is_some() || own("transfer-encoding").is_some() => None,
            Framing::Chunked if client.is_http_10 => Some(Framing::Close),
            framing => Some(framing),
        };
        let asks_to_close = own("connection").is_some_and(|(_, value)| value.to_ascii_lowercase().contains("close"));
        let keep_alive = client.keep_alive && framing != Some(Framing::Close) && !asks_to_close;

        let length: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
        let mut headers = vec![("content-type".to_owned(), default.content_type.to_owned())];
        match framing {
            Some(Framing::Chunked) => headers.push(("transfer-encoding".to_owned(), "chunked".to_owned())),
            Some(Framing::Length) => headers.push(("content-length".to_owned(), length.to_string())),
            Some(Framing::Close) | None => {}
        }
        if !keep_alive {
            headers.push(("connection".to_owned(), "close".to_owned()));
        }
        headers.retain(|(name, _)| own(name).is_none());
        headers.extend(entry.headers.iter().map(|(name, value)| (name.clone(), value.clone())));

        let mut head = format!("HTTP/1.1 {} {}\r\n", default.status, reason(default.status));
        for (name, value) in headers {
            head.extend([name.as_str(), ": ", &value, "\r\n"]);
        }
        head.push_str("\r\n");

        if let Some(stop) = entry.stop_after {
            pieces.truncate(stop);
        }
        if framing == Some(Framing::Chunked) {
            // An empty chunk would end the body.
            for piece in pieces.iter_mut().filter(|piece| !piece.bytes.is_empty()) {
                let mut chunk = format!("{:x}\r\n", piece.bytes.len()).into_bytes();
                chunk.append(&mut piece.bytes);
                chunk.extend(b"\r\n");
                piece.bytes = chunk;
            }
        }
        Self {
            head_delay: Duration::from_millis(entry.head_delay_ms),
            head: (!entry.no_head).then(|| head.into_bytes()),
            pieces,
            stall: entry.stall_after.map(|after| (after, entry.stall_ms.map(Duration::from_millis))),
            end: if framing == Some(Framing::Chunked) { b"0\r\n\r\n" } else { b"" },
            close: entry.close,
            keep_alive,
        }
    }
}
