//! Lines on a pair of byte streams, and the window that keeps updates from piling up.
//!
//! The connection's outgoing queue has no limit. The window gives it one: an update is handed to the connection only
//! with a permit, and the writer gives the permit back once the update's line is flushed. While a client reads slowly
//! the updates wait in their session, where text of one kind is joined; while it keeps up nothing waits at all.
//!
//! Input is lenient where JavaScript clients need it: invalid UTF-8 and lone surrogate escapes read as U+FFFD, blank
//! lines are skipped. A line that is not JSON is answered with a parse error by the connection, which goes on.

use std::sync::Arc;

use agent_client_protocol::{Channel, RawJsonRpcMessage, TransportFrame};
use dsh_plugin_api::json::replace_lone_surrogates;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Semaphore;

/// Updates that may be on their way to the client, over all sessions.
const WINDOW: usize = 16;

/// A fresh window. It is closed when nothing can be written any more.
pub(super) fn window() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(WINDOW))
}

/// Moves lines until the connection is done with the channel, or nothing can be written any more.
///
/// The end of `input` closes the connection's incoming side and lets its output go on. A write that fails closes both,
/// and the window with them: a client that cannot hear is treated like one that has left.
pub(super) async fn pump(
    channel: Channel,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    window: Arc<Semaphore>,
) {
    let (mut frames, connection) = channel.into_parts();
    let read = async move {
        let mut input = BufReader::new(input);
        let mut line = Vec::new();
        loop {
            line.clear();
            match input.read_until(b'\n', &mut line).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!("reading from the client failed: {error}");
                    break;
                }
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim();
            if !text.is_empty()
                && connection.unbounded_send(TransportFrame::parse_json(&replace_lone_surrogates(text))).is_err()
            {
                break;
            }
        }
    };
    let write = async {
        let mut output = output;
        while let Ok(first) = frames.recv().await {
            let mut lines = String::new();
            let mut updates = 0;
            let mut next = Some(first);
            while let Some(frame) = next {
                updates += usize::from(matches!(frame, TransportFrame::Single(RawJsonRpcMessage::Notification(_))));
                match frame.to_json() {
                    Ok(line) => {
                        lines.push_str(&line);
                        lines.push('\n');
                    }
                    Err(error) => tracing::error!("a message to the client cannot be written as JSON: {error:?}"),
                }
                next = frames.try_recv().ok();
            }
            let written = match output.write_all(lines.as_bytes()).await {
                Ok(()) => output.flush().await,
                error => error,
            };
            if let Err(error) = written {
                tracing::warn!("writing to the client failed: {error}");
                window.close();
                return;
            }
            window.add_permits(updates);
        }
    };
    tokio::pin!(write);
    tokio::select! {
        () = &mut write => return,
        () = read => {}
    }
    write.await;
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    fn value(frame: &TransportFrame) -> Value {
        serde_json::from_str(&frame.to_json().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn lines_of_a_javascript_client_are_read_leniently() {
        let (ours, theirs) = Channel::duplex();
        let (mut received, connection) = theirs.into_parts();
        let input: &[u8] =
            b"\n  \r\n{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{\"t\":\"\\ud83d\xff\"}}\r\n{\"jsonrpc\"";
        let pump = tokio::spawn(pump(ours, input, tokio::io::sink(), window()));
        assert_eq!(value(&received.recv().await.unwrap())["params"]["t"], "\u{fffd}\u{fffd}");
        assert!(matches!(received.recv().await.unwrap(), TransportFrame::Malformed { .. }));
        assert!(received.recv().await.is_err(), "the end of input reaches the connection");
        drop(connection);
        pump.await.unwrap();
    }

    #[tokio::test]
    async fn a_permit_comes_back_when_its_line_is_written() {
        let (ours, theirs) = Channel::duplex();
        let (_received, connection) = theirs.into_parts();
        let (client, agent) = duplex(64);
        let (mut from_agent, _to_agent) = tokio::io::split(client);
        let (input, output) = tokio::io::split(agent);
        let window = window();
        let pump = tokio::spawn(pump(ours, input, output, window.clone()));
        window.acquire().await.unwrap().forget();
        let frame = json!({ "jsonrpc": "2.0", "method": "m", "params": { "t": "x".repeat(200) } }).to_string();
        connection.unbounded_send(TransportFrame::parse_json(&frame)).unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert_eq!(window.available_permits(), WINDOW - 1, "the client has not read the line");
        drop(connection);
        let mut read = String::new();
        from_agent.read_to_string(&mut read).await.unwrap();
        assert_eq!(serde_json::from_str::<Value>(&read).unwrap()["method"], "m");
        pump.await.unwrap();
        assert_eq!(window.available_permits(), WINDOW);
    }

    #[tokio::test]
    async fn a_client_that_cannot_hear_has_left() {
        let (ours, theirs) = Channel::duplex();
        let (mut received, connection) = theirs.into_parts();
        let (client, agent) = duplex(64);
        let (_keep_input_open, input) = duplex(64);
        drop(client);
        let window = window();
        let pump = tokio::spawn(pump(ours, input, agent, window.clone()));
        let frame = json!({ "jsonrpc": "2.0", "method": "m" }).to_string();
        connection.unbounded_send(TransportFrame::parse_json(&frame)).unwrap();
        pump.await.unwrap();
        assert!(received.recv().await.is_err());
        assert!(window.is_closed());
    }
}
