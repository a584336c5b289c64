//! The package of Debian, the wheel, the crates and the manifests, used as others would: outside the
//! repository. `./dev test clients` runs these tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{folder, store_file};
use crate::process::{PROGRAM, Process, program_at};
use lumpscope_needs::{Need, available, find_tool};
use rustix::process::Signal;

/// The repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_owned()
}

#[track_caller]
fn good(command: &mut Command) -> String {
    let output = command.output().unwrap();
    told(&output, command)
}

#[track_caller]
fn told(output: &Output, command: &Command) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{said}");
    text
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Folder of the tools beside the build, for `./dev`.
fn target() -> PathBuf {
    let program = Path::new(PROGRAM);
    program.ancestors().nth(2).unwrap().to_owned()
}

fn copied(from: &Path, to: &Path) {
    good(Command::new("cp").args(["-r", text(from), text(to)]));
}

/// A root with nothing in it but dpkg's own folders.
fn bare_root(dir: &Path) -> PathBuf {
    let bare = dir.join("root");
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"] {
        std::fs::create_dir_all(bare.join(folder)).unwrap();
    }
    for file in ["var/lib/dpkg/status", "var/lib/dpkg/available"] {
        std::fs::write(bare.join(file), "").unwrap();
    }
    bare
}

/// A store, settings that name it, the service; returns the store.
fn is_used_as_documented(program: &Path, settings: &Path, dir: &Path) -> PathBuf {
    let store = dir.join("lumps.lusf");
    let format = ["format", text(&store), "--capacity", "16M"];
    let mut command = Command::new(program);
    good(command.args(format).args(["--prealloc", "sparse"]));
    let example = std::fs::read_to_string(settings).unwrap();
    let mut lines = example.lines();
    let line = lines.find(|line| line.starts_with("store = ")).unwrap();
    let named = example.replace(line, &format!("store = [\"fast={}\"]", store.display()));
    std::fs::write(settings, named).unwrap();
    let config = ["--config", text(settings)];
    let mut check = program_at(program);
    good(check.arg("serve").args(config).arg("--check-config"));
    let mut service = Process::of(program, dir, &[], &config);
    let stores = good(Command::new(program).args(["stores", "--server", &service.grpc]));
    assert!(stores.contains("serving"), "{stores}");
    service.signal(Signal::TERM);
    assert!(service.ended(Duration::from_secs(60)).success());
    store
}

#[test]
fn the_package_of_debian_is_installed_used_and_removed() {
    let systemd = ["systemd-sysusers", "systemd-analyze"].map(Need::Tool);
    let debian = ["cargo-deb", "dpkg", "dpkg-shlibdeps"].map(Need::Tool);
    if !available(&[&[Need::Root], &debian[..], &systemd].concat()) {
        return;
    }
    let dir = folder();
    let made = good(
        Command::new(root().join("dev"))
            .args(["deb", "--fast"])
            .env("TESTED_BINARY", PROGRAM)
            .env("CARGO_TARGET_DIR", target()),
    );
    let package = PathBuf::from(made.lines().last().unwrap());
    let depends = good(Command::new("dpkg-deb").args(["--field", text(&package), "Depends"]));
    for library in ["libc6 (>= 2.", "libblkid1 (>= ", "libgcc-s1"] {
        assert!(depends.contains(library), "{depends}");
    }
    let bare = bare_root(dir.path());
    let dpkg = |arguments: &[&str]| {
        let forced = ["--force-script-chrootless", "--force-depends"];
        let mut dpkg = Command::new("dpkg");
        dpkg.args(["--root", text(&bare)]).args(forced);
        good(dpkg.args(arguments))
    };
    dpkg(&["--install", text(&package)]);
    let users = std::fs::read_to_string(bare.join("etc/passwd")).unwrap();
    assert!(users.contains("lumpscope:"), "{users}");
    let program = bare.join("usr/bin/lumpscope");
    let settings = bare.join("etc/lumpscope/lumpscope.toml");
    for page in [
        "lumpscope.1",
        "lumpscope-evacuate.1",
        "lumpscope-admin-drain.1",
    ] {
        let folder = bare.join("usr/share/man/man1");
        let (plain, packed) = (folder.join(page), folder.join(format!("{page}.gz")));
        assert!(plain.is_file() || packed.is_file(), "{page}");
    }
    for file in [
        "bash-completion/completions/lumpscope",
        "zsh/vendor-completions/_lumpscope",
        "fish/vendor_completions.d/lumpscope.fish",
    ] {
        assert!(bare.join("usr/share").join(file).is_file(), "{file}");
    }
    let unit = dir.path().join("lumpscope.service");
    let installed = std::fs::read_to_string(bare.join("usr/lib/systemd/system/lumpscope.service"));
    let installed = installed.unwrap();
    let tested = installed.replace("/usr/bin/lumpscope", text(&program));
    std::fs::write(&unit, tested).unwrap();
    let analyze = |arguments: &[&str]| {
        good(Command::new("systemd-analyze").args(arguments).arg(&unit));
    };
    analyze(&["verify", "--man=no"]);
    analyze(&["security", "--offline=true", "--no-pager", "--threshold=30"]);
    let store = is_used_as_documented(&program, &settings, dir.path());
    // What an operator has written stays until it is purged; stores always.
    dpkg(&["--remove", "lumpscope"]);
    assert!(!program.exists() && settings.exists());
    dpkg(&["--purge", "lumpscope"]);
    assert!(!settings.exists() && store.exists());
}

/// And nothing else.
fn its_types_find_what_is_wrong(inside: &Path, dir: &Path) {
    let typed = "import grpc\n\
        from lumpscope.v1 import lump_store_pb2 as lumps, lump_store_pb2_grpc as stubs\n\
        store = stubs.LumpStoreStub(grpc.insecure_channel('x'))\n\
        reply: lumps.UsageResponse = store.Usage(lumps.UsageRequest(store='disk'))\n\
        count: int = reply.lumps\n";
    let check = |name: &str, text: &str| {
        let file = dir.join(name);
        std::fs::write(&file, text).unwrap();
        Command::new(inside)
            .args(["-m", "mypy", "--strict", name])
            .current_dir(dir)
            .output()
            .unwrap()
    };
    let right = check("right.py", typed);
    assert!(right.status.success(), "{right:?}");
    let wrong = check("wrong.py", &typed.replace("count: int", "count: str"));
    let said = String::from_utf8_lossy(&wrong.stdout).into_owned();
    assert!(!wrong.status.success(), "{said}");
    assert!(said.contains("wrong.py:5"), "{said}");
}

#[test]
fn the_wheel_is_built_and_used_outside_the_repository() {
    if !available(&[Need::Tool("packages-python")]) {
        return;
    }
    let python = find_tool("packages-python").unwrap();
    let dir = folder();
    let sources = dir.path().join("sources");
    std::fs::create_dir(&sources).unwrap();
    for part in ["lumpscope", "python"] {
        copied(&root().join("proto").join(part), &sources);
    }
    let python_path = good(Command::new(&python).args(["-c", "import sys; print(sys.prefix)"]));
    let tools = Path::new(python_path.trim()).join("bin");
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    good(
        Command::new(&python)
            .args("-m pip wheel --quiet --disable-pip-version-check".split(' '))
            .args("--no-deps --no-build-isolation --wheel-dir .. .".split(' '))
            .env("PATH", path)
            .current_dir(sources.join("python")),
    );
    let version = env!("CARGO_PKG_VERSION");
    let wheel = sources.join(format!("lumpscope-{version}-py3-none-any.whl"));
    // A place of its own, with the wheel and the packages that it asks for.
    let venv = dir.path().join("venv");
    good(Command::new(&python).args(["-m", "venv", text(&venv)]));
    let inside = venv.join("bin/python");
    good(
        Command::new(&inside)
            .args("-m pip install --quiet --disable-pip-version-check".split(' '))
            .args(["--no-deps", "--no-index", text(&wheel)]),
    );
    let site = "import site; print(site.getsitepackages()[0])";
    let [own, asked_for] = [&inside, &python].map(|python| {
        let path = good(Command::new(python).args(["-c", site]));
        path.trim().to_owned()
    });
    std::fs::write(Path::new(&own).join("asked-for.pth"), asked_for).unwrap();
    let store = store_file(dir.path(), "wheel", 64 << 20, 4096, 0.1);
    let service = Process::start(dir.path(), &[("disk", &store)], &[]);
    let example = root().join("proto/examples/python/lumpscope_example.py");
    let address = service.grpc.strip_prefix("http://").unwrap();
    let told = good(
        Command::new(&inside)
            .arg(example)
            .args(["--server", address, "--store", "disk"])
            .current_dir(dir.path()),
    );
    assert!(told.contains("all done"), "{told}");
    its_types_find_what_is_wrong(&inside, dir.path());
}

/// How many objects of a file fit the schemas that Kubernetes publishes or, of the Prometheus operator's, its own;
/// `None`: one does not.
fn fitting(file: &Path) -> Option<usize> {
    let python = find_tool("packages-python").unwrap();
    let tools = python.ancestors().nth(2).unwrap();
    let mut kubernetes = Command::new(find_tool("kubernetes-validate").unwrap());
    let mut operator = Command::new(&python);
    operator.arg(root().join("tests/packages/podmonitor.py"));
    operator.arg(tools.join("podmonitor.yaml"));
    let mut passed = 0;
    for check in [kubernetes.arg("--strict"), &mut operator] {
        let output = check.arg(file).output().unwrap();
        if !output.status.success() {
            return None;
        }
        let said = [output.stdout, output.stderr].concat();
        passed += String::from_utf8_lossy(&said).matches(" passed ").count();
    }
    Some(passed)
}

fn kustomized(folder: &Path) -> String {
    let tool = find_tool("kustomize").unwrap();
    good(Command::new(tool).arg("build").arg(folder))
}

#[test]
fn the_manifests_of_kubernetes_fit_the_published_schemas() {
    let tools = ["kubernetes-validate", "packages-python", "kustomize"];
    if !available(&tools.map(Need::Tool)) {
        return;
    }
    let folder = root().join("docs/kubernetes");
    let disk = std::fs::read_to_string(folder.join("disk.yaml")).unwrap();
    let dir = self::folder();
    let file = dir.path().join("objects.yaml");
    let made = |name: &str| kustomized(&folder.join(name));
    for (name, text, field) in [
        ("disk.yaml", disk, "accessModes:"),
        ("base", made("base"), "accessModes:"),
        ("with-probes", made("with-probes"), "hostPath:"),
        ("monitoring", made("monitoring"), "podMetricsEndpoints:"),
    ] {
        std::fs::write(&file, &text).unwrap();
        let objects = text.split("\n---\n").count();
        assert_eq!(fitting(&file), Some(objects), "{name}");
        // It finds what is no field.
        assert!(text.contains(field), "{name}: {field}");
        std::fs::write(&file, text.replacen(field, &format!("x{field}"), 1)).unwrap();
        assert_eq!(fitting(&file), None, "{name}");
    }
    with_probes_has_what_compose_gives(&folder);
    monitoring_has_the_files_themselves(&folder);
    // The settings are such that the service takes them.
    let text = std::fs::read_to_string(folder.join("base/lumpscope.yaml")).unwrap();
    let (_, settings) = text.split_once("lumpscope.toml: |\n").unwrap();
    let (settings, _) = settings.split_once("---").unwrap();
    let settings: toml::Table = toml::from_str(settings).unwrap();
    let known = include_str!("../../../server/CONFIG.md");
    for key in settings.keys() {
        assert!(known.contains(&format!("| `{key}` |")), "{key}");
    }
}

/// A program of somebody else.
const PROGRAM_OUTSIDE: &str = r#"
use lumpscope_client::{Body, Client, Error, LumpId, Options, PutOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let server = std::env::args().nth(1).expect("the address of a service");
    let client = Client::connect(Options::new(server)).await?;
    let id = LumpId(0xff);
    let body = Body::from("from outside");
    client.put("disk", id, body, &PutOptions::default()).await?;
    let lump = client.get("disk", id, None).await?;
    println!("got {}", String::from_utf8_lossy(&lump.bytes));
    Ok(())
}
"#;

/// Unpacks the crates of `packed` and builds a program with them; offline, with the versions of
/// everything else that the repository was built with.
fn build_outside(packed: &Path, dir: &Path) -> PathBuf {
    let version = env!("CARGO_PKG_VERSION");
    for name in ["lumpscope-proto", "lumpscope-client"] {
        let file = packed.join(format!("{name}-{version}.crate"));
        good(Command::new("tar").args(["-xzf", text(&file), "-C", text(dir)]));
    }
    let outside = dir.join("outside");
    std::fs::create_dir_all(outside.join("src")).unwrap();
    std::fs::write(outside.join("src/main.rs"), PROGRAM_OUTSIDE).unwrap();
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [workspace]\n\
         [dependencies]\n\
         lumpscope-client = {{ path = \"../lumpscope-client-{version}\" }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt\"] }}\n\
         [patch.crates-io]\n\
         lumpscope-proto = {{ path = \"../lumpscope-proto-{version}\" }}\n"
    );
    std::fs::write(outside.join("Cargo.toml"), manifest).unwrap();
    std::fs::copy(root().join("Cargo.lock"), outside.join("Cargo.lock")).unwrap();
    // Kept, so that only the first run compiles what the crates depend on.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    good(
        Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--offline", "--target-dir"])
            .arg(&target)
            .current_dir(&outside),
    );
    target.join("debug/outside")
}

#[test]
fn the_crates_of_the_client_are_packaged_and_used_outside_the_repository() {
    let dir = folder();
    let output = Command::new(env!("CARGO"))
        .args(["package", "--offline", "--no-verify", "--allow-dirty"])
        .args("--package lumpscope-proto --package lumpscope-client".split(' '))
        .arg("--target-dir")
        .arg(dir.path())
        .current_dir(root())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("warning"), "{said}");
    for (name, file) in [
        ("lumpscope-proto", "lumpscope/v1/lump_store.proto"),
        ("lumpscope-client", "README.md"),
    ] {
        let version = env!("CARGO_PKG_VERSION");
        let packed = dir.path().join(format!("package/{name}-{version}.crate"));
        let listed = good(Command::new("tar").arg("-tzf").arg(&packed));
        let wanted = format!("{name}-{version}/{file}");
        assert!(listed.lines().any(|line| line == wanted), "{listed}");
    }
    let outside = build_outside(&dir.path().join("package"), dir.path());
    let store = store_file(dir.path(), "crates", 64 << 20, 4096, 0.1);
    let service = Process::start(dir.path(), &[("disk", &store)], &[]);
    let told = good(Command::new(outside).arg(&service.grpc));
    assert_eq!(told, "got from outside\n");
}

/// Probes need the same capabilities wherever the service runs, and a namespace that allows them.
fn with_probes_has_what_compose_gives(folder: &Path) {
    let compose = std::fs::read_to_string(root().join("docker-compose.yml")).unwrap();
    let (_, disk) = compose.split_once("\n  lumpscope:\n").unwrap();
    let (_, added) = disk.split_once("    cap_add:\n").unwrap();
    let (added, _) = added.split_once("    security_opt:").unwrap();
    let lines = added.lines().map(str::trim);
    let names = lines.filter_map(|line| line.strip_prefix("- "));
    let names = names.map(|name| name.rsplit(":-").next().unwrap());
    let mut names: Vec<&str> = names.map(|name| name.trim_end_matches('}')).collect();
    names.sort_unstable();
    let made = kustomized(&folder.join("with-probes"));
    let (_, given) = made.split_once("            add:\n").unwrap();
    let (given, _) = given.split_once("            drop:").unwrap();
    let given = given.lines();
    let mut given: Vec<&str> = given.map(|it| it.trim_start_matches([' ', '-'])).collect();
    given.sort_unstable();
    assert_eq!(given, names);
    let level = "pod-security.kubernetes.io/enforce:";
    assert!(made.contains(&format!("{level} privileged")), "{made}");
    let base = kustomized(&folder.join("base"));
    assert!(base.contains(&format!("{level} restricted")) && !base.contains("Unconfined"));
}

/// No copies: each dashboard and each file of rules is in a ConfigMap.
fn monitoring_has_the_files_themselves(folder: &Path) {
    let made = kustomized(&folder.join("monitoring"));
    let dashboards = root().join("dashboards");
    let boards = std::fs::read_dir(dashboards.join("grafana/dashboards")).unwrap();
    let mut count = 0;
    for board in boards {
        let name = board.unwrap().file_name().into_string().unwrap();
        let labelled = format!("  {name}: |");
        assert!(made.contains(&labelled), "{name} is in no ConfigMap");
        count += 1;
    }
    assert!(count >= 5);
    assert_eq!(made.matches("grafana_dashboard: \"1\"").count(), count);
    for rules in ["rules.yml", "alerts.yml"] {
        assert!(made.contains(&format!("  {rules}: |")), "{rules}");
    }
}
