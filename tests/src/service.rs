//! The real `lumpscope` binary: found, started as a child, and ended by its own process id.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

use lumpscope_lab::disks::{Lab, LabOptions, StoreKind};

/// Longest time a service may take to open its stores and say that it is ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Arguments of a service that listens on ports that are free.
pub const LISTEN: [&str; 4] = ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];

/// Path of the `lumpscope` binary of this build; built once when it is stale, unless `TESTED_BINARY` names one.
///
/// # Panics
/// When it cannot be built.
pub fn binary() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(built) = std::env::var_os("TESTED_BINARY") {
            return built.into();
        }
        let test = std::env::current_exe().expect("a test knows its own path");
        let folder = test
            .parent()
            .and_then(Path::parent)
            .expect("tests live in TARGET/PROFILE/deps");
        let path = folder.join("lumpscope");
        // Nothing to do within `cargo test --workspace`, which has just built it. Beside a test target, dependencies
        // have the features that the tests build them with; by itself, the program would compile most of them again.
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--workspace"]);
        cargo.args(["--bin", "lumpscope", "--test", "e2e"]);
        // The folder this test was built in: a relative CARGO_TARGET_DIR means another one here.
        cargo
            .arg("--target-dir")
            .arg(folder.parent().expect("a profile lies in a target folder"));
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        // What cargo tells a test about its package: a build script that looks at it would run again, and everything
        // above it would be compiled, here and in the next build outside.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                cargo.env_remove(&name);
            }
        }
        let built = cargo.status().expect("cargo starts");
        assert!(built.success(), "the lumpscope binary does not build");
        path
    })
}

/// Runs the binary to its end.
///
/// # Panics
/// When it cannot be started.
pub fn run<S: AsRef<OsStr>>(args: &[S]) -> Output {
    Command::new(binary())
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("lumpscope starts")
}

/// Runs the binary and insists on success; answers its standard output.
///
/// # Panics
/// When it fails; the message holds its standard error.
#[track_caller]
pub fn run_ok<S: AsRef<OsStr>>(args: &[S]) -> String {
    good(&run(args))
}

/// Arguments as one types them.
pub fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Insists that a program succeeded; answers its standard output.
///
/// # Panics
/// When it failed; the message holds all that it said.
#[track_caller]
pub fn good(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(status.success(), "{status}: {said}\n{failed}");
    said
}

/// Makes a store in a file of this folder, which has to be of a path in UTF-8.
///
/// # Panics
/// When it cannot be made.
pub fn file_store(folder: &Path, more: &[&str]) -> String {
    let path = folder.join("disk.lusf");
    let path = path.to_str().expect("UTF-8").to_owned();
    run_ok(&[&["format", &path][..], more].concat());
    path
}

/// Serves a store in a file, as "disk", with further arguments and without probes.
///
/// # Panics
/// When it does not become ready.
pub fn serve_file(store: &str, more: &[&str]) -> Service {
    let mut command = Command::new(binary());
    command.args(["serve", "--no-probes", "--store", &format!("disk={store}")]);
    command.args(LISTEN).args(more);
    Service::spawn(command)
}

/// A lab whose disks hold freshly made, empty stores of this capacity.
///
/// # Panics
/// When the lab or a store cannot be made.
pub fn lab_with_stores(kinds: &[StoreKind], disk_bytes: u64, capacity: &str) -> Lab {
    let options = LabOptions {
        kinds: kinds.to_vec(),
        ..LabOptions::new(disk_bytes)
    };
    let lab = Lab::create(&options).expect("a lab can be made");
    format_stores(&lab, capacity);
    lab
}

/// Makes an empty store of this capacity on each disk of a lab.
///
/// # Panics
/// When a store cannot be made.
pub fn format_stores(lab: &Lab, capacity: &str) {
    for store in lab.stores() {
        let mut format = lab.command(binary());
        format.args(["format", "--capacity", capacity]);
        let output = format.arg(&store.store_path).output();
        good(&output.expect("lumpscope starts"));
    }
}

/// A running service. Dropping it kills the process it started, and no other.
#[derive(Debug)]
pub struct Service {
    child: Child,
    /// `http://ADDRESS` of the gRPC listener.
    pub grpc: String,
    /// `ADDRESS` of the metrics listener.
    pub metrics: String,
    /// `ADDRESS` of the listener of S3; empty: it is off.
    pub s3: String,
}

impl Service {
    /// Starts `lumpscope serve` on all stores of a lab with further arguments, and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    pub fn start(lab: &Lab, more: &[&str]) -> Service {
        Service::start_within(lab, more, &[])
    }

    /// The same, with further variables of the environment.
    ///
    /// # Panics
    /// When it does not become ready.
    pub fn start_within(lab: &Lab, more: &[&str], variables: &[(&str, &str)]) -> Service {
        let mut command = lab.command(binary());
        command.arg("serve");
        for store in lab.stores() {
            let store = format!("{}={}", store.name, store.store_path.display());
            command.args(["--store", &store]);
        }
        command.args(LISTEN).args(more);
        command.envs(variables.iter().copied());
        Service::spawn(command)
    }

    /// Starts the given `serve` command and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    pub fn spawn(mut command: Command) -> Service {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("lumpscope starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut service = Service {
            child,
            grpc: String::new(),
            metrics: String::new(),
            s3: String::new(),
        };
        let ready = loop {
            match lines.recv_timeout(READY_WITHIN) {
                Ok(line) if line.starts_with("lumpscope ready") => break line,
                Ok(_) => {}
                Err(error) => panic!("the service did not become ready: {error}"),
            }
        };
        for word in ready.split_whitespace() {
            if let Some(address) = word.strip_prefix("grpc=") {
                service.grpc = format!("http://{address}");
            } else if let Some(address) = word.strip_prefix("metrics=") {
                service.metrics = address.to_owned();
            } else if let Some(address) = word.strip_prefix("s3=") {
                service.s3 = address.to_owned();
            }
        }
        service
    }

    /// Process id of the service.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// kill -9, then waits for the end.
    ///
    /// # Panics
    /// When the process cannot be killed.
    pub fn kill9(mut self) {
        self.child.kill().expect("the service was running");
        self.child.wait().expect("the service can be waited for");
    }

    /// SIGTERM, then waits; answers whether it ended with success.
    ///
    /// # Panics
    /// When the process cannot be signalled.
    pub fn stop(mut self) -> bool {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .expect("it can be signalled");
        self.child
            .wait()
            .expect("the service can be waited for")
            .success()
    }

    /// Body of the metrics endpoint.
    ///
    /// # Panics
    /// When the endpoint does not answer.
    pub fn scrape(&self) -> String {
        self.scrape_as("application/openmetrics-text")
    }

    /// The head and the metrics, in the form that `accept` asks for.
    ///
    /// # Panics
    /// As [`Service::scrape`].
    pub fn scrape_as(&self, accept: &str) -> String {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(&self.metrics).expect("metrics are served");
        let patience = Some(Duration::from_secs(30));
        let set = stream.set_read_timeout(patience);
        set.expect("a timeout can be set");
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: {}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n",
            self.metrics
        );
        let sent = stream.write_all(request.as_bytes());
        sent.expect("the request is sent");
        let mut reply = String::new();
        let read = stream.read_to_string(&mut reply);
        read.expect("the reply is text");
        let first = reply.lines().next().unwrap_or("");
        assert!(first.starts_with("HTTP/1.1 200"), "metrics: {first}");
        reply
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Already ended: both calls fail, and that is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
