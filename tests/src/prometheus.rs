//! A real Prometheus server on a port of its own, with its storage in a folder that vanishes with it.

use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lumpscope_lab::tie_to_parent;
use serde_json::Value;
use tempfile::TempDir;

use crate::needs::find_tool;

/// Longest that a server may take to start, on a machine that does much else.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Longest that an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// How often a server starts anew because another program has taken its port.
const ATTEMPTS: usize = 3;

/// Which server, by the name under which `./dev setup` installs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// That of the distribution: text, classic histograms.
    Two,
    /// 3.x: protobuf, native histograms beside classic ones.
    Three,
}

impl Version {
    /// The program.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Version::Two => "prometheus-2",
            Version::Three => "prometheus-3",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program())
    }
}

/// A running server. Dropping it kills the process it started, and no other; it ends with the thread that started it.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    folder: TempDir,
    url: String,
    agent: ureq::Agent,
    /// Which one it is.
    pub version: Version,
}

impl Prometheus {
    /// Starts a server that scrapes `target` (`ADDRESS:PORT`) every second as the job `lumpscope` and evaluates these
    /// rule files every second.
    ///
    /// # Panics
    /// When it does not start; the message has its log.
    #[must_use]
    pub fn start(version: Version, target: &str, rules: &[&Path]) -> Prometheus {
        let mut failed = String::new();
        for _ in 0..ATTEMPTS {
            let mut server = Prometheus::spawn(version, target, rules);
            match server.until_ready() {
                Ok(()) => return server,
                Err(why) => failed = why,
            }
        }
        panic!("{version} does not start: {failed}");
    }

    fn spawn(version: Version, target: &str, rules: &[&Path]) -> Prometheus {
        let folder = TempDir::new().expect("a folder can be made");
        let (file, text) = ("prometheus.yml", configuration(version, target, rules));
        fs::write(folder.path().join(file), text).expect("it can be written");
        let log = fs::File::create(folder.path().join("log")).expect("it can be written");
        let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let free = any.and_then(|listener| listener.local_addr());
        let port = free.expect("a port is free").port();
        let program = find_tool(version.program()).expect("it was found before");
        let mut command = Command::new(program);
        tie_to_parent(&mut command, None);
        let child = command
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--enable-feature=exemplar-storage")
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus starts");
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(ANSWER_WITHIN))
            .build()
            .new_agent();
        Prometheus {
            child,
            folder,
            url: format!("http://127.0.0.1:{port}"),
            agent,
            version,
        }
    }

    fn until_ready(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < READY_WITHIN {
            let ended = self.child.try_wait().expect("it can be asked");
            if ended.is_some() {
                break;
            }
            let ready = self.agent.get(format!("{}/-/ready", self.url)).call();
            if ready.is_ok_and(|reply| reply.status() == 200) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(self.log())
    }

    /// Log of the server.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// `data` of the answer to a GET of `/api/v1/PATH`.
    ///
    /// # Errors
    /// The server's reason for not answering.
    pub fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let url = format!("{}/api/v1/{path}", self.url);
        let asked = self.agent.get(url);
        let asked = asked.query_pairs(parameters.iter().copied()).call();
        let mut reply = asked.map_err(|error| error.to_string())?;
        let body = reply.body_mut().read_to_string();
        let body = body.map_err(|error| error.to_string())?;
        let mut answer: Value =
            serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        if answer["status"] == "success" {
            return Ok(answer["data"].take());
        }
        Err(answer["error"].as_str().unwrap_or(&body).to_owned())
    }

    /// The series of a range query over the last seconds: labels and values, without those that are no number.
    ///
    /// # Errors
    /// The server's reason for not answering.
    pub fn range(&self, expr: &str, seconds: u64, step: u64) -> Result<Vec<Series>, String> {
        let end = now();
        let start = end.saturating_sub(seconds);
        let (start, end, step) = (start.to_string(), end.to_string(), step.to_string());
        let times = [("start", &*start), ("end", &end), ("step", &step)];
        let data = self.ask("query_range", &[&[("query", expr)][..], &times].concat())?;
        let series = data["result"].as_array().ok_or("there is no result")?;
        Ok(series.iter().map(Series::read).collect())
    }

    /// The series of a query at this moment.
    ///
    /// # Errors
    /// The server's reason for not answering.
    pub fn instant(&self, expr: &str) -> Result<Vec<Series>, String> {
        let data = self.ask("query", &[("query", expr)])?;
        let series = data["result"].as_array().ok_or("there is no result")?;
        Ok(series.iter().map(Series::read).collect())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Already ended: both calls fail, and that is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One series of an answer.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its labels, as JSON.
    pub labels: Value,
    /// Its values that are numbers; a native histogram counts as its count.
    pub values: Vec<f64>,
}

impl Series {
    fn read(of: &Value) -> Series {
        let several = |key: &str| of[key].as_array().cloned().unwrap_or_default();
        let one = |key: &str| of.get(key).cloned();
        let points = several("values").into_iter().chain(one("value"));
        let points = points.map(|point| point[1].clone());
        let histograms = several("histograms").into_iter().chain(one("histogram"));
        let histograms = histograms.map(|point| point[1]["count"].clone());
        let values = points.chain(histograms).filter_map(|value| {
            let number: f64 = value.as_str()?.parse().ok()?;
            (!number.is_nan()).then_some(number)
        });
        Series {
            labels: of["metric"].clone(),
            values: values.collect(),
        }
    }
}

/// Seconds since 1970.
///
/// # Panics
/// When the clock stands before 1970.
#[must_use]
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("it is later than 1970").as_secs()
}

fn configuration(version: Version, target: &str, rules: &[&Path]) -> String {
    let rules: String = rules
        .iter()
        .map(|path| format!("  - {}\n", path.display()))
        .collect();
    let native = match version {
        Version::Two => "",
        Version::Three => {
            "    scrape_native_histograms: true\n    always_scrape_classic_histograms: true\n"
        }
    };
    format!(
        "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files:\n{rules}scrape_configs:\n  - job_name: \
         lumpscope\n{native}    static_configs:\n      - targets: [\"{target}\"]\n"
    )
}
