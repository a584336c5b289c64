//! What the service must still reach once it serves, from its settings.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use lumpscope_engine::guard::folder_of;

use super::ServeConfig;
use crate::privileges::Reach;

/// Facts of the machine, and what a backtrace is made from.
const READ: [&str; 5] = ["/proc", "/sys", "/usr", "/lib", "/lib64"];
/// Folders of the system: no store is added from there unless the settings say so.
const SYSTEM: [&str; 11] = [
    "/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/sbin", "/sys", "/usr",
];

impl ServeConfig {
    /// Files, ports and sockets that are needed after the start.
    #[must_use]
    pub fn reach(&self) -> Reach {
        let collector = self.otlp_endpoint.as_deref();
        let collector = collector.and_then(|url| url.parse::<http::Uri>().ok());
        let host = collector.as_ref().and_then(http::Uri::host);
        let is_name = |host: &str| host.trim_matches(['[', ']']).parse::<IpAddr>().is_err();
        Reach {
            read: READ
                .into_iter()
                .map(PathBuf::from)
                .chain(self.folders_read())
                .collect(),
            stores: self.places_of_stores(),
            written: self.flight_recorder.iter().cloned().collect(),
            removed: self
                .pin_maps
                .iter()
                .cloned()
                .chain(self.unix_socket.as_deref().map(folder_of))
                .collect(),
            ports: collector
                .iter()
                .map(|url| {
                    let usual = if url.scheme_str() == Some("https") {
                        443
                    } else {
                        80
                    };
                    url.port_u16().unwrap_or(usual)
                })
                .collect(),
            names: host.is_some_and(is_name),
            ..Reach::default()
        }
    }

    /// Folders, because a file that is replaced is another one; where the file is a link, those of
    /// the link and of its target.
    fn folders_read(&self) -> impl Iterator<Item = PathBuf> {
        self.reloaded()
            .flat_map(|path| {
                let target = path.canonicalize().ok();
                [Some(folder_of(path)), target.as_deref().map(folder_of)]
            })
            .flatten()
    }

    /// Stores can fail, be taken out and come back, and others can be added.
    fn places_of_stores(&self) -> Vec<PathBuf> {
        let own = self.stores.iter().map(|spec| &spec.path);
        if !self.add_store_from.is_empty() {
            return own.chain(&self.add_store_from).cloned().collect();
        }
        let beside = own
            .clone()
            .filter(|path| path.is_file())
            .map(|path| folder_of(path));
        let top = std::fs::read_dir("/").into_iter().flatten().flatten();
        let top = top.map(|entry| entry.path());
        own.cloned()
            .chain(beside)
            .chain(top.filter(|path| !SYSTEM.iter().any(|system| path == Path::new(system))))
            .collect()
    }
}
