//! Real loop devices for tests, taken away again when they go out of scope.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_engine::guard::{FormatError, User};
use sha2::{Digest, Sha256};

/// Goes on, alone, when loop devices can be made and these tools are there; else the test is skipped.
macro_rules! require {
    ($($tool:literal),*) => {
        let _turn = $crate::support::turns::alone();
        use lumpscope_needs::Need;
        if !lumpscope_needs::available(&[Need::LoopDevices, Need::Tool("losetup") $(, Need::Tool($tool))*]) {
            return;
        }
    };
}

pub(crate) use require;

/// Prints past the test runner, which hides what a passing test prints.
pub(crate) fn say(text: &str) {
    // The reason of a skip is lost when standard error is closed; nothing can be done then.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The defaults.
pub(crate) fn plain() -> CreateOptions<'static> {
    CreateOptions::default()
}

/// The defaults, by force.
pub(crate) fn forced() -> CreateOptions<'static> {
    CreateOptions {
        force: true,
        ..CreateOptions::default()
    }
}

/// Formats what must be refused, and checks that the image did not change.
pub(crate) fn refusal(image: &Image, path: &Path, options: &CreateOptions<'_>) -> FormatError {
    let before = image.hash();
    let error = format(path, options).expect_err("must be refused");
    assert_eq!(
        image.hash(),
        before,
        "the image was changed by a refused format: {error}"
    );
    assert!(
        error.to_string().starts_with(&path.display().to_string()),
        "{error}"
    );
    error
}

/// The user of a disk, as a refusal names it.
pub(crate) fn user_of(error: &FormatError) -> &User {
    match error {
        FormatError::InUse { by, .. } => by,
        error => panic!("{error}"),
    }
}

pub(crate) fn writable(path: &Path) -> File {
    File::options().write(true).open(path).expect("opened")
}

/// The last part of a path.
pub(crate) fn name_of(path: &Path) -> &str {
    let name = path.file_name().and_then(OsStr::to_str);
    name.expect("a name of ASCII letters")
}

/// Runs a tool that must succeed; returns what it printed.
pub(crate) fn run<A: AsRef<OsStr>>(tool: &str, arguments: &[A]) -> String {
    try_run(tool, arguments).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a tool; the error is what it said.
pub(crate) fn try_run<A: AsRef<OsStr>>(tool: &str, arguments: &[A]) -> Result<String, String> {
    pipe(tool, arguments, "")
}

/// Runs a tool with `input` on its standard input; the error is what it said.
pub(crate) fn pipe<A: AsRef<OsStr>>(
    tool: &str,
    arguments: &[A],
    input: &str,
) -> Result<String, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = Command::new(tool)
        .args(arguments)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{tool}: {error}"))?;
    // A tool that does not read its input may be gone already.
    let _ = child
        .stdin
        .take()
        .map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child
        .wait_with_output()
        .map_err(|error| format!("{tool}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!(
        "{tool}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

/// A sparse image in a directory of its own.
pub(crate) struct Image {
    directory: tempfile::TempDir,
}

impl Image {
    pub(crate) fn new(len: u64) -> Self {
        Self::new_in(Path::new(env!("CARGO_TARGET_TMPDIR")), len)
    }

    pub(crate) fn new_in(folder: &Path, len: u64) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("lumpscope-guard-")
            .tempdir_in(folder)
            .expect("a directory");
        let image = Self { directory };
        File::create(image.path())
            .and_then(|file| file.set_len(len))
            .expect("an image");
        image
    }

    /// One on which a tool has made something.
    pub(crate) fn made(len: u64, tool: &str, flags: &str) -> Self {
        let image = Self::new(len);
        run(tool, &[Path::new(flags), &image.path()]);
        image
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("lumpscope-guard.img")
    }

    /// SHA-256 of all its bytes.
    pub(crate) fn hash(&self) -> [u8; 32] {
        let mut file = File::open(self.path()).expect("readable");
        let mut hash = Sha256::new();
        std::io::copy(&mut file, &mut hash).expect("readable");
        hash.finalize().into()
    }

    /// A directory beside the image, to mount at.
    pub(crate) fn mount_point(&self) -> PathBuf {
        let path = self.directory.path().join("mount");
        fs::create_dir_all(&path).expect("a directory");
        path
    }

    /// A loop device over the image.
    pub(crate) fn attach(&self, options: &[&str]) -> Loop {
        let path = self.path();
        let path = path.to_str().expect("a path of ASCII letters");
        let arguments = [&["--find", "--show"], options, &[path]].concat();
        // Another process may take the device between its choice and its use.
        let device = (0..20)
            .find_map(|_| try_run("losetup", &arguments).ok())
            .unwrap_or_else(|| run("losetup", &arguments));
        Loop {
            device: PathBuf::from(device),
        }
    }
}

/// A loop device; detached on drop.
pub(crate) struct Loop {
    device: PathBuf,
}

impl Loop {
    pub(crate) fn path(&self) -> &Path {
        &self.device
    }

    /// Its first partition, from sector `start` on. A kernel that reads partition tables has made
    /// it already; any other is told of it.
    pub(crate) fn partition(&self, start: u64, sectors: u64) -> PathBuf {
        let path = PathBuf::from(format!("{}p1", self.device.display()));
        let name = name_of(&path);
        if !Path::new("/sys/class/block").join(name).exists() {
            let device = self.device.to_str().expect("a path of ASCII letters");
            run(
                "addpart",
                &[device, "1", &start.to_string(), &sectors.to_string()],
            );
        }
        for _ in 0..100 {
            if path.exists() {
                return path;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("{} did not appear", path.display());
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = try_run(
            "losetup",
            &[OsStr::new("--detach"), self.device.as_os_str()],
        ) {
            say(&error);
        }
    }
}

/// A mount; unmounted on drop.
pub(crate) struct Mount {
    pub(crate) at: PathBuf,
}

impl Mount {
    pub(crate) fn new(device: &Path, at: PathBuf) -> Self {
        run("mount", &[device, &at]);
        Self { at }
    }

    /// Of a btrfs on this device; `None`, said: this kernel has none.
    pub(crate) fn btrfs(device: &Path, at: PathBuf) -> Option<Self> {
        match try_run("mount", &[device, &at]) {
            Ok(_) => Some(Self { at }),
            Err(error) => {
                lumpscope_needs::skipped(&format!("no btrfs here: {error}"));
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = try_run("umount", &[&self.at]) {
            say(&error);
        }
    }
}
