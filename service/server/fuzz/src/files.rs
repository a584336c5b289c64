//! Files that people write.

use std::path::Path;

use http::{HeaderMap, HeaderValue};
use lumpscope_server::config::ServeConfig;
use lumpscope_server::door;
use lumpscope_server::door::{Access, Credentials};

/// The configuration: what is refused is refused in one line, what is taken can be taken again.
pub(crate) fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(args) = toml::from_str::<ServeConfig>(text) else {
        return;
    };
    match (args.clone().checked(), args.checked()) {
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

/// The file of access keys of S3: nobody may do anything without a rule.
pub(crate) fn s3_credentials(data: &[u8]) {
    match Credentials::of_file(Path::new("keys.toml"), data) {
        Ok(known) => {
            let Some(grants) = known.grants("AKA") else {
                return assert!(known.secret("AKA").is_none());
            };
            for (bucket, key) in [("a", ""), ("a", "p/x"), ("*", "p")] {
                let any = |access| grants.allow(access, bucket, key);
                let allowed = any(Access::Read) || any(Access::Write);
                assert!(!allowed || grants.know(bucket), "{bucket} {key}");
            }
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains('\n'), "{message:?}");
        }
    }
}
