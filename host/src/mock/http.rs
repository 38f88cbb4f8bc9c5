//! The server's side of HTTP/1.1 (RFC 9112), as much of it as scripted answers need.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest head of a request, in bytes.
const MAX_HEAD: usize = 64 << 10;
/// Longest body of a request, in bytes.
const MAX_BODY: usize = 256 << 20;

/// A request, read whole.
#[derive(Debug)]
pub(super) struct Request {
    pub method: String,
    /// Path and query.
    pub path: String,
    /// In order; names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The client would send another request over this connection.
    pub keep_alive: bool,
    /// Chunked framing is not known to the client.
    pub is_http_10: bool,
}

/// What the client can take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client {
    pub keep_alive: bool,
    pub is_http_10: bool,
}

impl Client {
    /// One whose request could not be read: the connection cannot go on.
    pub const UNKNOWN: Self = Self { keep_alive: false, is_http_10: false };
}

impl Request {
    pub const fn client(&self) -> Client {
        Client { keep_alive: self.keep_alive, is_http_10: self.is_http_10 }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Why there is no request.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The client closed the connection between two requests.
    #[error("the connection is closed")]
    Closed,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// What was sent is no HTTP/1.1.
    #[error("bad request: {0}")]
    Bad(String),
}

fn bad(reason: impl Into<String>) -> ReadError {
    ReadError::Bad(reason.into())
}

/// One connection: the socket and what was read ahead.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub const fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    async fn fill(&mut self) -> Result<(), ReadError> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err(bad("the connection ended inside a request"));
        }
        Ok(())
    }

    async fn take(&mut self, length: usize) -> Result<Vec<u8>, ReadError> {
        while self.buffer.len() < length {
            self.fill().await?;
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    /// Up to and without the next `end`.
    async fn take_until(&mut self, end: &[u8], limit: usize) -> Result<Vec<u8>, ReadError> {
        let mut from = 0;
        loop {
            let found = self.buffer[from..].windows(end.len()).position(|window| window == end);
            if let Some(at) = found.map(|at| from + at) {
                let mut head = self.take(at + end.len()).await?;
                head.truncate(at);
                return Ok(head);
            }
            if self.buffer.len() > limit {
                return Err(bad(format!("a line or head is longer than {limit} bytes")));
            }
            from = self.buffer.len().saturating_sub(end.len() - 1);
            self.fill().await?;
        }
    }

    /// The next request.
    pub async fn request(&mut self) -> Result<Request, ReadError> {
        if self.buffer.is_empty() && self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err(ReadError::Closed);
        }
        let head = self.take_until(b"\r\n\r\n", MAX_HEAD).await?;
        let mut request = parse_head(&head)?;
        if request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let is_chunked =
            request.header("transfer-encoding").is_some_and(|v| v.to_ascii_lowercase().contains("chunked"));
        request.body = if is_chunked {
            self.chunked_body().await?
        } else {
            let length = request.header("content-length").map_or(Ok(0), str::parse::<usize>);
            let length = length.map_err(|_| bad("content-length is not a number"))?;
            if length > MAX_BODY {
                return Err(bad(format!("the body is longer than {MAX_BODY} bytes")));
            }
            self.take(length).await?
        };
        Ok(request)
    }

    async fn chunked_body(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut body = Vec::new();
        loop {
            let line = self.take_until(b"\r\n", MAX_HEAD).await?;
            let line = String::from_utf8_lossy(&line);
            let size = line.split(';').next().unwrap_or_default().trim();
            let size =
                usize::from_str_radix(size, 16).map_err(|_| bad(format!("chunk size {size:?} is no hex number")))?;
            if size == 0 {
                // Trailers, up to an empty line.
                while !self.take_until(b"\r\n", MAX_HEAD).await?.is_empty() {}
                return Ok(body);
            }
            if size > MAX_BODY - body.len() {
                return Err(bad(format!("the body is longer than {MAX_BODY} bytes")));
            }
            body.extend(self.take(size).await?);
            if self.take(2).await? != b"\r\n" {
                return Err(bad("a chunk does not end where its size says"));
            }
        }
    }

    /// Writes and flushes: what is given at once arrives as one piece.
    pub async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Waits until the client leaves. What it sends meanwhile is kept for the next request, up to a limit.
    pub async fn gone(&mut self) {
        let mut spill = [0; 4096];
        loop {
            match self.stream.read(&mut spill).await {
                Ok(0) | Err(_) => return,
                Ok(length) if self.buffer.len() < MAX_HEAD => self.buffer.extend_from_slice(&spill[..length]),
                Ok(_) => {}
            }
        }
    }

    /// Closes the connection so that the client has read everything before it.
    pub async fn close(mut self) {
        // A client that has gone already needs no goodbye.
        drop(self.stream.shutdown().await);
    }

    /// Resets the connection.
    pub fn reset(self) -> std::io::Result<()> {
        self.stream.set_zero_linger()
    }
}

fn parse_head(head: &[u8]) -> Result<Request, ReadError> {
    let head = std::str::from_utf8(head).map_err(|_| bad("the head is not UTF-8"))?;
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let mut words = first.split(' ');
    let (Some(method), Some(path), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad(format!("{first:?} is not METHOD PATH VERSION")));
    };
    let is_http_10 = match version {
        "HTTP/1.1" => false,
        "HTTP/1.0" => true,
        _ => return Err(bad(format!("version {version:?} is not HTTP/1.1"))),
    };
    let header = |line: &str| {
        let (name, value) = line.split_once(':').ok_or_else(|| bad(format!("{line:?} is not a header")))?;
        Ok::<_, ReadError>((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers = lines.map(header).collect::<Result<Vec<_>, _>>()?;
    let mut request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers,
        body: Vec::new(),
        keep_alive: !is_http_10,
        is_http_10,
    };
    if let Some(connection) = request.header("connection").map(str::to_ascii_lowercase) {
        request.keep_alive = connection.contains("keep-alive") || (!is_http_10 && !connection.contains("close"));
    }
    Ok(request)
}

/// The words of a status line, for the statuses that providers use.
pub(super) const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        529 => "Site Is Overloaded",
        _ => "Scripted",
    }
}
