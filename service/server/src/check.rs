//! `serve --check-config`: looks at everything the configuration names, without opening it for
//! service, because a running service may be using it.

use std::fs;
use std::io;
use std::io::ErrorKind::{NotADirectory, NotFound};
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

/// It may be missing: the start makes it, below the first folder on its path that is there.
fn flight_folder(path: &Path) -> Result<(), ServerError> {
    let missing = |at: &&Path| {
        let looked = fs::symlink_metadata(at).map_err(|error| error.kind());
        // Below a file is nothing; the file itself is found next.
        matches!(looked, Err(NotFound | NotADirectory))
    };
    // Without a slash at the end, which would lead through a link.
    let mut path_up = path.components().as_path().ancestors();
    let there = path_up.find(|at| !missing(at));
    there.map_or(Ok(()), |there| is_folder("flight-recorder", path, there))
}

/// The socket itself need not be there.
fn socket_place(path: &Path) -> Result<(), ServerError> {
    is_folder("unix-socket", path, &folder_of(path))?;
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => Ok(()),
        Ok(_) => Err(ServerError::Argument(format!(
            "unix-socket = {}: there is something else, which is no socket",
            path.display()
        ))),
        Err(error) if error.kind() == NotFound => Ok(()),
        Err(source) => Err(not_seen(path, source)),
    }
}

/// Refuses a setting whose path needs a folder where there is none.
fn is_folder(key: &str, path: &Path, folder: &Path) -> Result<(), ServerError> {
    match fs::metadata(folder) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(ServerError::Argument(format!(
            "{key} = {}: {} is no folder",
            path.display(),
            folder.display()
        ))),
        Err(source) => Err(not_seen(folder, source)),
    }
}

fn not_seen(path: &Path, source: io::Error) -> ServerError {
    ServerError::File {
        what: "look at",
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_that_the_start_cannot_make_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("there")).unwrap();
        fs::write(at("file"), "").unwrap();
        symlink(at("there"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        let long = "x".repeat(300);
        for good in [
            "there",
            "there/",
            "link",
            "link/new/newer",
            "new/",
            "new/../newer",
        ] {
            flight_folder(&at(good)).unwrap();
            fs::create_dir_all(at(good)).unwrap();
        }
        flight_folder(Path::new("new/newer")).unwrap();
        for (bad, named) in [
            ("file", "file"),
            ("file/", "file"),
            ("file/new", "file"),
            ("file/new/newer", "file"),
            ("dangling", "dangling"),
            ("dangling/", "dangling"),
            ("dangling/new", "dangling"),
            (long.as_str(), long.as_str()),
        ] {
            let told = flight_folder(&at(bad)).unwrap_err().to_string();
            assert!(
                told.contains(&*at(named).to_string_lossy()),
                "{bad}: {told}"
            );
            fs::create_dir_all(at(bad)).unwrap_err();
        }
    }

    #[test]
    fn a_place_where_no_socket_can_be_made_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        socket_place(&at("socket")).unwrap();
        let long = "x".repeat(300);
        for (bad, why) in [
            ("file", "no socket"),
            ("dangling", "no socket"),
            ("file/socket", "is no folder"),
            ("dangling/socket", "look at"),
            ("none/socket", "look at"),
            (long.as_str(), "look at"),
        ] {
            let told = socket_place(&at(bad)).unwrap_err().to_string();
            assert!(told.contains(why), "{bad}: {told}");
        }
    }
}
