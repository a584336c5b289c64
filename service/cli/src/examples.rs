//! Examples in the help of every command, and in the manual's pages.

use clap::Command;
use clap::builder::StyledStr;

/// Words of a command, and lines that one can type. At most 78 columns each.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "format",
        &[
            "lumpscope format /dev/sdX",
            "lumpscope format /srv/lumps.lusf --capacity 64G",
        ],
    ),
    (
        "serve",
        &[
            "lumpscope serve --store fast=/dev/sdX --store cold=/srv/lumps.lusf",
            "lumpscope serve --config /etc/lumpscope.toml --check-config",
        ],
    ),
    (
        "put",
        &[
            "lumpscope put fast 00ff ./object.bin",
            "date | lumpscope put fast 100 --if-absent",
        ],
    ),
    (
        "get",
        &[
            "lumpscope get fast 00ff copy.bin",
            "lumpscope get fast 00ff --offset 4096 --length 512 | xxd",
        ],
    ),
    ("head", &["lumpscope head fast 00ff"]),
    ("delete", &["lumpscope delete fast 00ff 0100"]),
    ("delete-range", &["lumpscope delete-range fast 0 ffff"]),
    (
        "list",
        &["lumpscope list fast --start 1000 --limit 20 --json"],
    ),
    (
        "stores",
        &[
            "lumpscope stores",
            "lumpscope stores --server https://store1:50051 --ca ca.pem",
        ],
    ),
    (
        "stat",
        &[
            "lumpscope stat fast",
            "lumpscope stat fast --start 0 --end ffff --json",
        ],
    ),
    (
        "health",
        &["lumpscope health", "lumpscope health fast --json"],
    ),
    ("sync", &["lumpscope sync fast"]),
    (
        "evacuate",
        &[
            "lumpscope evacuate old new --rate 50M",
            "lumpscope evacuate old new --to-server https://store2:50051 --to-ca ca.pem",
        ],
    ),
    (
        "admin scrub",
        &[
            "lumpscope admin scrub fast",
            "lumpscope admin scrub fast --start --rate 20M",
        ],
    ),
    ("admin gc", &["lumpscope admin gc fast"]),
    ("admin drain", &["lumpscope admin drain fast --wait 60"]),
    ("admin resume", &["lumpscope admin resume fast"]),
    (
        "admin add-store",
        &["lumpscope admin add-store fast /dev/sdX"],
    ),
    (
        "admin remove-store",
        &["lumpscope admin remove-store fast --wait 30"],
    ),
    ("admin reload", &["lumpscope admin reload"]),
    ("admin service", &["lumpscope admin service --json"]),
    ("admin observer", &["lumpscope admin observer"]),
    ("admin events", &["lumpscope admin events"]),
    (
        "check",
        &[
            "lumpscope check /dev/sdX",
            "lumpscope check /dev/sdX --quick",
            "lumpscope check /dev/sdX --lumps --limit 10 --json",
        ],
    ),
    (
        "grow",
        &[
            "lumpscope grow /dev/sdX",
            "lumpscope grow /srv/lumps.lusf --capacity 128G",
        ],
    ),
    (
        "token",
        &["lumpscope token --name backup --scope read,observe --store fast"],
    ),
    (
        "explain",
        &[
            "lumpscope explain 4711",
            "lumpscope explain --slowest 5 --within 5m",
            "lumpscope explain --replay flight-01795271750-put-4711.jsonl",
        ],
    ),
    (
        "trace",
        &[
            "lumpscope trace --owner fs-journal --min-distance 1G",
            "lumpscope trace --replay r.jsonl --store fast",
        ],
    ),
    ("top", &["lumpscope top", "lumpscope top --replay r.jsonl"]),
    ("record", &["lumpscope record r.jsonl --seconds 60"]),
    ("export", &["lumpscope export r.jsonl --format csv"]),
    (
        "bpftrace",
        &["lumpscope bpftrace head-mover --store fast --seconds 30s"],
    ),
    (
        "doctor",
        &[
            "lumpscope doctor",
            "lumpscope doctor --config /etc/lumpscope.toml --all",
        ],
    ),
    (
        "completions",
        &["lumpscope completions bash >/etc/bash_completion.d/lumpscope"],
    ),
    ("man", &["lumpscope man ~/.local/share/man/man1"]),
    (
        "compare",
        &[
            "lumpscope compare --model st1000dm003",
            "lumpscope compare --scale 0.01 --html compare.html",
        ],
    ),
    ("lab", &["sudo lumpscope lab --drive st1000dm003"]),
    (
        "watch",
        &["lumpscope watch --path /srv/db -- sqlite3 /srv/db/a.db .tables"],
    ),
    ("load", &["lumpscope load --store raw --clients 4"]),
    (
        "platter drives",
        &[
            "lumpscope platter drives",
            "lumpscope platter drives st1000dm003",
        ],
    ),
    (
        "platter replay",
        &["lumpscope platter replay r.jsonl --device sdb --drive st1000dm003"],
    ),
    (
        "platter attach",
        &[
            "sudo lumpscope platter attach --drive st1000dm003 --size 10G",
            "sudo lumpscope platter attach --drive st1000dm003 --bad-spots 64M+64K,1G+4K",
        ],
    ),
    (
        "platter bad-spots",
        &[
            "sudo lumpscope platter bad-spots /dev/loop0 64M+64K",
            "sudo lumpscope platter bad-spots /dev/loop0",
        ],
    ),
    (
        "platter detach",
        &["sudo lumpscope platter detach /dev/loop0"],
    ),
    ("platter status", &["lumpscope platter status --json"]),
    ("platter log", &["sudo lumpscope platter log /dev/loop0"]),
    ("platter check", &["sudo lumpscope platter check"]),
    (
        "bench engine",
        &["lumpscope bench engine --output engine.json"],
    ),
    ("bench grpc", &["lumpscope bench grpc"]),
    ("bench observe", &["sudo lumpscope bench observe"]),
    (
        "bench commands",
        &["lumpscope bench commands rand1 --summary"],
    ),
    (
        "bench run",
        &["lumpscope bench run rand1 --scale 0.01 --store xfs --verify"],
    ),
    (
        "bench seeds cannyls",
        &["lumpscope bench seeds cannyls --html tables.html"],
    ),
    (
        "bench seeds diskbenchi",
        &["lumpscope bench seeds diskbenchi"],
    ),
    (
        "bench seeds fileserver",
        &["lumpscope bench seeds fileserver"],
    ),
    ("bench orders", &["lumpscope bench orders"]),
    (
        "bench peers",
        &[
            "lumpscope bench peers",
            "sudo lumpscope bench peers --blocks --size 25K --fill 100000",
        ],
    ),
];

/// The command with examples in the help of every command below it.
pub(super) fn with_examples(command: Command) -> Command {
    below(command, "")
}

fn below(command: Command, path: &str) -> Command {
    // What the environment holds is nobody else's business, and as long as it likes.
    let mut command = command.mut_args(|arg| arg.hide_env_values(true));
    let names: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_owned())
        .collect();
    for name in names {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(name, |inner| below(inner, path.trim_start()));
    }
    let Some((_, lines)) = EXAMPLES.iter().find(|(words, _)| *words == path) else {
        return command;
    };
    let more = command.get_after_help().map(StyledStr::to_string);
    let more = more.map_or_else(String::new, |more| format!("\n\n{more}"));
    let word = if lines.len() == 1 {
        "Example"
    } else {
        "Examples"
    };
    command.after_help(format!("{word}:\n  {}{more}", lines.join("\n  ")))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::Cli;

    fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
        let inner: Vec<&Command> = command
            .get_subcommands()
            .filter(|inner| {
                let has_example = EXAMPLES.iter().any(|(words, _)| *words == inner.get_name());
                inner.get_name() != "help" && (has_example || !inner.is_hide_set())
            })
            .collect();
        if inner.is_empty() {
            found.push(path.trim().to_owned());
        }
        for inner in inner {
            leaves(inner, &format!("{path} {}", inner.get_name()), found);
        }
    }

    fn arguments(command: &Command, found: &mut Vec<clap::Arg>) {
        found.extend(command.get_arguments().cloned());
        for inner in command.get_subcommands() {
            arguments(inner, found);
        }
    }

    #[test]
    fn json_is_for_standard_output_and_output_names_a_file() {
        let (mut found, mut outputs) = (Vec::new(), 0);
        arguments(&Cli::command(), &mut found);
        for argument in found {
            match argument.get_long() {
                Some("json") => assert!(!argument.get_action().takes_values(), "{argument:?}"),
                Some("output") => {
                    assert!(argument.get_action().takes_values(), "{argument:?}");
                    outputs += 1;
                }
                _ => {}
            }
        }
        assert_eq!(outputs > 10, cfg!(feature = "lab"), "{outputs}");
    }

    #[test]
    fn every_command_has_an_example_that_it_takes() {
        let mut found = Vec::new();
        leaves(&Cli::command(), "", &mut found);
        found.sort();
        let mut with: Vec<&str> = EXAMPLES.iter().map(|(words, _)| *words).collect();
        with.sort_unstable();
        if cfg!(feature = "lab") {
            assert_eq!(found, with);
        }
        for (words, lines) in EXAMPLES {
            if !found.iter().any(|path| path == words) {
                continue;
            }
            for line in *lines {
                assert!(line.chars().count() <= 78, "{line}");
                let program = line.split_once("lumpscope").unwrap().1;
                assert!(program.trim_start().starts_with(words), "{line}");
                let typed = program.split(['|', '>']).next().unwrap();
                let typed = ["lumpscope"].into_iter().chain(typed.split_whitespace());
                if let Err(error) = Cli::try_parse_from(typed) {
                    panic!("{line}: {error}");
                }
            }
        }
    }
}
