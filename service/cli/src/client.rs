//! The service that a command asks, and the form of its answer.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use lumpscope_client::{Client, Options, Retry, Tls, Token};
use serde_json::Value;

use super::output::{print, print_json};

// No documentation: clap would take it for that of the program.
#[derive(Args, Clone, Debug)]
#[command(mut_args(|arg| arg.global(true)))]
pub(super) struct ConnectionArgs {
    /// Service: http://HOST:PORT, https://HOST:PORT or unix:PATH
    #[arg(
        long,
        value_name = "URL",
        env = "LUMPSCOPE_SERVER",
        default_value = "http://127.0.0.1:50051"
    )]
    server: String,
    /// CA certificates of the service, PEM; needed for https://
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_CA")]
    ca: Option<PathBuf>,
    /// Client certificate, PEM, for a service that requires one; needs --key
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_CERT", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the client certificate, PEM; needs --cert
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_KEY", requires = "cert")]
    key: Option<PathBuf>,
    /// Name in the service's certificate, if it differs from the host of the URL
    #[arg(long, value_name = "NAME", env = "LUMPSCOPE_TLS_NAME")]
    tls_name: Option<String>,
    /// File with the token for the service
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Send the token to another machine even without TLS
    #[arg(long)]
    token_in_clear: bool,
    /// Total time limit of a request, including retries; 0: no limit
    #[arg(
        long,
        value_name = "SECONDS",
        env = "LUMPSCOPE_TIMEOUT",
        default_value_t = 60
    )]
    timeout: u64,
    /// Maximum number of retries when the service is busy or the connection breaks
    #[arg(long, value_name = "N", env = "LUMPSCOPE_RETRIES", default_value_t = 4)]
    retries: usize,
}

impl ConnectionArgs {
    /// Connects.
    pub(super) async fn connect(&self) -> Result<Client> {
        Ok(Client::connect(self.options()?).await?)
    }

    fn options(&self) -> Result<Options> {
        let mut options = Options::new(&self.server);
        options.tls = Tls {
            ca: self.ca.clone(),
            identity: self.cert.clone().zip(self.key.clone()),
            name: self.tls_name.clone(),
        };
        options.token = self
            .token_file
            .as_deref()
            .map(Token::from_file)
            .transpose()?;
        options.token_in_clear = self.token_in_clear;
        options.timeout = (self.timeout > 0).then(|| Duration::from_secs(self.timeout));
        options.retry = Retry {
            times: self.retries,
            ..Retry::default()
        };
        Ok(options)
    }

    /// Connects to another service: at this address, with its CA certificates and the file of its token.
    pub(super) async fn connect_other(
        &self,
        (server, ca, token_file): (&str, &Option<PathBuf>, &Option<PathBuf>),
    ) -> Result<Client> {
        let other = Self {
            server: server.to_owned(),
            ca: ca.clone().or_else(|| self.ca.clone()),
            token_file: token_file.clone(),
            ..self.clone()
        };
        other.connect().await
    }
}

/// The form of an answer.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct OutputFormat {
    /// Print JSON, one object per line, instead of text
    #[arg(long)]
    pub(super) json: bool,
}

impl OutputFormat {
    /// Prints an answer.
    pub(super) fn say(
        self,
        json: impl FnOnce() -> Value,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        match self.json {
            true => print_json(&json()),
            false => print(&text()),
        }
    }
}
