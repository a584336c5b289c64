//! The language under any text at all: never a panic, and every error points into the text.

use lumpscope_lab::workload::{BUILTIN, ParseError, Workload};
use proptest::prelude::*;

/// Words, signs and numbers of the language, and some that are not.
const PIECES: [&str; 44] = [
    "Seed",
    ":",
    "7",
    ";",
    "Ordered",
    "Unordered",
    "Command",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "%",
    "(",
    ")",
    ",",
    ".",
    "times",
    "New",
    "OverWrite",
    "Embed",
    "Get",
    "Delete",
    "DeleteRange",
    "K",
    "M",
    "G",
    "T",
    "0",
    "1",
    "20",
    "100",
    "101",
    "255",
    "256",
    "65536",
    "4294967297",
    "18446744073709551616",
    "#",
    "\n",
    "\r\n",
    "# über ✓\n",
    "\u{feff}",
];

/// The error's place is a place of the text, or the one right behind it.
fn points_into(text: &str, error: &ParseError) -> Result<(), TestCaseError> {
    let lines: Vec<&str> = text.split('\n').collect();
    prop_assert!(
        error.line >= 1 && error.line <= lines.len(),
        "{error} of {text:?}"
    );
    let columns = lines[error.line - 1].chars().count();
    prop_assert!(
        error.column >= 1 && error.column <= columns + 1,
        "{error} of {text:?}"
    );
    prop_assert!(!error.message.is_empty());
    Ok(())
}

/// Parses; what is accepted can also be scaled, and generated if that is not too long.
fn survives(text: &str) -> Result<(), TestCaseError> {
    match Workload::parse(text) {
        Err(error) => points_into(text, &error),
        Ok(workload) => {
            // A small one, so that a count of 2^64 does not make a test of hours.
            if let Ok(stream) = workload.scaled(1e-18).generate() {
                prop_assert!(!stream.commands.is_empty());
                prop_assert!(stream.peak_bytes <= stream.bytes_put());
            }
            Ok(())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text(text in any::<String>()) {
        survives(&text)?;
    }

    #[test]
    fn any_order_of_the_languages_pieces(
        pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40),
        blanks in any::<bool>(),
    ) {
        survives(&pieces.join(if blanks { " " } else { "" }))?;
    }

    #[test]
    fn a_workload_with_a_piece_that_does_not_belong(
        builtin in 0..BUILTIN.len(),
        piece in prop::sample::select(&PIECES[..]),
        at in any::<prop::sample::Index>(),
        removed in 0..5_usize,
    ) {
        let mut text: Vec<char> = BUILTIN[builtin].text.chars().collect();
        let at = at.index(text.len() + 1);
        let end = text.len().min(at + removed);
        text.splice(at..end, piece.chars());
        survives(&text.into_iter().collect::<String>())?;
    }
}

/// Comments and blanks between any two tokens change nothing.
#[test]
fn comments_may_stand_anywhere() {
    let tokens = "Seed : 5 ; Ordered [ 3 ] { < 50 % > New ( 2 K ) ; < 100 % > { Get ( 1 , 5 ) ; \
                  2 . times { Delete ; } ; } ; } Unordered [ 2 ] { < 10 % > Get ; } Command { \
                  3 . times { Embed ( 9 ) ; } ; OverWrite ( 1 ) ; DeleteRange ( 0 , 50 ) ; }";
    let plain = Workload::parse(&tokens.replace(' ', "")).unwrap();
    for between in [" ", "\n", "\t", "# a comment; } New(\n", "\r\n# é\r\n"] {
        let text = format!("{between}{}{between}", tokens.replace(' ', between));
        assert_eq!(Workload::parse(&text), Ok(plain.clone()), "{between:?}");
    }
}

/// Where the original panics, there is an error with a place and what is allowed.
#[test]
fn what_panics_in_the_original_is_an_error_here() {
    for (text, place, allowed) in [
        (
            "Command { Get(60, 40); }",
            "line 1, column 19",
            "at least the first",
        ),
        (
            "Command { New(1);\n Delete(0, 101); }",
            "line 2, column 12",
            "at most 100",
        ),
        (
            "Command { DeleteRange(50, 20); }",
            "line 1, column 27",
            "at least the first",
        ),
        (
            "Command { Embed(65536); }",
            "line 1, column 16",
            "65,535 bytes at most",
        ),
        (
            "Ordered[1] { <256%> Get; }",
            "line 1, column 18",
            "255 % at most",
        ),
        (
            "Command { New(18446744073709551616); }",
            "line 1, column 15",
            "below 2^64",
        ),
    ] {
        let error = Workload::parse(text).unwrap_err().to_string();
        assert!(
            error.starts_with(place) && error.contains(allowed),
            "{text}: {error}"
        );
    }
    let error = Workload::parse("Command { Get; }")
        .unwrap()
        .generate()
        .unwrap_err();
    assert!(error.to_string().contains("no command at all"), "{error}");
}

/// The description of the language for people is correct.
#[test]
fn the_description_is_right() {
    let text = include_str!("../../workloads/README.md");
    let example = text.split("```").nth(1).unwrap();
    let example = example.strip_prefix("text\n").unwrap();
    assert_eq!(Workload::parse(example).unwrap().sections.len(), 2);
    for builtin in BUILTIN {
        assert!(text.contains(&format!("| {} | ", builtin.name)));
    }
}
