//! Manual pages and completions, as the program writes them.

use std::path::Path;
use std::process::Command;

use crate::common::folder;
use crate::process::PROGRAM;
use lumpscope_needs::{Need, available};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[track_caller]
fn good(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{said}");
    text
}

#[test]
fn the_manual_and_the_completions_know_every_command() {
    let dir = folder();
    let folder = dir.path().join("man");
    let told = good(Command::new(PROGRAM).args(["man", text(&folder)]));
    let pages = std::fs::read_dir(&folder).unwrap().count();
    assert!(told.starts_with(&format!("{pages} pages")), "{told}");
    let page = std::fs::read_to_string(folder.join("lumpscope-evacuate.1")).unwrap();
    assert!(page.contains("Examples") && page.contains(".TH"), "{page}");
    if available(&[Need::Tool("man")]) {
        let page = folder.join("lumpscope-admin-drain.1");
        let shown = good(
            Command::new("man")
                .args(["--warnings", "-l", text(&page)])
                .env("MANWIDTH", "80"),
        );
        assert!(shown.contains("lumpscope admin drain"), "{shown}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = good(Command::new(PROGRAM).args(["completions", shell]));
        for word in ["evacuate", "add-store", "to-server"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let script = good(Command::new(PROGRAM).args(["completions", "bash"]));
    let file = dir.path().join("lumpscope.bash");
    std::fs::write(&file, script).unwrap();
    let ask = "source \"$0\"; COMP_WORDS=(lumpscope eva); COMP_CWORD=1; _lumpscope lumpscope eva \
               lumpscope; echo \"${COMPREPLY[@]}\"";
    let answer = good(Command::new("bash").args(["-c", ask, text(&file)]));
    assert_eq!(answer.trim(), "evacuate");
}
