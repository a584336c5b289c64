//! The settings of a loop device's queue that make it look like a disk of platters.
//!
//! They belong to the device's number, not to its image, so what was there before is put back.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::LiveError;

/// A setting of the queue: its file, and the value for a disk of platters.
const SETTINGS: [(&str, &str); 3] = [
    // One request of FUSE carries 1 MiB at most.
    ("max_sectors_kb", "1024"),
    ("rotational", "1"),
    ("scheduler", "mq-deadline"),
];

/// The previous settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Before {
    device: PathBuf,
    values: Vec<(String, String)>,
}

/// Sets what makes a disk of platters. A scheduler that the kernel does not have stays as it is.
pub(super) fn apply(device: &Path) -> Result<Before, LiveError> {
    let mut before = Before {
        device: device.to_owned(),
        values: Vec::new(),
    };
    for (name, value) in SETTINGS {
        let file = file(device, name);
        if let Ok(old) = fs::read_to_string(&file) {
            before.values.push((name.to_owned(), chosen(&old)));
        }
        match fs::write(&file, value) {
            Ok(()) => {}
            Err(_) if name == "scheduler" => {}
            Err(error) => {
                before.restore();
                return Err(LiveError::io("set", file)(error));
            }
        }
    }
    Ok(before)
}

impl Before {
    /// `/dev/loopN`.
    pub(super) fn device(&self) -> &Path {
        &self.device
    }

    /// Puts back what was there. Nothing can be done when that fails, and nothing depends on it.
    pub(super) fn restore(&self) {
        for (name, value) in &self.values {
            let _ = fs::write(file(&self.device, name), value);
        }
    }
}

fn file(device: &Path, setting: &str) -> PathBuf {
    let name = device.file_name().unwrap_or_default();
    Path::new("/sys/block")
        .join(name)
        .join("queue")
        .join(setting)
}

/// The value; of a choice such as `none [mq-deadline]` that in brackets.
fn chosen(text: &str) -> String {
    let within = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    within.map_or(text, |(chosen, _)| chosen).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_of_several_is_found() {
        assert_eq!(chosen("[none] mq-deadline kyber\n"), "none");
        assert_eq!(chosen("1280\n"), "1280");
    }
}
