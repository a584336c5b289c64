//! Files that people write.

use lumpscope::config::ServeArgs;
use lumpscope::fuzzing;

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

/// The file of tokens.
pub(crate) fn tokens(data: &[u8]) {
    if let Err(error) = fuzzing::tokens(data) {
        let message = error.to_string();
        assert!(!message.contains('\n'), "{message:?}");
    }
}
