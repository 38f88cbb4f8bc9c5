//! Where a route goes and which key belongs to a preset: one reading for the manifest, the registry and each request.

/// `scheme://host[:port]` of an `http` or `https` URL, in its normal form (RFC 6454). `None` for any other text.
pub(crate) fn origin(url: &str) -> Option<String> {
    let url = reqwest::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    Some(url.origin().ascii_serialization())
}

/// The credential of a route that names this preset, and neither a credential nor a place of its own.
pub(crate) fn preset_credential(preset: &str) -> String {
    format!("{}_API_KEY", preset.to_uppercase().replace('-', "_"))
}
