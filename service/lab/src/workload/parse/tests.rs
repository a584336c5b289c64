//! Syntax of the language, and its error messages.

use super::*;

fn error(text: &str) -> String {
    Workload::parse(text).unwrap_err().to_string()
}

#[test]
fn reads_everything_the_language_has() {
    let text = "# a comment before the seed\n\
        Seed: 7; # and after\n\
        Ordered[10] { <80%> New(512K); # inside braces\n <20%> { Get(1 , 5); Delete; }; }\n\
        Unordered[3]{<255%> 2.times { Embed(9); 3.times { OverWrite(2G); }; };}\n\
        Command { Get; Delete(0, 20); DeleteRange(10, 90); New(0); } # the end";
    let workload = Workload::parse(text).unwrap();
    assert_eq!(workload.seed, 7);
    let times = Statement::Times(
        2,
        vec![
            Statement::Embed(9),
            Statement::Times(3, vec![Statement::OverWrite(2 << 30)]),
        ],
    );
    assert_eq!(
        workload.sections,
        vec![
            Section::Ordered {
                count: 10,
                choices: vec![
                    Choice {
                        percent: 80,
                        body: vec![Statement::New(512 << 10)]
                    },
                    Choice {
                        percent: 20,
                        body: vec![
                            Statement::Get(AgeBand { from: 1, to: 5 }),
                            Statement::Delete(AgeBand::ALL),
                        ],
                    },
                ],
            },
            Section::Unordered {
                count: 3,
                choices: vec![Choice {
                    percent: 255,
                    body: vec![times]
                }],
            },
            Section::Command(vec![
                Statement::Get(AgeBand::ALL),
                Statement::Delete(AgeBand { from: 0, to: 20 }),
                Statement::DeleteRange(AgeBand { from: 10, to: 90 }),
                Statement::New(0),
            ]),
        ]
    );
}

/// Text, where the error is, and what it says.
const WRONG: [(&str, &str, &str); 15] = [
    ("", "line 1, column 1: expected", "the end of the text"),
    (
        "Command {\n  New(1M)\n}",
        "line 3, column 1: expected `;`",
        "found `}`",
    ),
    (
        "Command {\n  5.times {\n    Nwe(1M);",
        "line 3, column 5: ",
        "a command is New(SIZE)",
    ),
    (
        "Command { New(1X); }",
        "line 1, column 16: ",
        "a unit is K, M or G",
    ),
    (
        "Command { New(8G); }",
        "line 1, column 17: ",
        "4 GiB at most",
    ),
    (
        "Command { Embed(64K); }",
        "line 1, column 16: ",
        "65,535 bytes at most",
    ),
    (
        "Command { Get(50, 5); }",
        "line 1, column 19: ",
        "at least the first",
    ),
    (
        "Command { Get(0, 101); }",
        "line 1, column 18: ",
        "at most 100",
    ),
    (
        "Ordered[10] { <256%> Get; }",
        "line 1, column 19: ",
        "255 % at most",
    ),
    (
        "Ordered 10 { }",
        "line 1, column 9: expected `[`",
        "found `10`",
    ),
    (
        "Command { Get; } garbage",
        "line 1, column 18: expected",
        "found `garbage`",
    ),
    (
        "# über\nKommand { }",
        "line 2, column 1: expected",
        "`Command`",
    ),
    (
        "Command { Get; ",
        "line 1, column 16: expected",
        "the end of the text",
    ),
    ("Seed 5;", "line 1, column 6: expected `:`", "found `5;`"),
    (
        "Command { 99999999999999999999.times { Get; }; }",
        "line 1, column 11: ",
        "below 2^64",
    ),
];

#[test]
fn errors_say_where_and_what() {
    for (text, place, what) in WRONG {
        let error = error(text);
        assert!(
            error.starts_with(place) && error.contains(what),
            "{text:?}: {error}"
        );
    }
}

#[test]
fn nesting_has_a_limit() {
    let text = format!(
        "Command {{ {} Get; {} }}",
        "2.times {".repeat(100),
        "};".repeat(100)
    );
    assert!(error(&text).contains("nested too deeply"));
}
