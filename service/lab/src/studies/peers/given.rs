//! An S3 server that somebody else runs: nothing of it is started, and nothing is left in it.

use std::env;

use super::Bench;
use crate::failure::peer_failed;
use crate::load::runner::{self, S3Bucket, Target, random_word};
use crate::stats::Latencies;
use crate::studies::host::runtime;

/// Variables with the access key and its secret, as every client of S3 reads them.
const KEYS: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];

impl Bench<'_> {
    /// Runs on a new bucket, which goes with the objects.
    pub(super) fn given(&self) -> anyhow::Result<Latencies> {
        let url = self.args.s3.as_deref().unwrap_or_default();
        let failed = |why: String| peer_failed(url, why);
        let [key, secret] =
            KEYS.map(|name| env::var(name).map_err(|_| failed(format!("set {name}"))));
        let word = random_word().map_err(|error| failed(error.to_string()))?;
        let name = format!("lumpscope-bench-{word}");
        let bucket = S3Bucket::new(url, &name, &key?, &secret?).map_err(failed)?;
        bucket.create().map_err(failed)?;
        let target = Target::S3(bucket.clone());
        let options = self.options();
        let runtime = runtime()?;
        let work = runner::run(&self.stream, &target, &options);
        let done = runtime.block_on(self.interrupt.or_stop(work));
        // Whatever came of it.
        let cleared = runtime.block_on(runner::delete_all(&self.stream, &target));
        let done = done?;
        cleared?;
        bucket.remove().map_err(failed)?;
        Ok(done.latencies)
    }
}
