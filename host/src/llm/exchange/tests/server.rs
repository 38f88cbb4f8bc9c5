//! A scripted server: it sends exactly what a test says, when it says so.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What is done on a connection after a request has come.
#[derive(Debug, Clone)]
pub enum Step {
    Send(Vec<u8>),
    Pause(u64),
    /// Sends a piece every so many milliseconds until the client is gone.
    Repeat(u64, &'static str),
    /// Sends nothing more and waits for the client to close.
    Hold,
    /// Closes with an RST.
    Reset,
    /// Takes the next request of the same connection, with the next script.
    KeepAlive,
}

pub fn send(text: impl AsRef<[u8]>) -> Step {
    Step::Send(text.as_ref().to_vec())
}

/// A response head with `connection: close` framing.
pub fn head(status: &str, more: &str) -> Step {
    send(format!("HTTP/1.1 {status}\r\ncontent-type: text/plain\r\n{more}connection: close\r\n\r\n"))
}

pub fn ok() -> Step {
    head("200 OK", "")
}

#[derive(Debug, Clone)]
pub struct Received {
    pub connection: usize,
    pub head: String,
    pub body: String,
}

impl Received {
    /// The values of a header, in order.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let of = |line: &'_ str| line.split_once(": ").map(|(known, _)| known.to_ascii_lowercase());
        self.head.lines().filter(|line| of(line).as_deref() == Some(name)).map(|line| &line[name.len() + 2..]).collect()
    }
}

#[derive(Default)]
struct Seen {
    requests: Vec<Received>,
    gone: usize,
}

pub struct Server {
    pub origin: String,
    seen: Arc<Mutex<Seen>>,
}

impl Server {
    /// One script per request, in order.
    pub async fn start(scripts: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let scripts = Arc::new(Mutex::new(scripts.into_iter()));
        tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                for connection in 0.. {
                    let Ok((stream, _)) = listener.accept().await else { return };
                    let (seen, scripts) = (Arc::clone(&seen), Arc::clone(&scripts));
                    tokio::spawn(async move { serve(stream, connection, &seen, &scripts).await });
                }
            }
        });
        Self { origin, seen }
    }

    pub fn requests(&self) -> Vec<Received> {
        self.seen.lock().unwrap().requests.clone()
    }

    /// Waits until so many clients have closed their side while the script was not over.
    pub async fn until_gone(&self, count: usize) {
        let begun = Instant::now();
        while self.seen.lock().unwrap().gone < count {
            assert!(begun.elapsed() < Duration::from_secs(10), "the client keeps its connection");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until so many requests have come.
    pub async fn until_requests(&self, count: usize) {
        let begun = Instant::now();
        while self.requests().len() < count {
            assert!(begun.elapsed() < Duration::from_secs(10), "no request came");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    seen: &Mutex<Seen>,
    scripts: &Mutex<std::vec::IntoIter<Vec<Step>>>,
) {
    'requests: loop {
        let Some(request) = request(&mut stream, connection).await else { return };
        seen.lock().unwrap().requests.push(request);
        let Some(script) = scripts.lock().unwrap().next() else { return };
        for step in script {
            let is_gone = match step {
                Step::Send(bytes) => stream.write_all(&bytes).await.is_err(),
                Step::Pause(ms) => gone_within(&mut stream, ms).await,
                Step::Hold => gone_within(&mut stream, 60_000).await,
                Step::Repeat(ms, text) => loop {
                    if stream.write_all(text.as_bytes()).await.is_err() || gone_within(&mut stream, ms).await {
                        break true;
                    }
                },
                Step::Reset => {
                    stream.set_zero_linger().unwrap();
                    return;
                }
                Step::KeepAlive => continue 'requests,
            };
            if is_gone {
                seen.lock().unwrap().gone += 1;
                return;
            }
        }
        return;
    }
}

async fn gone_within(stream: &mut TcpStream, ms: u64) -> bool {
    let mut byte = [0];
    tokio::time::timeout(Duration::from_millis(ms), stream.read(&mut byte)).await.is_ok()
}

async fn request(stream: &mut TcpStream, connection: usize) -> Option<Received> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().unwrap())
            });
            if let Some(body) = bytes.get(end + 4..end + 4 + length.unwrap_or(0)) {
                let body = String::from_utf8(body.to_vec()).unwrap();
                return Some(Received { connection, head, body });
            }
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
}
