//! `lumpscope token`: makes a token and what the service needs to know of it.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use lumpscope_proto::hex;
use rustls::crypto::ring;
use sha2::{Digest as _, Sha256};

use super::output::print_as_is;

/// Random bytes of a token.
const BYTES: usize = 32;

/// Flags of `lumpscope token`.
#[derive(Args)]
pub(super) struct TokenArgs {
    /// Name of the token in the service's log
    #[arg(long, value_name = "NAME", default_value = "me")]
    name: String,
    /// Rights of the token; repeat or separate by commas
    #[arg(
        long = "scope",
        value_enum,
        value_delimiter = ',',
        default_value = "read"
    )]
    scopes: Vec<Scope>,
    /// A store it may use; repeat for more [default: all]
    #[arg(long = "store", value_name = "NAME")]
    stores: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scope {
    /// Read lumps and lists
    Read,
    /// Change lumps
    Write,
    /// Run the service
    Admin,
    /// Read numbers, reports and findings
    Observe,
}

pub(super) fn run(args: &TokenArgs) -> Result<ExitCode> {
    let token = random()?;
    print_as_is(&format!(
        "# The token, shown only now. Give it to the client, and store it nowhere else.\n\
         {token}\n\n\
         # Its entry for the service's token file (--tokens FILE):\n\
         {}",
        table(args, &token)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The entry of the file; it tells nothing of the token.
fn table(args: &TokenArgs, token: &str) -> String {
    let quote = |text: &str| toml::Value::from(text).to_string();
    let list = |words: Vec<&str>| {
        let quoted: Vec<String> = words.into_iter().map(quote).collect();
        format!("[{}]", quoted.join(", "))
    };
    let scopes = args.scopes.iter().filter_map(Scope::to_possible_value);
    let scopes: Vec<PossibleValue> = scopes.collect();
    let mut text = format!(
        "[[token]]\nname = {}\nsha256 = \"{}\"\nscopes = {}\n",
        quote(&args.name),
        hex(&Sha256::digest(token)),
        list(scopes.iter().map(PossibleValue::get_name).collect()),
    );
    let stores = if args.stores.is_empty() {
        vec!["*"]
    } else {
        args.stores.iter().map(String::as_str).collect()
    };
    text.push_str(&format!("stores = {}\n", list(stores)));
    text
}

/// 256 bits from the kernel. The prefix makes a token that got lost easy to find by those who
/// search for such things.
fn random() -> Result<String> {
    let mut bytes = [0; BYTES];
    let source = ring::default_provider().secure_random;
    source
        .fill(&mut bytes)
        .map_err(|_| anyhow!("cannot get random bytes from the kernel: other error"))?;
    Ok(format!("lumpscope_{}", hex(&bytes)))
}
