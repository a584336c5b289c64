"""A bucket, asked without JuiceFS: version 4 signatures with the standard library."""

import datetime
import hashlib
import hmac
import http.client
import urllib.parse
import xml.etree.ElementTree

from machine import Failed

REGION = "us-east-1"
UNSIGNED = "UNSIGNED-PAYLOAD"


class S3:
    """One bucket of an endpoint, asked with one access key."""

    def __init__(self, endpoint, bucket, access, secret):
        self.host = urllib.parse.urlsplit(endpoint).netloc
        self.bucket, self.access, self.secret = bucket, access, secret

    def signed(self, method, path, query):
        """The headers of a request."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        headers = {"host": self.host, "x-amz-content-sha256": UNSIGNED, "x-amz-date": now}
        names = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        canonical = "\n".join([method, path, query, lines, names, UNSIGNED])
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = f"AWS4{self.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        login = f"AWS4-HMAC-SHA256 Credential={self.access}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {**headers, "authorization": login}

    def ask(self, method, key="", body=b"", **query):
        """Status and body."""
        path = urllib.parse.quote(f"/{self.bucket}" + (f"/{key}" if key else ""))
        words = sorted((name.replace("_", "-"), str(value)) for name, value in query.items())
        text = urllib.parse.urlencode(words, quote_via=urllib.parse.quote, safe="")
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            target = f"{path}?{text}" if text else path
            connection.request(method, target, body, self.signed(method, path, text))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def good(self, method, key="", body=b"", **query):
        """The body of an answer that must be one."""
        status, answer = self.ask(method, key, body, **query)
        if status not in (200, 204):
            raise Failed(f"{method} of {self.bucket}/{key}: {status} {answer[:500]}")
        return answer

    def keys(self, page=1000):
        """Every key with its size, read page by page."""
        return {key: size for key, (size, _) in self.listed(page).items()}

    def without_records(self):
        """The keys that are ids of lumps: a list has no ETag of them (docs/objects.md)."""
        return [key for key, (_, etag) in self.listed().items() if etag is None]

    def listed(self, page=1000):
        """Every key with its size and ETag, read page by page."""
        found, more = {}, {}
        while True:
            tree = xml.etree.ElementTree.fromstring(self.good("GET", list_type=2, max_keys=page, **more))
            space = {"s3": tree.tag[1:].partition("}")[0]}
            for item in tree.findall("s3:Contents", space):
                key = item.findtext("s3:Key", namespaces=space)
                if key in found or key < max(found, default=""):
                    raise Failed(f"{key} is listed twice, or not in order")
                size, etag = (item.findtext(f"s3:{name}", namespaces=space) for name in ("Size", "ETag"))
                found[key] = int(size), etag
            if tree.findtext("s3:IsTruncated", namespaces=space) != "true":
                return found
            more = {"continuation_token": tree.findtext("s3:NextContinuationToken", namespaces=space)}
