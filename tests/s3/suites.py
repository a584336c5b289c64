"""Runs the suites of others against a service of its own.

usage: suites.py PROGRAM FOLDER [pytest's options]
       suites.py PROGRAM clients [NAME...]
       suites.py PROGRAM minio-go|versitygw

PROGRAM is `lumpscope`. FOLDER has the source of https://github.com/ceph/s3-tests, which is not changed: its tests of
S3 are run, not those of IAM, STS, SNS and S3 Select. Prints a table of its areas and each failure in an area that the
service claims, with the reason. The others run clients.py, the functional tests of minio-go and the test command of
versitygw, if they are installed. Ends with 0 once all has run, whatever the tests say: a table is the result.
"""

import configparser
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import xml.etree.ElementTree

# Features that the service does not have, by pytest's markers or by words in the names of tests; the first one decides.
UNCLAIMED = {
    "versions": r"version|delete_marker|deletemarker|noncur|current",
    "encryption": r"encrypt|sse_|sse-|_enc\b|_enc_|copy_enc|copy_part_enc",
    "object lock": r"object_lock",
    "bucket policies, public access": r"policy|public_block|block_public|ignore_public|tenant",
    "ACLs and who is nobody": r"acl|access_bucket|anon|grant|public|owner|_raw_get\b|_raw_get_(bucket|object)|not_owned"
    r"|object_presigned_put_object_with|ownership",
    "bucket logging": r"bucket_logging",
    "storage classes": r"transition|restore|read_through|storage_class|cloud",
    "signature version 2": r"auth_aws2|_v2\b|aws2|post_object",
    "IAM, STS, SNS, S3 Select": r"test_iam|test_sts|test_sns|test_s3select|role|webidentity",
    "websites, torrents, notifications": r"website|torrent|notification",
    "ceph's own": r"append|usage|unordered|account",
}
CLAIMED = {
    "lists": r"_list",
    "CORS": r"cors",
    "tags": r"tag",
    "lifecycle": r"lifecycle",
    "multipart": r"multipart|upload_part",
    "copies": r"copy",
    "conditions": r"match|modifiedsince",
    "checksums, attributes": r"checksum|cksum|attributes",
    "headers": r"test_headers",
    "buckets": r"bucket",
    "objects": r".",
}
CLAIMS = "claimed: "
# Tests of what is claimed that begin with something else: what they were refused by name, or need of their service.
NEEDS = {
    r"x-amz-acl|Acl operation": "ACLs",
    r"PutBucketVersioning": "versions",
    r"OwnershipControls|BucketTagging": "another feature",
    r"test_lifecycle.*expiration.*: assert": "a service whose days last ten seconds",
    r"HeadBucket operation: Not Impl": "ceph's own",
}
# Tests of what is claimed that fail, and why; docs/s3.md has the same.
WHY = {
    r"test_headers.*(contentlength|authorization)_(none|empty)": "botocore writes the header anew after the test has changed it",
    r"resend_first_finishes_last": "this botocore reads the body less often than the test counts, so a part is named twice",
    r"chunked_transfer_encoding": "S3 wants a length",
    r"set_get_unicode_metadata": "S3 tells metadata that is no ASCII encoded (RFC 2047)",
    r"prefix_unreadable": "S3 encodes a prefix with characters that XML cannot keep; botocore does not decode it",
    r"read_unreadable": "S3 allows this key",
    r"put_authenticated_expired": "a URL for a negative time is 400 in S3",
    r"copy_invalid_range": "S3 says InvalidArgument",
    r"expiration_tags[12]": "S3 wants several filters in an And",
    r"amz_date": "the date in x-amz-date has a form that S3 does not know there either",
    r"delete_object_if_match$": "what has an ETag must be there to be deleted",
}
KEYS = ("main", "alt", "tenant", "iam", "iam root", "iam alt root")
# A bundle of certificates is nothing to a client without TLS, and some refuse to have one.
os.environ.pop("AWS_CA_BUNDLE", None)
# Longest wait for a service that starts, in seconds.
PATIENCE = 60
# Space for a suite that stores objects of some hundred MiB beside each other.
CAPACITY = "8G"


def area(test):
    """The feature that a test is about."""
    for prefix, areas in (("", UNCLAIMED), (CLAIMS, CLAIMED)):
        for name, words in areas.items():
            if re.search(words, test):
                return prefix + name
    raise AssertionError(test)


def access(name):
    return "AK" + name.upper().replace(" ", "")


def write_keys(path):
    rule = '[[key.allow]]\nbucket = "*"\nprefix = ""\nrights = ["read", "write"]\n'
    texts = (
        f'[[key]]\nname = "{access(name)}"\naccess = "{access(name)}"\nsecret = "the-secret-of-{access(name)}"\n{rule}'
        for name in KEYS
    )
    path.touch(mode=0o600)
    path.write_text("\n".join(texts))


def write_config(path, port):
    config = configparser.RawConfigParser()
    config["DEFAULT"] = {"host": "127.0.0.1", "port": port, "is_secure": "False", "ssl_verify": "False"}
    config["fixtures"] = {"bucket prefix": "ls-{random}-"}
    for name in KEYS:
        config["s3 " + name if name in ("main", "alt", "tenant") else name] = {
            "display_name": access(name),
            "user_id": access(name),
            "email": "nobody@example.org",
            "tenant": "",
            "api_name": "",
            "access_key": access(name),
            "secret_key": "the-secret-of-" + access(name),
        }
    # Days of lifecycles last so many seconds where the suite is at home. Here they are days, so none need be waited for.
    config["s3 main"]["lc_debug_interval"] = "1"
    with path.open("w") as file:
        config.write(file)


def free_port():
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


def start(program, folder):
    """A service on a store in a file, and the port of its S3."""
    store = folder / "s.lusf"
    subprocess.run([program, "format", store, "--capacity", CAPACITY], check=True, stdout=subprocess.DEVNULL)
    write_keys(folder / "keys.toml")
    port = free_port()
    serve = [program, "serve", "--no-probes", "--store", f"s={store}", "--s3-listen", f"127.0.0.1:{port}"]
    serve += ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--s3-credentials", folder / "keys.toml"]
    with (folder / "service.log").open("w") as log:
        service = subprocess.Popen(serve, stdout=log, stderr=log)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and service.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
        except urllib.error.HTTPError:
            return service, port
        except OSError:
            time.sleep(0.1)
    service.kill()
    sys.exit("suites.py: the service does not start: " + (folder / "service.log").read_text())


def outcome(case):
    """The word for how a test ended, and why it failed."""
    skipped = case.find("skipped")
    if skipped is not None:
        return "skipped", ""
    failures = [case.find("failure"), case.find("error")]
    for failed in failures:
        if failed is not None:
            return "failed", (failed.get("message") or "").strip().split("\n")[0][:200]
    return "passed", ""


def table(report):
    """Prints what came of each area."""
    areas, reasons, seen = {}, [], {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        test = case.get("classname").split(".")[-1] + "::" + case.get("name")
        word, why = outcome(case)
        # A test that fails and whose end fails is in the report twice.
        seen[test] = (word, why) if seen.get(test, ("",))[0] != "failed" else seen[test]
    for test, (word, why) in seen.items():
        counts = areas.setdefault(area(test), {"passed": 0, "failed": 0, "skipped": 0})
        counts[word] += 1
        if word == "failed" and area(test).startswith(CLAIMS):
            needs = [name for words, name in NEEDS.items() if re.search(words, f"{test}: {why}")]
            known = [reason for words, reason in WHY.items() if re.search(words, test)]
            counts["needs"] = counts.get("needs", 0) + bool(needs)
            counts["known"] = counts.get("known", 0) + bool(known and not needs)
            reasons.append(f"{test}: " + (f"needs {needs[0]}" if needs else known[0] if known else "NOT EXPLAINED: " + why))
    order = [CLAIMS + name for name in CLAIMED] + list(UNCLAIMED)
    lines = [(name, areas[name]) for name in order if name in areas]
    for title, begins in (("all", ""), ("all that is claimed", CLAIMS)):
        some = [counts for name, counts in lines if name.startswith(begins)]
        words = ("passed", "failed", "needs", "known", "skipped")
        lines.append((title, {word: sum(counts.get(word, 0) for counts in some) for word in words}))
    print("| area | passed | failed | of these by what they need beside it | by what S3 does otherwise, or the suite | skipped |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, counts in lines:
        needs, known = counts.get("needs", 0), counts.get("known", 0)
        print(f"| {name} | {counts['passed']} | {counts['failed']} | {needs} | {known} | {counts['skipped']} |")
    print("\nFailed in what is claimed:")
    for reason in reasons:
        print("- " + reason)


def ceph(port, suite, options, folder):
    write_config(folder / "s3tests.conf", port)
    report = folder / "report.xml"
    environment = dict(os.environ, S3TEST_CONF=str(folder / "s3tests.conf"))
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    tests = [f"s3tests/functional/test_{name}.py" for name in ("s3", "headers")]
    subprocess.run([*pytest, "--tb=line", *options, *tests], cwd=suite, env=environment)
    table(report)


def clients(port, names, _):
    login = [access("main"), "the-secret-of-" + access("main")]
    program = pathlib.Path(__file__).with_name("clients.py")
    subprocess.run([sys.executable, program, f"http://127.0.0.1:{port}", *login, *names])


def minio_go(port, _, folder):
    """The functional tests of minio-go: one object of JSON for each of them, and each of their failures."""
    environment = dict(os.environ, SERVER_ENDPOINT=f"127.0.0.1:{port}", ACCESS_KEY=access("main"), ENABLE_HTTPS="0",
                       SECRET_KEY="the-secret-of-" + access("main"), MINT_MODE="full", ENABLE_KMS="0", RUN_ON_FAIL="1")
    run = subprocess.run(["minio-go-tests"], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    results = {}
    for line in run.stdout.splitlines():
        told = json.loads(line) if line.startswith("{") else {}
        results.setdefault(told.get("name"), []).append(told)
    results.pop(None, None)
    failed = {name: [one for one in all if one["status"] == "FAIL"] for name, all in results.items()}
    passed = [name for name, all in results.items() if not failed[name] and any(one["status"] == "PASS" for one in all)]
    failed = {name: all[0] for name, all in failed.items() if all}
    print(f"{len(passed)} passed, {len(failed)} failed, {len(results) - len(passed) - len(failed)} do not apply")
    for name, why in failed.items():
        print(f"- {name}: {why.get('message', '')}: {why.get('error', '')}"[:300])


def versitygw(port, _, folder):
    """The test command of versitygw: PASS or FAIL and a name, a line each, and the reason behind a failure."""
    login = ["--access", access("main"), "--secret", "the-secret-of-" + access("main")]
    test = ["versitygw", "test", *login, "--endpoint", f"http://127.0.0.1:{port}", "full-flow"]
    run = subprocess.run(test, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    told = re.sub("\x1b\\[[0-9;]*m", "", run.stdout)
    print(told)
    passed, failed = (len(re.findall(f"^{word} ", told, re.MULTILINE)) for word in ("PASS", "FAIL"))
    print(f"{passed} passed, {failed} failed; it ended with {run.returncode}")


def main():
    program, suite, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="lumpscope-suites-") as folder:
        folder = pathlib.Path(folder)
        service, port = start(program, folder)
        try:
            runs = {"clients": clients, "minio-go": minio_go, "versitygw": versitygw}
            if suite in runs:
                runs[suite](port, options, folder)
            else:
                ceph(port, suite, options, folder)
        finally:
            service.terminate()
            service.wait()


if __name__ == "__main__":
    main()
