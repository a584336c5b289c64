//! Command line of `lumpscope bench peers`.

use std::path::PathBuf;

use super::Who;
use crate::experiment::StudyArgs;
use crate::studies::seeds::DRIVE;

/// Run the same mix of puts and gets on whatever is installed, in alternating rounds on one disk.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Needs root: the disks are loop devices over files in --dir, one raw, one with ext4, one with xfs. \
                  What is not installed is left out, and it is said how to get it. With --device, only what \
                  needs no file system runs, on that device, which must be empty and is emptied afterwards."
)]
pub struct PeersArgs {
    /// Use this block device instead
    #[arg(long, value_name = "DEVICE", conflicts_with = "dir")]
    pub(super) device: Option<PathBuf>,
    /// Size of a store, half of which is filled with lumps before anything is timed. With --blocks, more
    /// if the objects need it
    #[arg(long, default_value = "512M", value_name = "SIZE", value_parser = lumpscope_units::size_within(64 << 20, 1 << 50))]
    pub(super) capacity: u64,
    /// Size of a lump, e.g. 64K or 1M, up to 16M; with --blocks several, each for itself
    /// [default: 1M; with --blocks 1M,4M]
    #[arg(long, default_value = "1M", default_value_if("blocks", "true", "1M,4M"), value_name = "SIZE", hide_default_value = true,
          value_delimiter = ',', value_parser = lumpscope_units::size_within(512, 16 << 20))]
    pub(super) size: Vec<u64>,
    /// Ratio of puts to gets, e.g. 1:1 or 30:70; a put replaces a lump chosen at random
    #[arg(long, default_value = "1:1", value_name = "PUT:GET", value_parser = mix)]
    pub(super) mix: Mix,
    /// Requests in flight
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) depth: usize,
    /// Timed part of one run, in seconds
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    pub(super) seconds: f64,
    /// Rounds; each gives one ratio of each peer
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(super) rounds: usize,
    /// Run only these peers; ratios are those of the first one to the others [default: all, of our engine]
    #[arg(long, value_name = "WHO", value_delimiter = ',', num_args = 1..)]
    pub(super) only: Vec<Who>,
    /// Measure the S3 server that serves at this URL, too, in a bucket of its own, with the keys in
    /// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
    #[arg(long, value_name = "URL", conflicts_with = "blocks")]
    pub(super) s3: Option<String>,
    /// Program that runs the original engine [default: lumpscope-cannyls-peer beside this program]
    #[arg(long, value_name = "PROGRAM")]
    pub(super) cannyls_peer: Option<PathBuf>,
    /// Show what each service makes the disk do for a put and for a get, in place of speed
    #[arg(long, conflicts_with_all = ["device", "mix", "depth", "seconds", "rounds"])]
    pub(super) blocks: bool,
    /// With --blocks: objects that are put first
    /// [default: half a store, at most 1000]
    #[arg(long, value_name = "N", requires = "blocks")]
    pub(super) fill: Option<u64>,
    /// With --blocks: drive to replay the block requests on; `lumpscope platter drives` lists them
    #[arg(long, default_value = DRIVE, value_name = "NAME")]
    pub(super) model: String,
    #[command(flatten)]
    pub(super) study: StudyArgs,
}

impl PeersArgs {
    /// Peers to run, in order.
    pub(super) fn wanted(&self) -> Vec<Who> {
        if self.only.is_empty() {
            return Who::ALL.to_vec();
        }
        let mut wanted = self.only.clone();
        if self.s3.is_some() && !wanted.contains(&Who::GivenS3) {
            wanted.push(Who::GivenS3);
        }
        wanted
    }
}

/// Shares of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// Of 100 requests, so many are puts; the rest are gets. 1 to 99.
    pub puts_percent: u8,
}

fn mix(text: &str) -> Result<Mix, String> {
    let wrong = || "a mix is PUT:GET, two numbers of 1 to 1000, such as 1:1".to_owned();
    let (puts, gets) = text.split_once(':').ok_or_else(wrong)?;
    let part = |text: &str| match text.parse::<u32>() {
        Ok(part) if (1..=1000).contains(&part) => Ok(part),
        _ => Err(wrong()),
    };
    let (puts, gets) = (part(puts)?, part(gets)?);
    let percent = (puts * 100 + (puts + gets) / 2) / (puts + gets);
    Ok(Mix {
        puts_percent: u8::try_from(percent.clamp(1, 99)).unwrap_or(50),
    })
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    #[test]
    fn a_server_that_is_named_runs_beside_the_chosen_peers() {
        let wanted = |words: &[&str]| {
            let command = PeersArgs::augment_args(clap::Command::new("peers"));
            let matches = command.no_binary_name(true).get_matches_from(words);
            PeersArgs::from_arg_matches(&matches).map(|args| args.wanted())
        };
        let url = "http://127.0.0.1:9000";
        let both = [Who::Service, Who::GivenS3];
        assert_eq!(wanted(&["--only", "service"]).expect("right"), both[..1]);
        let named = wanted(&["--only", "service", "--s3", url]);
        assert_eq!(named.expect("right"), both);
        assert_eq!(wanted(&["--s3", url]).expect("right"), Who::ALL);
    }

    #[test]
    fn mixes_are_read() {
        let percent = |text| mix(text).map(|mix| mix.puts_percent);
        assert_eq!(percent("1:1"), Ok(50));
        assert_eq!(percent("30:70"), Ok(30));
        assert_eq!(percent("1:1000"), Ok(1));
        for wrong in ["", "1", "0:1", "1:0", "a:b", "1001:1"] {
            assert!(mix(wrong).is_err(), "{wrong}");
        }
    }
}
