//! `serve --check-config`: looks at everything the configuration names, without opening it for
//! service, because a running service may be using it.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use lumpscope_engine::guard::folder_of;
use lumpscope_engine::layout::detect_path;

use crate::config::{ServeArgs, ServeConfig};
use crate::door::{Door, Reloader};
use crate::error::ServerError;
use crate::{files, privileges, stores};

/// Machine number of ELF files with BPF programs, `EM_BPF`.
const ELF_MACHINE_BPF: u16 = 247;

/// As [`ServeArgs::resolve`], and looks at everything that is named. `wrong`: keys of flags and
/// variables that were left out of the arguments, and why.
///
/// # Errors
/// Everything that keeps it from being served, each in one line.
pub fn check(args: ServeArgs, wrong: Vec<(String, String)>) -> Result<ServeConfig, Vec<String>> {
    let one_line = |error: ServerError| error.to_string().replace('\n', " ");
    let (mut keys, mut found): (Vec<String>, Vec<String>) = wrong.into_iter().unzip();
    let (mut config, wrong) = match args.read() {
        Ok(read) => read,
        Err(error) => {
            found.push(one_line(error));
            return Err(found);
        }
    };
    for (key, error) in wrong {
        keys.push(key);
        found.push(one_line(error));
    }
    let mut checked = config.check();
    checked.retain(|problem| {
        !problem
            .keys()
            .iter()
            .any(|key| keys.iter().any(|k| k == key))
    });
    found.extend(checked.into_iter().map(one_line));
    found.extend(problems(&config));
    match found.is_empty() {
        true => Ok(config),
        false => Err(found),
    }
}

/// Everything that the configuration names and that cannot be used.
fn problems(config: &ServeConfig) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for spec in &config.stores {
        let there = spec
            .found()
            .and_then(|spec| detect_path(&spec.path).map_err(|error| error.to_string()));
        if let Err(why) = there {
            found.push(format!("store {:?}: {why}", spec.name));
        }
    }
    let others = [
        stores::check_distinct(&config.stores),
        crate::telemetry::logs::check(&config.log),
        config.user.as_deref().map_or(Ok(()), |user| {
            privileges::ids_of(user)
                .map(|_| ())
                .map_err(ServerError::from)
        }),
        config.probe_object.as_deref().map_or(Ok(()), probe_object),
        config.unix_socket.as_deref().map_or(Ok(()), socket_place),
        config
            .flight_recorder
            .as_deref()
            .map_or(Ok(()), flight_folder),
    ];
    let wrong = others.into_iter().filter_map(Result::err);
    let wrong = wrong.chain(Reloader::problems(config));
    found.extend(wrong.map(|error| error.to_string()));
    // One line each, whatever the system's words are.
    found.iter().map(|line| line.replace('\n', " ")).collect()
}

/// The configuration with TLS alone, with tokens alone, and with the keys of S3 alone.
pub fn kinds(config: &ServeConfig) -> [ServeConfig; 3] {
    let mut tls = config.clone();
    let (tokens_file, s3_file) = (tls.tokens.take(), tls.s3_credentials.take());
    let mut none = tls.clone();
    (none.tls_cert, none.tls_key) = (None, None);
    (none.tls_client_ca, none.tls_client_crl) = (None, None);
    let (mut tokens, mut s3) = (none.clone(), none);
    tokens.tokens = tokens_file;
    s3.s3_credentials = s3_file;
    [tls, tokens, s3]
}

/// Reads the files of the door as the service does: when the certificate ends, in seconds since
/// 1970; `None`: there is none.
///
/// # Errors
/// A file that cannot be read or used.
pub fn certificate_not_after(config: &ServeConfig) -> Result<Option<i64>, ServerError> {
    let door = Door::new(config)?;
    Ok(door.reloader.in_force().certificate_not_after)
}

/// It is a BPF object of a size that one has.
pub(crate) fn probe_object(path: &Path) -> Result<(), ServerError> {
    let bytes = files::read(path, None)?;
    let machine = match bytes.get(..20) {
        // Byte 5 says in which order the bytes of a number are.
        Some([0x7f, b'E', b'L', b'F', _, 1, .., low, high]) => u16::from_le_bytes([*low, *high]),
        Some([0x7f, b'E', b'L', b'F', _, _, .., high, low]) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    };
    if machine == ELF_MACHINE_BPF {
        return Ok(());
    }
    Err(ServerError::Argument(format!(
        "probe-object = {}: it is no compiled BPF object; ebpf/build-probes makes one",
        path.display()
    )))
}

/// It may be missing, as it is made at the start.
fn flight_folder(path: &Path) -> Result<(), ServerError> {
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_dir() => Err(ServerError::Argument(format!(
            "flight-recorder = {}: it is no folder",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// The socket itself need not be there.
fn socket_place(path: &Path) -> Result<(), ServerError> {
    let there = std::fs::symlink_metadata(path);
    if there.is_ok_and(|meta| !meta.file_type().is_socket()) {
        return Err(ServerError::Argument(format!(
            "unix-socket = {}: there is something else, which is no socket",
            path.display()
        )));
    }
    let folder = folder_of(path);
    match std::fs::metadata(&folder) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(ServerError::Argument(format!(
            "unix-socket = {}: {} is no folder",
            path.display(),
            folder.display()
        ))),
        Err(source) => Err(ServerError::File {
            what: "look at",
            path: folder,
            source,
        }),
    }
}
