//! HTTP: an adapter's request description becomes a request on the network.
//!
//! Promises: the body goes out byte for byte; a secret goes only to the origin of its route, only when the manifest
//! names it there, and never along a redirect; what fails is said in plain words with the whole cause. Connections
//! are pooled, HTTP/2 is used where the server offers it, and proxies come from the environment (`HTTPS_PROXY`,
//! `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`) for every host but this one.
//!
//! It refuses requests to another origin than the route's, and headers that frame the message.

use std::error::Error;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::Duration;

use dsh_plugin_api::vocab::{Failure, FailureCode, HeaderValue, HttpRequest};
use reqwest::header::{self, HeaderName};
use reqwest::{Method, StatusCode, Url};

use super::credential::{self, Secret};
use super::registry::Route;
use crate::manifest::Transport;

/// Headers that belong to the HTTP stack. An adapter that set them could desynchronise the connection, or get bytes
/// in a coding that it cannot read.
const FRAMING: [HeaderName; 7] = [
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

const PROXY_VARIABLES: [&str; 6] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// The HTTP clients of a process, each made when it is first needed: reading the CA certificates takes longer than
/// everything else at the start, and a server on this host is asked without them.
pub(super) struct Http {
    connect_timeout: Duration,
    clients: [OnceLock<Result<Pooled, Failure>>; 3],
}

/// What a client has to be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// `http` to this host: no proxy, no TLS.
    Plain,
    /// `https` to this host: no proxy.
    Local,
    /// Any other host.
    Network,
}

impl Reach {
    fn of(url: &Url) -> Self {
        match (is_this_host(url), url.scheme()) {
            (false, _) => Self::Network,
            (true, "http") => Self::Plain,
            (true, _) => Self::Local,
        }
    }
}

/// A client with its connection pool.
#[derive(Clone)]
struct Pooled {
    client: reqwest::Client,
    /// Why `https` cannot work here, if it cannot.
    no_tls: Option<String>,
}

/// The answer's head, or why there is none.
pub(super) type Answer = Pin<Box<dyn Future<Output = Result<reqwest::Response, Failure>> + Send>>;

/// A request that is on its way once its answer is awaited. Dropping it takes the request back.
pub(super) struct Outgoing {
    /// Where it goes: `scheme://host:port`.
    pub(super) peer: String,
    /// The answer.
    pub(super) answer: Answer,
    /// The secrets that it carries, with their references.
    pub(super) secrets: Vec<(String, Secret)>,
}

impl Http {
    /// Clients with the manifest's `[transport]`.
    pub(super) fn new(config: &Transport) -> Self {
        // An error says that this process has a provider already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { connect_timeout: duration(config.connect_timeout_ms), clients: Default::default() }
    }

    fn client(&self, reach: Reach) -> Result<&Pooled, Failure> {
        let made = self.clients[reach as usize].get_or_init(|| Pooled::new(self.connect_timeout, reach));
        made.as_ref().map_err(Clone::clone)
    }

    /// Checks a request against its route and gets it ready, secrets included.
    ///
    /// # Errors
    ///
    /// `MISSING_CREDENTIAL` and `INVALID_CREDENTIAL`; `UNSUPPORTED` for what the route may not do or this host cannot
    /// do; `INVALID_REQUEST` for a request that is no HTTP; `TRANSPORT` when TLS cannot be set up at all.
    pub(super) fn send(&self, route: &Route, request: &HttpRequest) -> Result<Outgoing, Failure> {
        let url = target(route, &request.url)?;
        let pooled = self.client(Reach::of(&url))?;
        let peer = url.origin().ascii_serialization();
        if url.scheme() == "https"
            && let Some(reason) = &pooled.no_tls
        {
            let message = format!(
                "cannot reach {peer}: this system has no CA certificates to check it with ({reason}); \
                 install the package `ca-certificates` or name a bundle in SSL_CERT_FILE"
            );
            return Err(Failure::new(FailureCode::Unsupported, message));
        }
        let broken = |what: String| {
            let message = format!("the adapter `{}` made a request that cannot be sent: {what}", route.adapter);
            Failure::new(FailureCode::InvalidRequest, message)
        };
        let method = Method::from_bytes(request.method.as_bytes())
            .map_err(|_| broken(format!("{:?} is no method", request.method)))?;
        let mut outgoing = reqwest::Request::new(method, url.clone());
        let mut secrets = Vec::new();
        for entry in &request.headers {
            let name = HeaderName::from_bytes(entry.name.as_bytes())
                .map_err(|_| broken(format!("{:?} is no header name", entry.name)))?;
            if FRAMING.contains(&name) {
                return Err(broken(format!("the header `{name}` belongs to the host")));
            }
            let value = match &entry.value {
                HeaderValue::Text(text) => header::HeaderValue::from_str(text).ok(),
                HeaderValue::Credential { reference, prefix } => {
                    let secret = secret_for(route, reference)?;
                    let value = secret.header(prefix);
                    secrets.push((reference.clone(), secret));
                    value
                }
            };
            let value = value.ok_or_else(|| broken(format!("the value of the header `{name}` is not printable")))?;
            outgoing.headers_mut().append(name, value);
        }
        let mut default = |name, value| {
            outgoing.headers_mut().entry(name).or_insert(header::HeaderValue::from_static(value));
        };
        default(header::ACCEPT, "text/event-stream, application/json;q=0.9, */*;q=0.5");
        if request.body.get() != "null" {
            default(header::CONTENT_TYPE, "application/json");
            *outgoing.body_mut() = Some(request.body.get().to_owned().into());
        }
        let client = pooled.client.clone();
        let connect_timeout = self.connect_timeout;
        let answer =
            async move { client.execute(outgoing).await.map_err(|error| unreachable(&url, &error, connect_timeout)) };
        Ok(Outgoing { peer, answer: Box::pin(answer), secrets })
    }
}

impl Pooled {
    fn new(connect_timeout: Duration, reach: Reach) -> Result<Self, Failure> {
        let builder = || {
            let builder = reqwest::Client::builder()
                .user_agent(concat!("dsh/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(connect_timeout)
                .redirect(reqwest::redirect::Policy::none())
                .gzip(true);
            match reach {
                Reach::Plain => builder.no_proxy().tls_certs_only([]),
                Reach::Local => builder.no_proxy(),
                Reach::Network => builder,
            }
        };
        // The platform's verifier refuses to exist without CA certificates; plain http needs none.
        let (client, no_tls) = match builder().build() {
            Ok(client) => (Ok(client), None),
            Err(error) => (builder().tls_certs_only([]).build(), Some(chain(&error))),
        };
        let client = client.map_err(|error| {
            Failure::new(FailureCode::Transport, format!("TLS cannot be set up: {}", chain(&error)))
        })?;
        Ok(Self { client, no_tls })
    }
}

/// Milliseconds of the manifest as a time that can be added to now: at most a year.
pub(super) fn duration(ms: u64) -> Duration {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    Duration::from_millis(ms).min(YEAR)
}

/// The URL of a request, once it is sure that its route may go there.
fn target(route: &Route, text: &str) -> Result<Url, Failure> {
    let refuse = |message: String| Failure::new(FailureCode::Unsupported, message);
    let name = &route.info.name;
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    // Only a part that is sure to hold no key is shown.
    let url =
        url.ok_or_else(|| refuse(format!("the URL of a request of route `{name}` is not an absolute http(s) URL")))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse(format!(
            "the URL of a request of route `{name}` holds a user name or password, which is not sent; \
             name a credential in the manifest"
        )));
    }
    if let Some(origin) = &route.origin {
        let allowed = Url::parse(origin).map_err(|error| {
            refuse(format!("route `{name}` has the origin {origin:?}, which is not a URL: {error}"))
        })?;
        if allowed.origin() != url.origin() {
            return Err(refuse(format!(
                "the adapter `{}` asked for {}, but route `{name}` may only go to {}",
                route.adapter,
                url.origin().ascii_serialization(),
                allowed.origin().ascii_serialization()
            )));
        }
    }
    Ok(url)
}

/// The secret of a reference that an adapter asks for, if the manifest gives it to this route.
fn secret_for(route: &Route, reference: &str) -> Result<Secret, Failure> {
    let name = &route.info.name;
    let invalid = |message: String| Err(Failure::new(FailureCode::InvalidCredential, message));
    // What is no name may be a key.
    let shown = |reference: &str| match credential::variable(reference) {
        Some(variable) => format!("the credential {variable}"),
        None => "a credential that is not named as an environment variable".to_owned(),
    };
    if route.credential.as_deref() != Some(reference) {
        let given = match &route.credential {
            Some(own) => format!("the manifest gives it {} only", shown(own)),
            None => "the manifest gives it none".to_owned(),
        };
        return invalid(format!(
            "the adapter `{}` asked for {} for route `{name}`; {given}",
            route.adapter,
            shown(reference)
        ));
    }
    if route.origin.is_none() {
        return invalid(format!("route `{name}` has no origin that its credential may be sent to; set its base_url"));
    }
    credential::resolve(reference, name)
}

/// True for a host that is this machine by its name, as Go and browsers treat it. A proxy would look at itself.
fn is_this_host(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let named = host.trim_end_matches('.');
    named == "localhost"
        || named.ends_with(".localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The headers of an answer as text, in order; names in lower case.
pub(super) fn headers_of(response: &reqwest::Response) -> Vec<(String, String)> {
    let text = |value: &header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    response.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// The failure of an answer that is a redirect.
pub(super) fn redirect_refused(response: &reqwest::Response, peer: &str) -> Option<Failure> {
    let (status, location) = (response.status(), redirect_target(response)?);
    let message = format!(
        "{peer} redirects to {location} ({status}); a redirect is not followed, since the credential is for that \
         origin only: put the new address into the route's base_url"
    );
    Some(Failure::new(FailureCode::InvalidRequest, message))
}

/// The address of a redirect without its query, for a message; relative ones are resolved.
fn redirect_target(response: &reqwest::Response) -> Option<String> {
    const REDIRECTS: [StatusCode; 5] = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    if !REDIRECTS.contains(&response.status()) {
        return None;
    }
    let location = response.headers().get(header::LOCATION)?;
    let Ok(mut target) = response.url().join(&String::from_utf8_lossy(location.as_bytes())) else {
        return Some("an address that is not a URL".to_owned());
    };
    target.set_query(None);
    target.set_fragment(None);
    // Refused only by URLs that have no user part.
    let _ = target.set_username("");
    let _ = target.set_password(None);
    Some(target.to_string())
}

/// The failure of a request that got no answer.
fn unreachable(url: &Url, error: &reqwest::Error, connect_timeout: Duration) -> Failure {
    let peer = url.origin().ascii_serialization();
    if error.is_connect() && error.is_timeout() {
        let message = format!("cannot reach {peer}: no connection within {}{}", seconds(connect_timeout), proxy(url));
        return Failure::new(FailureCode::Timeout, message);
    }
    let mut text = chain(error);
    if text == REFUSED && proxy(url).is_empty() {
        text = format!("{REFUSED} by {}", authority(url));
    }
    if error.is_dns() {
        text = format!("the name {} cannot be resolved: {text}", url.host_str().unwrap_or_default());
    }
    if text.contains("certificate") {
        text.push_str("; a CA bundle that vouches for the server can be named in SSL_CERT_FILE");
    }
    let what = if error.is_connect() { "cannot reach" } else { "no answer from" };
    let proxy = if error.is_connect() { proxy(url) } else { String::new() };
    Failure::new(FailureCode::Transport, format!("{what} {peer}: {text}{proxy}"))
}

const REFUSED: &str = "connection refused";

fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// A reminder that a proxy may be in between, as it is easily forgotten. Its address may hold a password.
fn proxy(url: &Url) -> String {
    let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let for_scheme = |name: &&str| {
        let name = name.to_ascii_lowercase();
        name == "all_proxy" || name == format!("{}_proxy", url.scheme())
    };
    match PROXY_VARIABLES.iter().find(|name| set(name) && for_scheme(name)) {
        Some(name) if !is_this_host(url) => format!(" (the environment names a proxy in {name})"),
        _ => String::new(),
    }
}

/// What layers of the HTTP stack say of themselves around the cause.
const LAYERS: [&str; 5] =
    ["client error (", "connection error", "error reading a body", "tcp connect error", "dns error"];

/// An error and its causes in plain words: the layers of the HTTP stack that name no cause are left out, as is what
/// the next cause says again.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        next = cause.source();
        let text = plain(cause);
        let is_layer =
            next.is_some() && (cause.is::<reqwest::Error>() || LAYERS.iter().any(|layer| text.starts_with(layer)));
        if !is_layer && !parts.iter().any(|part| part.contains(&text)) {
            parts.retain(|part| !text.contains(part.as_str()));
            parts.push(text);
        }
    }
    parts.join(": ")
}

/// One cause. The text of the operating system is kept only where there is no plainer one.
fn plain(cause: &(dyn Error + 'static)) -> String {
    if let Some(io) = cause.downcast_ref::<std::io::Error>() {
        match io.kind() {
            ErrorKind::ConnectionRefused => return REFUSED.to_owned(),
            ErrorKind::ConnectionReset => return "connection reset by the server".to_owned(),
            ErrorKind::BrokenPipe => return "connection closed by the server".to_owned(),
            ErrorKind::NetworkUnreachable => return "the network is unreachable".to_owned(),
            ErrorKind::HostUnreachable => return "the host is unreachable".to_owned(),
            _ => {}
        }
    }
    let text = cause.to_string();
    text.split(" (os error ").next().unwrap_or(&text).to_owned()
}

/// A time as people say it: `1.2 s`, `120 s`.
pub(super) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_millis() as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_is_asked_without_proxies_and_only_in_http_without_certificates() {
        for (url, expected) in [
            ("http://localhost:1/v1", Reach::Plain),
            ("http://LOCALHOST/v1", Reach::Plain),
            ("http://a.localhost./v1", Reach::Plain),
            ("http://127.0.0.1:1/v1", Reach::Plain),
            ("http://127.9.9.9/v1", Reach::Plain),
            ("http://[::1]:1/v1", Reach::Plain),
            ("https://localhost:1/v1", Reach::Local),
            ("http://192.168.0.1/v1", Reach::Network),
            ("https://localhost.example.com/v1", Reach::Network),
            ("https://api.example.com/v1", Reach::Network),
        ] {
            assert_eq!(Reach::of(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn times_read_as_people_say_them() {
        assert_eq!(seconds(Duration::from_millis(1_200)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(120)), "120 s");
        assert_eq!(duration(u64::MAX), Duration::from_secs(365 * 86_400));
    }
}
