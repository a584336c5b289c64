//! Files that people write.

use http::{HeaderMap, HeaderValue};
use lumpscope::config::ServeArgs;
use lumpscope::door;

/// The configuration: what is refused is refused in one line, what is taken can be taken again.
pub(crate) fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(args) = toml::from_str::<ServeArgs>(text) else {
        return;
    };
    match (args.clone().resolve(), args.resolve()) {
        (Ok(config), Ok(again)) => assert_eq!(format!("{config:?}"), format!("{again:?}")),
        (Err(error), Err(_)) => {
            let message = error.to_string();
            assert!(!message.contains('\n'), "{message:?}");
        }
        (one, other) => panic!("{one:?}, and then {other:?}"),
    }
}

/// The file of tokens, whose text is also tried as a login.
pub(crate) fn tokens(data: &[u8]) {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(data.get(..40).unwrap_or(data)) {
        headers.append("authorization", value);
    }
    match door::try_login(data, &headers) {
        Ok(Ok(caller)) => panic!("a hash of 40 bytes was guessed: {caller:?}"),
        Ok(Err(_)) => {}
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains('\n'), "{message:?}");
        }
    }
}
