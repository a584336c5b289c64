//! Tests that need root, a kernel feature or a tool: outside CI they are skipped with the reason printed, in CI
//! (`CI=true`) the missing thing is a failure.

use std::env;
use std::path::Path;

/// What a test cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Effective user 0: loop devices, mounts, probes.
    Root,
    /// A program on `PATH` or in the system's sbin folders.
    Tool(&'static str),
}

impl Need {
    fn missing(self) -> Option<String> {
        match self {
            Need::Root if rustix::process::geteuid().is_root() => None,
            Need::Root => Some("root is needed (loop devices, mounts, probes)".to_owned()),
            Need::Tool(name) => {
                if find_tool(name) {
                    None
                } else {
                    Some(format!(
                        "'{name}' is not installed (./dev setup installs it)"
                    ))
                }
            }
        }
    }
}

fn find_tool(name: &str) -> bool {
    let path = env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/sbin"])
        .any(|dir| Path::new(dir).join(name).is_file())
}

/// True when every need is there. Otherwise prints the reason and answers false, so that the test returns.
///
/// # Panics
/// With `CI=true`, when a need is missing: CI must never pass by skipping.
pub fn available(needs: &[Need]) -> bool {
    let Some(reason) = needs.iter().find_map(|need| need.missing()) else {
        return true;
    };
    assert!(
        env::var("CI").as_deref() != Ok("true"),
        "needed in CI: {reason}"
    );
    eprintln!("SKIPPED: {reason}");
    false
}
