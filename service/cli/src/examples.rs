//! Examples in the help of every command, and in the manual's pages.

use clap::Command;
use clap::builder::StyledStr;

/// Lines that one can type, at most 78 columns each; the words behind `lumpscope` say of which command.
const EXAMPLES: &[&str] = &[
    "lumpscope format /dev/sdX --name fast",
    "lumpscope format /srv/lumps.lusf --capacity 64G",
    "lumpscope serve --store fast=/dev/disk/by-id/ID --store cold=/srv/lumps.lusf",
    "lumpscope serve --config /etc/lumpscope.toml --check-config",
    "lumpscope put fast 00ff ./object.bin",
    "date | lumpscope put fast 100 --if-absent",
    "lumpscope get fast 00ff copy.bin",
    "lumpscope get fast 00ff --offset 4096 --length 512 | xxd",
    "lumpscope get fast 00ff --head",
    "lumpscope delete fast 00ff 0100",
    "lumpscope delete fast --start 0 --end ffff",
    "lumpscope list fast --start 1000 --limit 20 --json",
    "lumpscope stores",
    "lumpscope stores --server https://store1:50051 --ca ca.pem",
    "lumpscope stat fast",
    "lumpscope stat fast --start 0 --end ffff --json",
    "lumpscope health",
    "lumpscope health fast --json",
    "lumpscope sync fast",
    "lumpscope evacuate old new --rate 50M",
    "lumpscope evacuate old new --to-server https://store2:50051 --to-ca ca.pem",
    "lumpscope admin scrub fast",
    "lumpscope admin scrub fast --start --rate 20M",
    "lumpscope admin gc fast",
    "lumpscope admin drain fast --wait 60",
    "lumpscope admin drain old --changes-only",
    "lumpscope admin resume fast",
    "lumpscope admin add-store fast /dev/sdX",
    "lumpscope admin remove-store fast --wait 30",
    "lumpscope admin service --json",
    "lumpscope admin service --reload",
    "lumpscope admin observer",
    "lumpscope admin observer --one-in 10 --slower-than 5ms",
    "lumpscope check /dev/sdX",
    "lumpscope check /dev/sdX --quick",
    "lumpscope check /dev/sdX --lumps --limit 10 --json",
    "lumpscope grow /dev/sdX",
    "lumpscope grow /srv/lumps.lusf --capacity 128G",
    "lumpscope rename /dev/sdX cold",
    "lumpscope token --name backup --scope read,observe --store fast",
    "lumpscope explain 4711",
    "lumpscope explain --replay flight-01795271750-put-4711.jsonl",
    "lumpscope explain --slowest 5 --within 5m",
    "lumpscope trace --owner fs-journal --min-distance 1G",
    "lumpscope trace --replay r.jsonl --store fast",
    "lumpscope top",
    "lumpscope top --replay r.jsonl",
    "lumpscope record r.jsonl --seconds 60",
    "lumpscope export r.jsonl --format csv",
    "lumpscope bpftrace head-mover --store fast --seconds 30s",
    "lumpscope doctor",
    "lumpscope doctor --config /etc/lumpscope.toml --all",
    "lumpscope completions bash >/etc/bash_completion.d/lumpscope",
    "lumpscope man ~/.local/share/man/man1",
    "lumpscope demo --html demo.html",
    "lumpscope compare --model st1000dm003",
    "lumpscope compare --scale 0.01 --html compare.html",
    "sudo lumpscope lab --drive st1000dm003",
    "lumpscope watch --path /srv/db -- sqlite3 /srv/db/a.db .tables",
    "lumpscope load --store raw --clients 4",
    "lumpscope platter drives",
    "lumpscope platter drives st1000dm003",
    "lumpscope platter replay r.jsonl --device sdb --drive st1000dm003",
    "sudo lumpscope platter attach --drive st1000dm003 --size 10G",
    "sudo lumpscope platter attach --drive st1000dm003 --bad-spots 64M+64K,1G+4K",
    "sudo lumpscope platter detach /dev/loop0",
    "lumpscope platter status",
    "sudo lumpscope platter status /dev/loop0 --bad-spots 64M+64K",
    "sudo lumpscope platter check",
    "lumpscope bench engine --output engine.json",
    "lumpscope bench grpc",
    "sudo lumpscope bench observe",
    "lumpscope bench run rand1 --scale 0.01 --store xfs --verify",
    "lumpscope bench run rand1 --print summary",
    "lumpscope bench seeds cannyls --html tables.html",
    "lumpscope bench seeds diskbenchi",
    "lumpscope bench seeds fileserver --rounds 5 --seconds 4",
    "lumpscope bench orders",
    "lumpscope bench peers",
    "sudo lumpscope bench peers --blocks --size 25K --fill 100000",
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
    let lines: Vec<&str> = EXAMPLES
        .iter()
        .copied()
        .filter(|line| is_of(line, path))
        .collect();
    if path.is_empty() || command.has_subcommands() || lines.is_empty() {
        return command;
    }
    let more = command.get_after_help().map(StyledStr::to_string);
    let more = more.map_or_else(String::new, |more| format!("\n\n{more}"));
    let word = if lines.len() == 1 {
        "Example"
    } else {
        "Examples"
    };
    command.after_help(format!("{word}:\n  {}{more}", lines.join("\n  ")))
}

/// Whether an example is one of the command with these words.
fn is_of(line: &str, path: &str) -> bool {
    let typed = line.split_once("lumpscope ").map_or("", |(_, typed)| typed);
    let mut typed = typed.split_whitespace();
    path.split(' ').all(|word| typed.next() == Some(word))
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
                let has_example = EXAMPLES.iter().any(|line| is_of(line, inner.get_name()));
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
        assert_eq!(outputs > 8, cfg!(feature = "lab"), "{outputs}");
    }

    #[test]
    fn every_command_has_an_example_that_it_takes() {
        let mut found = Vec::new();
        leaves(&Cli::command(), "", &mut found);
        for path in &found {
            assert!(EXAMPLES.iter().any(|line| is_of(line, path)), "{path}");
        }
        for line in EXAMPLES {
            assert!(line.chars().count() <= 78, "{line}");
            if !found.iter().any(|path| is_of(line, path)) {
                // Only the laboratory may be left out.
                let has_lab = found.iter().any(|path| path == "watch");
                assert!(!has_lab, "{line}");
                continue;
            }
            let typed = line.split_once("lumpscope").unwrap().1;
            let typed = typed.split(['|', '>']).next().unwrap();
            let typed = ["lumpscope"].into_iter().chain(typed.split_whitespace());
            if let Err(error) = Cli::try_parse_from(typed) {
                panic!("{line}: {error}");
            }
        }
    }
}
