"""What clients of S3 expect, asked by boto3 of a service that runs.

usage: s3-python conformance.py ENDPOINT ACCESS SECRET [LISTED_KEYS]

Ends with 0, or with the first expectation that does not hold.
"""

import concurrent.futures
import hashlib
import io
import sys
import time
import urllib.error
import urllib.request

import boto3
import botocore.exceptions
from botocore.config import Config

ENDPOINT, ACCESS, SECRET = sys.argv[1:4]
LISTED = int(sys.argv[4]) if len(sys.argv) > 4 else 1500
BUCKET = "conformance"
MIB = 1 << 20


def client(access=ACCESS, secret=SECRET, **more):
    more.setdefault("retries", {"max_attempts": 1})
    more.setdefault("signature_version", "s3v4")
    config = Config(s3={"addressing_style": "path"}, **more)
    return boto3.client(
        "s3",
        endpoint_url=ENDPOINT,
        region_name="us-east-1",
        aws_access_key_id=access,
        aws_secret_access_key=secret,
        config=config,
    )


S3 = client()


def refused(code, call, **arguments):
    """The call fails with this code of S3, or this status."""
    try:
        call(**arguments)
    except botocore.exceptions.ClientError as error:
        got = error.response["Error"]["Code"]
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        assert code in (got, status), f"{got} ({status}) instead of {code}"
        return error.response
    raise AssertionError(f"{code} was expected")


def put(key, body=b"", **more):
    return S3.put_object(Bucket=BUCKET, Key=key, Body=body, **more)


def get(key, **more):
    return S3.get_object(Bucket=BUCKET, Key=key, **more)["Body"].read()


def buckets():
    S3.create_bucket(Bucket=BUCKET)
    S3.create_bucket(Bucket=BUCKET)  # as in us-east-1
    refused("NoSuchBucket", S3.list_objects_v2, Bucket="another")
    refused(404, S3.head_bucket, Bucket="another")
    head = S3.head_bucket(Bucket=BUCKET)
    assert head["ResponseMetadata"]["HTTPHeaders"]["x-amz-request-id"].isdigit()
    assert [b["Name"] for b in S3.list_buckets()["Buckets"]] == [BUCKET]
    assert S3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] is None
    S3.create_bucket(Bucket="second")
    put("one")
    refused("BucketNotEmpty", S3.delete_bucket, Bucket=BUCKET)
    S3.delete_bucket(Bucket="second")
    S3.delete_object(Bucket=BUCKET, Key="one")


def odd_keys():
    keys = [
        "plain", "with space", "täst/ü/漢字/😀", 'quote"\'&<>', "percent%41%zz%", "plus+plus", "tail/", "a//b", "..x/.y",
        "question?x=y#z", "tab\tnewline\nbell\x07", "~tilde*(){}[]|\\^`", "k" * 1024, "ü" * 512,
    ]
    for key in keys:
        body = hashlib.sha256(key.encode()).digest()
        put(key, body)
        assert get(key) == body, key
    found = [o["Key"] for o in S3.list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert found == sorted(keys, key=lambda k: k.encode()), found
    found = [o["Key"] for o in S3.list_objects(Bucket=BUCKET)["Contents"]]
    assert found == sorted(keys, key=lambda k: k.encode()), found
    refused("KeyTooLongError", put, key="k" * 1025)
    answer = S3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": k} for k in keys if "\x07" not in k]})
    assert len(answer["Deleted"]) == len(keys) - 1 and not answer.get("Errors"), answer
    S3.delete_object(Bucket=BUCKET, Key="tab\tnewline\nbell\x07")
    assert "Contents" not in S3.list_objects_v2(Bucket=BUCKET)


def objects():
    for size in (0, 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 11 * MIB):
        body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
        answer = put("sized", body)
        md5 = hashlib.md5(body).hexdigest()
        assert answer["ETag"] == f'"{md5}"', size
        head = S3.head_object(Bucket=BUCKET, Key="sized")
        assert head["ContentLength"] == size and head["ETag"] == f'"{md5}"'
        assert get("sized") == body, size
    for text, begin, end in (("bytes=0-0", 0, 1), ("bytes=4194303-4194305", 4194303, 4194306), ("bytes=-5", -5, None)):
        assert get("sized", Range=text) == body[begin:end], text
    part = S3.get_object(Bucket=BUCKET, Key="sized", Range="bytes=11534330-")
    assert part["ContentRange"] == "bytes 11534330-11534335/11534336" and len(part["Body"].read()) == 6
    refused("InvalidRange", S3.get_object, Bucket=BUCKET, Key="sized", Range="bytes=11534336-")
    refused("NoSuchKey", S3.get_object, Bucket=BUCKET, Key="missing")
    refused(404, S3.head_object, Bucket=BUCKET, Key="missing")
    S3.delete_object(Bucket=BUCKET, Key="missing")
    put("told", b"x", ContentType="text/x", Metadata={"a": "1", "b-c": "zwei drei"}, CacheControl="no-store",
        ContentEncoding="gzip", ContentDisposition="inline", ContentLanguage="de")
    head = S3.head_object(Bucket=BUCKET, Key="told")
    assert head["ContentType"] == "text/x" and head["Metadata"] == {"a": "1", "b-c": "zwei drei"}, head
    assert head["CacheControl"] == "no-store" and head["ContentEncoding"] == "gzip" and head["ContentLanguage"] == "de"
    assert S3.get_object(Bucket=BUCKET, Key="told", ResponseContentType="a/b")["ContentType"] == "a/b"
    refused("MetadataTooLarge", put, key="told", Metadata={"a": "x" * 2048})
    S3.delete_object(Bucket=BUCKET, Key="told")
    S3.delete_object(Bucket=BUCKET, Key="sized")


def conditions():
    etag = put("c", b"1", IfNoneMatch="*")["ETag"]
    refused("PreconditionFailed", put, key="c", body=b"2", IfNoneMatch="*")
    refused("PreconditionFailed", put, key="c", body=b"2", IfMatch='"00000000000000000000000000000000"')
    second = put("c", b"2", IfMatch=etag)["ETag"]
    at = {"Bucket": BUCKET, "Key": "c"}
    refused(412, S3.get_object, **at, IfMatch=etag)
    refused(304, S3.get_object, **at, IfNoneMatch=second)
    assert get("c", IfMatch=second) == b"2" == get("c", IfNoneMatch=etag)
    refused(304, S3.get_object, **at, IfModifiedSince=time.time() + 100)
    refused(412, S3.get_object, **at, IfUnmodifiedSince=1_000_000_000)
    assert get("c", IfModifiedSince=1_000_000_000) == b"2"
    # Of many who may only create it, one does.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        def create(n):
            try:
                put("race", b"%d" % n, IfNoneMatch="*")
                return n
            except botocore.exceptions.ClientError as error:
                assert error.response["Error"]["Code"] == "PreconditionFailed", error
                return None
        made = [n for n in pool.map(create, range(16)) if n is not None]
    assert len(made) == 1 and get("race") == b"%d" % made[0], made
    # What a condition names must be there.
    missing = {"Bucket": BUCKET, "Key": "missing"}
    refused("NoSuchKey", put, key="missing", body=b"1", IfMatch=second)
    refused("NoSuchKey", S3.delete_object, **missing, IfMatch=second)
    refused("PreconditionFailed", S3.delete_object, **at, IfMatch=etag)
    answer = S3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "c", "ETag": etag}, {"Key": "missing"}]})
    assert [e["Code"] for e in answer["Errors"]] == ["PreconditionFailed"] and len(answer["Deleted"]) == 1, answer
    # The ETag decides where a date is given too.
    old, coming = 1_000_000_000, time.time() + 100
    assert get("c", IfMatch=second, IfUnmodifiedSince=old) == b"2"
    assert get("c", IfNoneMatch=etag, IfModifiedSince=coming) == b"2"
    refused(304, S3.head_object, **at, IfNoneMatch=second, IfModifiedSince=old)
    refused(412, S3.head_object, **at, IfMatch=etag)
    upload = {**at, "UploadId": S3.create_multipart_upload(**at)["UploadId"]}
    tag = S3.upload_part(**upload, PartNumber=1, Body=b"3")["ETag"]
    whole = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
    refused("PreconditionFailed", S3.complete_multipart_upload, **upload, MultipartUpload=whole, IfNoneMatch="*")
    refused("PreconditionFailed", S3.complete_multipart_upload, **upload, MultipartUpload=whole, IfMatch=etag)
    S3.complete_multipart_upload(**upload, MultipartUpload=whole, IfMatch=second)
    assert get("c") == b"3"
    S3.delete_object(**at, IfMatch="*")
    refused("NoSuchKey", S3.get_object, **at)
    S3.delete_object(Bucket=BUCKET, Key="race", IfMatch=S3.head_object(Bucket=BUCKET, Key="race")["ETag"])


def checksums():
    for algorithm in ("CRC32", "SHA1", "SHA256"):
        answer = put("sum", b"123456789", ChecksumAlgorithm=algorithm)
        head = S3.head_object(Bucket=BUCKET, Key="sum", ChecksumMode="ENABLED")
        name = f"Checksum{algorithm}"
        assert answer[name] == head[name], (answer, head)
    assert "ChecksumCRC32C" not in head and answer["ChecksumType"] == "FULL_OBJECT", (answer, head)
    refused("BadDigest", put, key="sum", body=b"x", ContentMD5="AAAAAAAAAAAAAAAAAAAAAA==")
    refused("BadDigest", put, key="sum", body=b"x", ChecksumSHA256="A" * 43 + "=")
    assert get("sum") == b"123456789"
    S3.delete_object(Bucket=BUCKET, Key="sum")


def signatures():
    refused("SignatureDoesNotMatch", client(secret="x" * 20).list_buckets)
    refused("InvalidAccessKeyId", client(access="NOBODY").list_buckets)
    put("signed", b"secret")
    get_it = {"Bucket": BUCKET, "Key": "signed"}
    url = S3.generate_presigned_url("get_object", Params=get_it, ExpiresIn=60)
    assert urllib.request.urlopen(url).read() == b"secret"
    to = S3.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "signed"}, ExpiresIn=60)
    urllib.request.urlopen(urllib.request.Request(to, data=b"new", method="PUT", headers={"Content-Type": ""}))
    assert get("signed") == b"new"
    short = S3.generate_presigned_url("get_object", Params=get_it, ExpiresIn=1)
    time.sleep(2.1)
    plain = f"{ENDPOINT}/{BUCKET}/signed"
    old = client(signature_version="s3").generate_presigned_url("get_object", Params=get_it, ExpiresIn=60)
    for wrong in (old, short, url.replace("signed?", "other?"), url[:-1] + ("0" if url[-1] != "0" else "1"), plain):
        try:
            urllib.request.urlopen(wrong)
            raise AssertionError(f"{wrong} was accepted")
        except urllib.error.HTTPError as error:
            assert error.code == 403, (wrong, error.code)
    S3.delete_object(Bucket=BUCKET, Key="signed")


def unsigned_payload():
    config = Config(s3={"addressing_style": "path", "payload_signing_enabled": False},
                    request_checksum_calculation="when_required")
    plain = boto3.client("s3", endpoint_url=ENDPOINT, region_name="us-east-1", aws_access_key_id=ACCESS,
                         aws_secret_access_key=SECRET, config=config)
    plain.put_object(Bucket=BUCKET, Key="unsigned", Body=b"u" * 70000)
    assert get("unsigned") == b"u" * 70000
    S3.delete_object(Bucket=BUCKET, Key="unsigned")


def overwrites():
    """Readers see one version, whole."""
    versions = [bytes([n]) * (5 * MIB + n) for n in range(6)]
    put("over", versions[0])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(put, "over", body) for body in versions * 2]
        for _ in range(12):
            body = get("over")
            assert body in versions, (len(body), set(body))
        for write in writes:
            write.result()
    S3.delete_object(Bucket=BUCKET, Key="over")


def listing():
    keys = [f"{n % 7}/{n:06}" for n in range(LISTED)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(put, keys))
    keys.sort()
    for version in ("list_objects_v2", "list_objects"):
        pages = S3.get_paginator(version).paginate(Bucket=BUCKET, PaginationConfig={"PageSize": 333})
        assert [o["Key"] for page in pages for o in page.get("Contents", [])] == keys, version
        pages = S3.get_paginator(version).paginate(Bucket=BUCKET, Delimiter="/", PaginationConfig={"PageSize": 2})
        assert [p["Prefix"] for page in pages for p in page["CommonPrefixes"]] == [f"{n}/" for n in range(7)], version
        pages = S3.get_paginator(version).paginate(Bucket=BUCKET, Prefix="3/", Delimiter="/")
        assert [o["Key"] for page in pages for o in page["Contents"]] == [k for k in keys if k.startswith("3/")]
    after = S3.list_objects_v2(Bucket=BUCKET, StartAfter=keys[-2], Prefix="", Delimiter="", EncodingType="url")
    assert [o["Key"] for o in after["Contents"]] == keys[-1:] and not after["IsTruncated"]
    assert S3.list_objects_v2(Bucket=BUCKET, MaxKeys=0)["KeyCount"] == 0
    refused("InvalidArgument", S3.list_objects_v2, Bucket=BUCKET, ContinuationToken="%")
    for begin in range(0, len(keys), 1000):
        some = [{"Key": key} for key in keys[begin:begin + 1000]]
        S3.delete_objects(Bucket=BUCKET, Delete={"Objects": some, "Quiet": True})
    assert "Contents" not in S3.list_objects_v2(Bucket=BUCKET)


def copies():
    put("from", b"c" * (5 * MIB), ContentType="a/b", Metadata={"k": "v"})
    source = {"Bucket": BUCKET, "Key": "from"}
    S3.copy_object(Bucket=BUCKET, Key="to ü", CopySource=source)
    head = S3.head_object(Bucket=BUCKET, Key="to ü")
    assert head["ContentType"] == "a/b" and head["Metadata"] == {"k": "v"} and get("to ü") == b"c" * (5 * MIB)
    S3.copy_object(Bucket=BUCKET, Key="from", CopySource=source, MetadataDirective="REPLACE", Metadata={"n": "w"})
    assert S3.head_object(Bucket=BUCKET, Key="from")["Metadata"] == {"n": "w"}
    refused("InvalidRequest", S3.copy_object, Bucket=BUCKET, Key="from", CopySource=source)
    refused(412, S3.copy_object, Bucket=BUCKET, Key="x", CopySource=source, CopySourceIfMatch='"no"')
    refused("NoSuchKey", S3.copy_object, Bucket=BUCKET, Key="x", CopySource={"Bucket": BUCKET, "Key": "none"})
    tag, old = S3.head_object(Bucket=BUCKET, Key="from")["ETag"], 1_000_000_000
    for wrong in ({"CopySourceIfNoneMatch": tag}, {"CopySourceIfModifiedSince": time.time() + 100},
                  {"CopySourceIfUnmodifiedSince": old}, {"IfNoneMatch": "*"}, {"IfMatch": '"' + "0" * 32 + '"'}):
        refused(412, S3.copy_object, Bucket=BUCKET, Key="to ü", CopySource=source, **wrong)
    refused("NoSuchKey", S3.copy_object, Bucket=BUCKET, Key="x", CopySource=source, IfMatch=tag)
    S3.copy_object(Bucket=BUCKET, Key="to ü", CopySource=source, CopySourceIfMatch=tag, CopySourceIfUnmodifiedSince=old)
    for key in ("from", "to ü"):
        S3.delete_object(Bucket=BUCKET, Key=key)


def multipart():
    at = {"Bucket": BUCKET, "Key": "parts"}
    upload = S3.create_multipart_upload(**at, ContentType="m/p", Metadata={"m": "1"})["UploadId"]
    at["UploadId"] = upload
    one, two = b"1" * (5 * MIB), b"2" * 100
    S3.upload_part(**at, PartNumber=1, Body=b"0" * (5 * MIB))
    tags = [S3.upload_part(**at, PartNumber=n, Body=body)["ETag"] for n, body in ((1, one), (3, two))]
    listed = S3.list_parts(**at)["Parts"]
    assert [(p["PartNumber"], p["Size"], p["ETag"]) for p in listed] == [(1, 5 * MIB, tags[0]), (3, 100, tags[1])]
    assert [u["UploadId"] for u in S3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]] == [upload]
    refused("NoSuchKey", S3.get_object, Bucket=BUCKET, Key="parts")
    done = [{"PartNumber": n, "ETag": tag} for n, tag in zip((1, 3), tags)]
    wrong = [{"PartNumber": 1, "ETag": '"00000000000000000000000000000000"'}]
    refused("InvalidPart", S3.complete_multipart_upload, **at, MultipartUpload={"Parts": wrong})
    refused("InvalidPartOrder", S3.complete_multipart_upload, **at, MultipartUpload={"Parts": done[::-1]})
    etag = S3.complete_multipart_upload(**at, MultipartUpload={"Parts": done})["ETag"]
    both = hashlib.md5(hashlib.md5(one).digest() + hashlib.md5(two).digest()).hexdigest()
    assert etag == f'"{both}-2"', etag
    head = S3.head_object(Bucket=BUCKET, Key="parts")
    assert head["ContentType"] == "m/p" and head["Metadata"] == {"m": "1"} and get("parts") == one + two
    assert get("parts", Range="bytes=5242879-5242880") == b"12"
    refused("NoSuchUpload", S3.list_parts, **at)
    second = {"Bucket": BUCKET, "Key": "parts"}
    second["UploadId"] = S3.create_multipart_upload(**second)["UploadId"]
    part = S3.upload_part_copy(**second, PartNumber=1, CopySource={"Bucket": BUCKET, "Key": "parts"},
                               CopySourceRange="bytes=5242870-5242889")["CopyPartResult"]["ETag"]
    assert part == f'"{hashlib.md5(b"1" * 10 + b"2" * 10).hexdigest()}"'
    S3.abort_multipart_upload(**second)
    refused("NoSuchUpload", S3.upload_part, **second, PartNumber=1, Body=b"x")
    S3.upload_fileobj(__import__("io").BytesIO(one * 4), BUCKET, "managed")
    assert get("managed") == one * 4
    for key in ("parts", "managed"):
        S3.delete_object(Bucket=BUCKET, Key=key)


def defaults():
    """What clients do unless they are told otherwise."""
    elsewhere = boto3.client("s3", endpoint_url=ENDPOINT, region_name="RegionOne", aws_access_key_id=ACCESS,
                             aws_secret_access_key=SECRET, config=Config(s3={"addressing_style": "path"}))
    at, data = {"Bucket": BUCKET, "Key": "moved"}, b"d" * (11 * MIB)
    for algorithm in ("CRC32", "SHA1", "SHA256"):
        elsewhere.upload_fileobj(io.BytesIO(data), BUCKET, "moved", ExtraArgs={"ChecksumAlgorithm": algorithm})
        whole = elsewhere.get_object(**at, ChecksumMode="ENABLED")
        assert whole["Body"].read() == data and whole["ChecksumType"] == "COMPOSITE", whole
        assert whole["Checksum" + algorithm].endswith("-2") and "ChecksumCRC32C" not in whole, whole
    part = S3.get_object(**at, PartNumber=2)
    assert part["PartsCount"] == 2 and part["Body"].read() == data[8 * MIB:], part
    told = S3.get_object_attributes(**at, ObjectAttributes=["ObjectParts", "ObjectSize"])
    assert told["ObjectSize"] == len(data) and told["ObjectParts"]["TotalPartsCount"] == 2, told
    assert [v["VersionId"] for v in S3.list_object_versions(Bucket=BUCKET)["Versions"]] == ["null"]
    assert "Status" not in S3.get_bucket_versioning(Bucket=BUCKET) and not S3.get_object_tagging(**at)["TagSet"]
    refused("NoSuchLifecycleConfiguration", S3.get_bucket_lifecycle_configuration, Bucket=BUCKET)
    old = refused("AccessDenied", client(signature_version="s3").list_buckets)
    assert "signature_version=s3v4" in old["Error"]["Message"], old
    S3.delete_object(**at)


CHECKS = [buckets, odd_keys, objects, conditions, checksums, signatures, unsigned_payload, overwrites, listing, copies,
          multipart, defaults]

if __name__ == "__main__":
    for check in CHECKS:
        since = time.monotonic()
        check()
        print(f"{check.__name__}: {time.monotonic() - since:.2f} s", flush=True)
    S3.delete_bucket(Bucket=BUCKET)
