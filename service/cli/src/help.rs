//! Help, which clap fits to the terminal.

use clap::error::ErrorKind;

use crate::output;

/// Shows help or what is wrong with the arguments, and ends the program.
pub(super) fn exit(error: &clap::Error) -> ! {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::print_as_is(&error.to_string());
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprintln!("{}", error.to_string().trim_end());
        }
        _ => output::complain(error.to_string().trim_end()),
    }
    std::process::exit(error.exit_code());
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use crate::commands;

    fn every(command: &mut Command, path: &str, found: &mut Vec<(String, String)>) {
        let help = command.render_long_help().to_string();
        found.push((path.to_owned(), help));
        found.push((path.to_owned(), command.render_help().to_string()));
        for below in command.get_subcommands_mut() {
            let path = format!("{path} {}", below.get_name());
            every(below, &path, found);
        }
    }

    #[test]
    fn every_help_fits_eighty_columns() {
        let mut found = Vec::new();
        let mut command = commands().term_width(80);
        command.build();
        every(&mut command, "lumpscope", &mut found);
        assert!(found.len() > 60);
        for (path, help) in found {
            for line in help.lines() {
                assert!(line.chars().count() <= 80, "{path}: {line:?}");
            }
        }
    }
}
