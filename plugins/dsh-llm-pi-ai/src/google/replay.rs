//! What this wire carries along with its blocks.

use dsh_plugin_api::vocab::InvalidReplay;

use crate::config::ApiName;
use crate::envelope::StoredEntry;
use crate::turn::Carriers;

/// What this wire carries along with its blocks.
#[derive(Debug, Clone)]
pub(crate) enum Google {}

/// One message.
pub(crate) type Turn = crate::turn::Turn<Google>;

impl Carriers for Google {
    const API: ApiName = ApiName::GoogleGenerativeAi;
    type Text = ();
    type Reasoning = ();
    type Call = ();

    fn text(_: usize, _: &StoredEntry) -> Result<(), InvalidReplay> {
        Ok(())
    }

    fn reasoning(_: usize, _: &StoredEntry) -> Result<(), InvalidReplay> {
        Ok(())
    }

    fn call(_: usize, _: &StoredEntry) -> Result<(), InvalidReplay> {
        Ok(())
    }
}
