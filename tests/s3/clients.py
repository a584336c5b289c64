"""Tries the clients of others with their defaults against a service that runs.

usage: clients.py URL ACCESS SECRET [NAME...]

Each client has a bucket of its own, moves real data there and back, an upload in parts among it, and compares all of
it. Prints a line of a table for each: name, version, result. Ends with 0 if no client failed; one that is not
installed is told and left out, unless it is named.
"""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

URL, ACCESS, SECRET = sys.argv[1:4]
HOST = URL.split("//")[1]
REGION = "us-east-1"
HERE = pathlib.Path(__file__).parent
MIB = 1 << 20
# Longest time of one command, in seconds.
PATIENCE = 600
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
# A bundle of certificates is nothing to a client without TLS, and some refuse to have one.
os.environ.pop("AWS_CA_BUNDLE", None)
CLIENTS = {}


class Missing(Exception):
    """The client is not installed."""


def client(name):
    def add(tries):
        CLIENTS[name] = tries
        return tries
    return add


def program(name):
    path = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if not path:
        raise Missing(name)
    return path


def run(*command, env=None, **more):
    """What a command prints; it must succeed."""
    done = subprocess.run([str(word) for word in command], env={**os.environ, **KEYS, **(env or {})}, timeout=PATIENCE,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))[:120]}: {done.stdout.strip()[-400:]}")
    return done.stdout


def version(text):
    return re.search(r"\d+(\.[\dA-Z:TZ-]+)+", text).group(0)


def package(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise Missing(name) from None


def data(size, seed=1):
    """Bytes that repeat nowhere."""
    block = hashlib.shake_256(str(seed).encode()).digest(MIB)
    return b"".join((block[n:] + block[:n] for n in range(size // MIB + 1)))[:size]


def tree(folder):
    """A folder with files that are odd, and one that is large."""
    there = folder / "there"
    (there / "deep" / "er").mkdir(parents=True)
    for name, size in (("plain.txt", 10), ("t\u00e4 st+%41.txt", 1000), ("deep/er/large", 20 * MIB)):
        (there / name).write_bytes(data(size))
    return there


def same(one, other):
    run("diff", "-r", one, other)


def aws(folder, *program):
    s3 = [*program, "--endpoint-url", URL, "s3"]
    there, back, bucket = tree(folder), folder / "back", "s3://" + folder.name
    for command in (["mb", bucket], ["sync", there, bucket + "/a"], ["mv", bucket + "/a/plain.txt", bucket + "/a/moved"],
                    ["mv", bucket + "/a/moved", bucket + "/a/plain.txt"]):
        run(*s3, *command)
    assert "a/deep/er/large" in run(*s3, "ls", "--recursive", bucket)
    run(*s3, "sync", bucket + "/a", back)
    same(there, back)
    run(*s3, "rb", "--force", bucket)


@client("aws cli 1")
def aws_1(folder):
    found = package("awscli")
    aws(folder, sys.executable, "-m", "awscli")
    return found


@client("aws cli 2")
def aws_2(folder):
    # The first `aws` of a path is often that of Python.
    found = (shutil.which("aws", path=place) for place in os.environ["PATH"].split(":"))
    for aws_cli in filter(None, found):
        told = version(run(aws_cli, "--version"))
        if told.startswith("2."):
            aws(folder, aws_cli)
            return told
    raise Missing("aws 2")


@client("mc")
def mc(folder):
    call = [program("mc"), "--config-dir", folder / "mc", "--quiet"]
    bucket = "l/" + folder.name
    prepare = [[*call, "alias", "set", "l", URL, ACCESS, SECRET], [*call, "mb", bucket]]
    there, back = tree(folder), folder / "back"
    for command in prepare + [[*call, "mirror", there, bucket]]:
        run(*command)
    assert "deep/er/large" in run(*call, "ls", "--recursive", bucket)
    run(*call, "mirror", bucket, back)
    same(there, back)
    run(*call, "tag", "set", bucket + "/plain.txt", "a=1")
    assert "a" in run(*call, "tag", "list", bucket + "/plain.txt")
    run(*call, "rb", "--force", bucket)
    return re.search(r"version (\S+)", run(*call, "--version")).group(1)


@client("s3cmd")
def s3cmd(folder):
    call = [program("s3cmd"), "--config=/dev/null", "--access_key=" + ACCESS, "--secret_key=" + SECRET, "--host=" + HOST,
            "--host-bucket=" + HOST, "--no-ssl"]
    bucket = "s3://" + folder.name
    there, back = tree(folder), folder / "back"
    back.mkdir()
    run(*call, "mb", bucket)
    run(*call, "sync", f"{there}/", bucket)
    assert "deep/er/large" in run(*call, "ls", "--recursive", bucket)
    run(*call, "sync", bucket, f"{back}/")
    same(there, back)
    run(*call, "rb", "--recursive", "--force", bucket)
    return version(run(*call, "--version"))


@client("rclone")
def rclone(folder):
    call = [program("rclone"), "--config", "/dev/null"]
    settings = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": URL, "ACCESS_KEY_ID": ACCESS, "SECRET_ACCESS_KEY": SECRET}
    env = {"RCLONE_CONFIG_L_" + name: value for name, value in settings.items()}
    there, back, place = tree(folder), folder / "back", f"l:{folder.name}"
    for command in (["mkdir", place], ["copy", there, place], ["check", "--download", there, place], ["copy", place, back],
                    ["purge", place]):
        run(*call, *command, env=env)
    same(there, back)
    return version(run(*call, "version"))


@client("restic")
def restic(folder):
    call = program("restic")
    env = {"RESTIC_REPOSITORY": f"s3:{URL}/{folder.name}", "RESTIC_PASSWORD": "x", "RESTIC_CACHE_DIR": str(folder / "cache")}
    there, back = tree(folder), folder / "back"
    for command in (["init"], ["backup", "."], ["check", "--read-data"], ["restore", "latest", "--target", back],
                    ["forget", "--keep-last", "1", "--prune"]):
        run(call, *command, env=env, cwd=there)
    same(there, back)
    return version(run(call, "version"))


def mounted(mount, tries):
    """Tries what is mounted, and ends it."""
    try:
        tries()
    finally:
        subprocess.run(["umount", mount], check=False)


@client("s3fs-fuse")
def s3fs_fuse(folder):
    call, bucket = program("s3fs"), boto(folder)
    passwords = folder / "passwords"
    passwords.touch(mode=0o600)
    passwords.write_text(f"{ACCESS}:{SECRET}")
    there, mount = tree(folder), folder / "mount"
    mount.mkdir()
    run(call, bucket, mount, "-o", f"passwd_file={passwords},url={URL},use_path_request_style")

    def tries():
        run("cp", "-r", there, mount / "a")
        os.rename(mount / "a", mount / "b")
        same(there, mount / "b")
        with open(mount / "b" / "plain.txt", "ab") as file:
            file.write(b"more")
        assert (mount / "b" / "plain.txt").read_bytes() == data(10) + b"more"
        shutil.rmtree(mount / "b")
    mounted(mount, tries)
    return version(run(call, "--version"))


@client("s3backer")
def s3backer(folder):
    call, bucket = program("s3backer"), boto(folder)
    mount = folder / "mount"
    mount.mkdir()
    run(call, "--blockSize=256k", "--size=32m", f"--accessId={ACCESS}", f"--accessKey={SECRET}", "--authVersion=aws4",
        f"--baseURL={URL}/", bucket, mount)

    def tries():
        file = mount / "file"
        run(program("mkfs.ext4"), "-q", "-F", file)
        run(program("debugfs"), "-w", "-R", f"write {tree(folder) / 'deep/er/large'} large", file)
        run(program("e2fsck"), "-f", "-n", file)
        run(program("debugfs"), "-R", f"dump large {folder / 'back'}", file)
        assert (folder / "back").read_bytes() == data(20 * MIB)
    mounted(mount, tries)
    return version(run(call, "--version"))


def send(method, url, body=None, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return urllib.request.urlopen(urllib.request.Request(url, data=body, method=method, headers=headers), timeout=60)


@client("docker registry")
def docker_registry(folder):
    call, bucket = program("docker-registry"), boto(folder)
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{some.getsockname()[1]}"
    storage = {"region": REGION, "regionendpoint": URL, "forcepathstyle": True, "bucket": bucket, "accesskey": ACCESS,
               "secretkey": SECRET, "secure": False}
    config = folder / "config.yml"
    config.write_text(json.dumps({"version": 0.1, "storage": {"s3": storage}, "http": {"addr": at}}))
    with (folder / "log").open("w") as log:
        registry = subprocess.Popen([call, "serve", config], stdout=log, stderr=log)
    try:
        place, layer = f"http://{at}/v2/some", data(30 * MIB)
        until = time.monotonic() + 60
        while True:
            try:
                begun = send("POST", place + "/blobs/uploads/", b"")
                break
            except urllib.error.URLError:
                assert time.monotonic() < until and registry.poll() is None, (folder / "log").read_text()[-400:]
                time.sleep(0.2)
        sent = send("PATCH", begun.headers["Location"], layer, Content_Type="application/octet-stream")
        digest = "sha256:" + hashlib.sha256(layer).hexdigest()
        end = sent.headers["Location"]
        send("PUT", f"{end}{'&' if '?' in end else '?'}digest={digest}", b"")
        assert send("GET", f"{place}/blobs/{digest}").read() == layer
        kind = "application/vnd.docker.distribution.manifest.v2+json"
        one = {"mediaType": "application/octet-stream", "size": len(layer), "digest": digest}
        manifest = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": one, "layers": [one]}).encode()
        send("PUT", place + "/manifests/1", manifest, Content_Type=kind)
        assert send("GET", place + "/manifests/1", Accept=kind).read() == manifest
    finally:
        registry.terminate()
        registry.wait()
    return version(run(call, "--version"))


def boto(folder):
    """A bucket, made by boto3."""
    import boto3
    s3 = boto3.client("s3", endpoint_url=URL, region_name=REGION, aws_access_key_id=ACCESS, aws_secret_access_key=SECRET)
    s3.create_bucket(Bucket=folder.name)
    return folder.name


@client("boto3")
def boto3_transfers(folder):
    import boto3
    s3 = boto3.client("s3", endpoint_url=URL, region_name=REGION, aws_access_key_id=ACCESS, aws_secret_access_key=SECRET)
    bucket, there = boto(folder), tree(folder) / "deep/er/large"
    s3.upload_file(str(there), bucket, "large")
    s3.copy({"Bucket": bucket, "Key": "large"}, bucket, "copy")
    s3.download_file(bucket, "copy", str(folder / "back"))
    same(there, folder / "back")
    # What is asked of it is a checksum of all bytes, which botocore compares when it reads all of them.
    s3.upload_file(str(there), bucket, "whole", ExtraArgs={"ChecksumType": "FULL_OBJECT", "ChecksumAlgorithm": "CRC32"})
    answer = s3.get_object(Bucket=bucket, Key="whole")
    assert answer["Body"].read() == data(20 * MIB) and answer["ResponseMetadata"].get("ChecksumAlgorithm", "").lower() in \
        ("crc32", ""), answer
    assert answer["ChecksumType"] == "FULL_OBJECT" and "-" not in answer["ChecksumCRC32"], answer
    everything = boto3.resource("s3", endpoint_url=URL, region_name=REGION, aws_access_key_id=ACCESS,
                                aws_secret_access_key=SECRET).Bucket(bucket)
    everything.objects.all().delete()
    everything.delete()
    return package("boto3")


@client("minio-py")
def minio_py(folder):
    package("minio")
    import io
    import minio
    s3 = minio.Minio(HOST, access_key=ACCESS, secret_key=SECRET, secure=False)
    bucket, large = folder.name, data(20 * MIB)
    s3.make_bucket(bucket)
    s3.put_object(bucket, "large", io.BytesIO(large), -1, part_size=5 * MIB)
    s3.put_object(bucket, "t\u00e4 st", io.BytesIO(b"x"), 1, metadata={"who": "me"})
    s3.compose_object(bucket, "both", [minio.commonconfig.ComposeSource(bucket, "large"),
                                       minio.commonconfig.ComposeSource(bucket, "t\u00e4 st")])
    assert s3.get_object(bucket, "both").read() == large + b"x"
    assert urllib.request.urlopen(s3.presigned_get_object(bucket, "large")).read() == large
    names = [one.object_name for one in s3.list_objects(bucket, recursive=True)]
    assert names == ["both", "large", "t\u00e4 st"], names
    assert not list(s3.remove_objects(bucket, [minio.deleteobjects.DeleteObject(name) for name in names]))
    s3.remove_bucket(bucket)
    return package("minio")


@client("s3fs (fsspec)")
def fsspec(folder):
    found = package("s3fs")
    import s3fs
    s3 = s3fs.S3FileSystem(key=ACCESS, secret=SECRET, endpoint_url=URL)
    bucket, large = folder.name, data(20 * MIB)
    s3.mkdir(bucket)
    with s3.open(f"{bucket}/a/large", "wb", block_size=5 * MIB) as file:
        file.write(large)
    s3.copy(f"{bucket}/a/large", f"{bucket}/b")
    assert s3.cat(f"{bucket}/b") == large and s3.cat_file(f"{bucket}/b", start=5, end=9) == large[5:9]
    assert sorted(s3.find(bucket)) == [f"{bucket}/a/large", f"{bucket}/b"]
    s3.rm(bucket, recursive=True)
    return found


@client("smart_open")
def smart(folder):
    found = package("smart_open")
    import boto3
    from smart_open import open as opened
    s3 = boto3.client("s3", endpoint_url=URL, region_name=REGION, aws_access_key_id=ACCESS, aws_secret_access_key=SECRET)
    place, large = f"s3://{boto(folder)}/large", data(60 * MIB)
    with opened(place, "wb", transport_params={"client": s3}) as file:
        file.write(large)
    with opened(place, "rb", transport_params={"client": s3}) as file:
        assert file.read() == large
    return found


def table_of(rows):
    import pyarrow
    return pyarrow.table({"n": list(range(rows)), "text": [str(n) for n in range(rows)]})


@client("pyarrow")
def arrow(folder):
    found = package("pyarrow")
    import pyarrow.fs
    import pyarrow.parquet
    s3 = pyarrow.fs.S3FileSystem(access_key=ACCESS, secret_key=SECRET, endpoint_override=HOST, scheme="http", region=REGION,
                                 allow_bucket_creation=True, allow_bucket_deletion=True)
    bucket, table = folder.name, table_of(1_000_000)
    s3.create_dir(bucket)
    pyarrow.parquet.write_table(table, f"{bucket}/a/t.parquet", filesystem=s3)
    s3.move(f"{bucket}/a/t.parquet", f"{bucket}/b.parquet")
    assert pyarrow.parquet.read_table(f"{bucket}/b.parquet", filesystem=s3).equals(table)
    s3.delete_dir(bucket)
    return found


@client("polars")
def polars_frames(folder):
    found = package("polars")
    import polars
    options = {"endpoint_url": URL, "aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET, "aws_region": REGION,
               "aws_allow_http": "true"}
    frame, place = polars.DataFrame({"n": range(1_000_000)}), f"s3://{boto(folder)}/t.parquet"
    frame.write_parquet(place, storage_options=options)
    assert polars.read_parquet(place, storage_options=options).equals(frame)
    few = polars.scan_parquet(place, storage_options=options).filter(polars.col("n") < 10).collect()
    assert few.height == 10
    return found


@client("deltalake")
def delta(folder):
    found = package("deltalake")
    import deltalake
    options = {"AWS_ENDPOINT_URL": URL, "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION,
               "AWS_ALLOW_HTTP": "true", "conditional_put": "etag"}
    place = f"s3://{boto(folder)}/table"
    for _ in range(3):
        deltalake.write_deltalake(place, table_of(1000), mode="append", storage_options=options)
    table = deltalake.DeltaTable(place, storage_options=options)
    assert table.to_pyarrow_table().num_rows == 3000
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert deltalake.DeltaTable(place, storage_options=options).to_pyarrow_table().num_rows == 3000
    return found


@client("duckdb")
def duck(folder):
    found = package("duckdb")
    package("duckdb_extension_httpfs")
    import duckdb
    files = importlib.metadata.files("duckdb_extension_httpfs")
    extension = next(file.locate() for file in files if file.name == "httpfs.duckdb_extension")
    place = f"s3://{boto(folder)}/t.parquet"
    db = duckdb.connect(config={"allow_unsigned_extensions": True})
    db.execute(f"LOAD '{extension}'")
    db.execute(f"CREATE SECRET (TYPE s3, KEY_ID '{ACCESS}', SECRET '{SECRET}', ENDPOINT '{HOST}', URL_STYLE 'path', "
               f"USE_SSL false, REGION '{REGION}')")
    db.execute(f"COPY (SELECT range AS n, md5(range::VARCHAR) AS text FROM range(1000000)) TO '{place}'")
    assert db.execute(f"SELECT count(*), sum(n) FROM '{place}'").fetchone() == (1_000_000, 499_999_500_000)
    assert db.execute(f"SELECT text FROM '{place}' WHERE n = 7").fetchone()[0] == hashlib.md5(b"7").hexdigest()
    return found


def script(folder, name):
    """The clients of JavaScript: packages beside the tools, in S3_NODE."""
    modules = pathlib.Path(os.environ.get("S3_NODE", "/nowhere")) / "node_modules"
    if not (modules / name / "package.json").exists():
        raise Missing(name)
    copied = modules.parent / "clients.mjs"
    shutil.copy(HERE / "clients.mjs", copied)
    run(program("node"), copied, name, URL, ACCESS, SECRET, folder.name)
    return json.loads((modules / name / "package.json").read_text())["version"]


@client("AWS SDK for JavaScript 3")
def javascript(folder):
    return script(folder, "@aws-sdk/client-s3")


@client("minio-js")
def minio_js(folder):
    return script(folder, "minio")


def go(folder, name):
    call = program("s3-go-clients")
    run(call, name, URL, ACCESS, SECRET, folder.name)
    return run(call, "version", name).strip()


@client("AWS SDK for Go 2, manager")
def go_manager(folder):
    return go(folder, "manager")


@client("AWS SDK for Go 2, transfermanager")
def go_transfermanager(folder):
    return go(folder, "transfermanager")


def main():
    named, failed = sys.argv[4:], False
    print("| client | version | result |\n|---|---|---|")
    for name, tries in CLIENTS.items():
        if named and name not in named:
            continue
        with tempfile.TemporaryDirectory(prefix="client-") as folder:
            # The name of a bucket, too.
            inside = pathlib.Path(folder) / re.sub("[^a-z0-9]+", "-", f"c-{name}".lower()).strip("-")
            inside.mkdir()
            try:
                row = (tries(inside), "as expected")
            except Missing as missing:
                row, failed = ("", f"not here: {missing}"), failed or bool(named)
            except Exception as error:
                row, failed = ("", f"**failed**: {type(error).__name__}: {error}".replace("\n", " ")), True
        print(f"| {name} | {row[0]} | {row[1]} |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
