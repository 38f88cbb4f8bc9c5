//! What commands start from: the home folder and where the manifest is.

use std::path::PathBuf;
use std::sync::Arc;

use super::{CommandError, GlobalArgs};
use crate::agent::Composition;
use crate::llm::client::Client;
use crate::llm::registry::Registry;
use crate::loader::Loader;
use crate::manifest::{Compression, Lookup, Manifest};
use crate::store::Store;

/// The global options, resolved.
pub struct Context {
    /// Where to look for the manifest; knows the home folder.
    pub lookup: Lookup,
}

impl Context {
    pub(super) fn new(args: &GlobalArgs) -> Result<Self, CommandError> {
        let home = match (&args.home, std::env::home_dir()) {
            (Some(home), _) => home.clone(),
            (None, Some(user)) => user.join(".dsh"),
            (None, None) => {
                return Err(CommandError::usage_text(
                    "there is no home folder to keep sessions in",
                    "give one with --home DIR or in DSH_HOME",
                ));
            }
        };
        let home = std::path::absolute(&home)
            .map_err(|e| CommandError::usage_text(format!("--home {}: {e}", home.display()), "give a folder"))?;
        Ok(Self { lookup: Lookup { manifest: args.manifest.clone(), overlays: args.overlay.clone(), home } })
    }

    /// The home folder, absolute.
    #[must_use]
    pub fn home(&self) -> &PathBuf {
        &self.lookup.home
    }

    /// The validated manifest.
    ///
    /// # Errors
    ///
    /// Exit code 2 with every problem and its place.
    pub fn manifest(&self) -> Result<Manifest, CommandError> {
        self.lookup.load().map_err(|e| CommandError::usage(e.into_report()))
    }

    /// The routes of a manifest.
    ///
    /// # Errors
    ///
    /// Exit code 2: a required adapter that fails, a route with two owners, a refused configuration, a route that goes
    /// where a manifest that was merely found may not send it.
    pub fn registry(&self, manifest: &Manifest) -> Result<Registry, CommandError> {
        Registry::load(manifest, &Loader::new(self.home())).map_err(|e| CommandError::usage(e.into_report()))
    }

    /// Everything that sessions need.
    ///
    /// # Errors
    ///
    /// As for [`Context::registry`].
    pub fn composition(&self) -> Result<Arc<Composition>, CommandError> {
        let manifest = self.manifest()?;
        let registry = self.registry(&manifest)?;
        let client = Client::new(manifest.transport);
        let store = Store::new(&manifest.sessions.dir);
        let store = match manifest.sessions.compression {
            Compression::None => store,
            Compression::Zstd => store.compressed(),
        };
        Ok(Arc::new(Composition { manifest, registry, client, store }))
    }

    /// The session logs; needs no valid manifest.
    #[must_use]
    pub fn store(&self) -> Store {
        Store::new(self.lookup.sessions_dir())
    }
}
