//! Options shared by all client commands: address, identity, and the form of the answer.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use lumpscope_client::{Client, Options, Retry, Tls, Token};
use serde_json::Value;

use super::output::{print, print_json};

/// Where the service is, and how to talk to it.
#[derive(Args, Clone, Debug)]
pub(super) struct ClientArgs {
    /// Service: http://HOST:PORT, https://HOST:PORT or unix:PATH
    #[arg(
        long,
        value_name = "URL",
        env = "LUMPSCOPE_SERVER",
        default_value = "http://127.0.0.1:50051",
        help_heading = "Connection"
    )]
    server: String,
    /// CA certificates of the service, PEM; needed for https://
    #[arg(
        long,
        value_name = "FILE",
        env = "LUMPSCOPE_CA",
        help_heading = "Connection"
    )]
    ca: Option<PathBuf>,
    /// Client certificate, PEM, for a service that asks for one; needs --key
    #[arg(
        long,
        value_name = "FILE",
        env = "LUMPSCOPE_CERT",
        requires = "key",
        help_heading = "Connection"
    )]
    cert: Option<PathBuf>,
    /// Private key of the client certificate, PEM; needs --cert
    #[arg(
        long,
        value_name = "FILE",
        env = "LUMPSCOPE_KEY",
        requires = "cert",
        help_heading = "Connection"
    )]
    key: Option<PathBuf>,
    /// Name in the service's certificate, when it differs from the host of the URL
    #[arg(
        long,
        value_name = "NAME",
        env = "LUMPSCOPE_TLS_NAME",
        help_heading = "Connection"
    )]
    tls_name: Option<String>,
    /// File with the token that the service asks for
    #[arg(
        long,
        value_name = "FILE",
        env = "LUMPSCOPE_TOKEN_FILE",
        help_heading = "Connection"
    )]
    token_file: Option<PathBuf>,
    /// Send the token to another machine even without TLS
    #[arg(long, help_heading = "Connection")]
    token_in_clear: bool,
    /// Time limit of a request with all its repetitions; 0: no limit
    #[arg(
        long,
        value_name = "SECONDS",
        env = "LUMPSCOPE_TIMEOUT",
        default_value_t = 60,
        help_heading = "Connection"
    )]
    timeout: u64,
    /// Most repetitions of a request that finds the service too busy or whose connection breaks
    #[arg(
        long,
        value_name = "N",
        env = "LUMPSCOPE_RETRIES",
        default_value_t = 4,
        help_heading = "Connection"
    )]
    retries: usize,
    /// Print JSON, one object a line, instead of text
    #[arg(long)]
    pub(super) json: bool,
}

impl ClientArgs {
    /// Connects.
    pub(super) async fn connect(&self) -> Result<Client> {
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
        Ok(Client::connect(options).await?)
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

    /// Prints an answer in the form that was asked for.
    pub(super) fn say(
        &self,
        json: impl FnOnce() -> Value,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        match self.json {
            true => print_json(&json()),
            false => print(&text()),
        }
    }
}
