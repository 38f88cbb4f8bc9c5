//! The framing of event streams.

use dsh_properties::framing::{bodies, check, check_body};
use dsh_properties::pieces::widths;
use proptest::prelude::*;

proptest! {
    #[test]
    fn any_split_gives_the_events_of_the_standard(body in bodies(), widths in widths()) {
        check_body(&body, &widths);
    }

    #[test]
    fn no_bytes_make_the_framing_panic(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        check(&data);
    }
}
