//! Selecting a workload on the command line: name or file, scale, seed.

use std::path::PathBuf;

use anyhow::{anyhow, bail};

use super::{CommandStream, GenerateError, Workload, builtin};

/// Longest file that is read as a workload, in bytes.
const MOST_TEXT: u64 = 16 << 20;

/// A workload on a command line.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct WorkloadArgs {
    /// Workload: seq1, seq2, rand1, rand2, or a file in the workload language
    #[arg(value_name = "FILE|NAME")]
    pub workload: String,
    /// Scale all repetition counts of the workload by this factor, above 0
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    pub scale: f64,
    /// Seed of the random choices, instead of the workload's own
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl WorkloadArgs {
    /// This workload at this scale, with its own seed.
    #[must_use]
    pub fn new(workload: impl Into<String>, scale: f64) -> WorkloadArgs {
        WorkloadArgs {
            workload: workload.into(),
            scale,
            seed: None,
        }
    }

    /// The source with a path that does not depend on the working directory.
    ///
    /// # Errors
    /// This process has no working directory.
    pub fn absolute(&self) -> anyhow::Result<WorkloadArgs> {
        if builtin(&self.workload).is_some() {
            return Ok(self.clone());
        }
        let path = std::path::absolute(&self.workload);
        let path = path.map_err(|error| not_there(&self.workload, &error))?;
        Ok(WorkloadArgs {
            workload: path.to_string_lossy().into_owned(),
            ..self.clone()
        })
    }

    /// Reads and scales it.
    ///
    /// # Errors
    /// There is no such workload, or its text or the scale is wrong.
    pub fn load(&self) -> anyhow::Result<Workload> {
        if !(self.scale.is_finite() && self.scale > 0.0) {
            bail!("--scale must be above 0");
        }
        let text = match builtin(&self.workload) {
            Some(builtin) => builtin.text.to_owned(),
            None => read(&PathBuf::from(&self.workload))
                .map_err(|error| not_there(&self.workload, &error))?,
        };
        let workload = Workload::parse(&text)
            .map_err(|error| anyhow!("workload {}, {error}", self.workload))?;
        let mut workload = workload.scaled(self.scale);
        if let Some(seed) = self.seed {
            workload.seed = seed;
        }
        Ok(workload)
    }

    /// Its commands.
    ///
    /// # Errors
    /// As [`WorkloadArgs::load`], or it comes to no command or to too many.
    pub fn stream(&self) -> anyhow::Result<CommandStream> {
        self.stream_while(|_| Ok(()))
    }

    /// Its commands, with a look now and then whether to go on: `check` is told the highest sum of
    /// live bytes so far.
    ///
    /// # Errors
    /// As [`WorkloadArgs::stream`], and that of `check`.
    pub fn stream_while(
        &self,
        check: impl FnMut(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<CommandStream> {
        let generated = self.load()?.generate_while(check);
        generated.map_err(|error| match error.downcast::<GenerateError>() {
            Ok(error) => anyhow!("workload {}: {error}", self.workload),
            Err(other) => other,
        })
    }
}

fn not_there(name: &str, error: &std::io::Error) -> anyhow::Error {
    anyhow!(
        "there is no workload {name}: it is neither one of seq1, seq2, rand1, rand2 nor a file that \
         can be read ({error})"
    )
}

/// The file's text; a device or something endless is not read into memory.
fn read(path: &std::path::Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    let read = file.take(MOST_TEXT + 1).read_to_string(&mut text)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > MOST_TEXT {
        return Err(std::io::Error::other("it is longer than 16 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_files_scale_and_seed() {
        let args = WorkloadArgs {
            seed: Some(3),
            ..WorkloadArgs::new("rand1", 0.01)
        };
        assert_eq!(args.load().unwrap().seed, 3);
        assert_ne!(
            args.stream().unwrap(),
            WorkloadArgs::new("rand1", 0.01).stream().unwrap()
        );
        let error = |args: WorkloadArgs| args.stream().unwrap_err().to_string();
        assert!(error(WorkloadArgs::new("rand1", f64::NAN)).contains("above 0"));
        assert!(error(WorkloadArgs::new("no such", 1.0)).contains("neither one of seq1"));
        assert!(error(WorkloadArgs::new("/dev/zero", 1.0)).contains("16 MiB"));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("w").display().to_string();
        std::fs::write(&file, "Command {\n  Nwe(1);\n}").unwrap();
        assert!(error(WorkloadArgs::new(&file, 1.0)).contains("/w, line 2, column 3: "));
        std::fs::write(&file, "Command { Get; }").unwrap();
        assert!(error(WorkloadArgs::new(&file, 1.0)).contains("no command at all"));
        // Before a single command is made.
        let never = |_| -> anyhow::Result<()> { panic!("it began") };
        let huge = WorkloadArgs::new("seq1", 1000.0).stream_while(never);
        assert!(huge.unwrap_err().to_string().contains("use --scale"));
        let mut looks = 0;
        let stopped = WorkloadArgs::new("seq1", 300.0).stream_while(|peak| {
            looks += 1;
            anyhow::ensure!(peak < 1 << 40, "enough");
            Ok(())
        });
        assert_eq!(stopped.unwrap_err().to_string(), "enough");
        assert!(looks > 100, "{looks}");
    }
}
