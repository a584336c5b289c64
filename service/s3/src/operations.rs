//! The operations of S3 that are served: their names everywhere, and what they need.

use std::ffi::CStr;

use http::Method;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::access::Needs;
use super::call::Call;
use super::endpoint::Endpoint;
use super::reply::Answer;
use lumpscope_server::request::methods::Name;

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Service,
    Bucket,
    Object,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// As the protocol calls it.
    pub(super) protocol: &'static str,
    /// As metrics and reports do.
    pub(super) name: Name,
    pub(super) needs: Needs,
    /// True: its body is XML, and in memory before it begins.
    pub(super) xml: bool,
    /// Method, and what the path names.
    on: (&'static str, Level),
    /// Parameters, or a header of S3, that tell it from others on the same.
    by: &'static [&'static str],
    /// Its parameters.
    pub(super) takes: &'static [&'static str],
}

impl Operation {
    /// True: it may change something.
    pub(super) fn changes(&self) -> bool {
        !matches!(self.on.0, "GET" | "HEAD")
    }
}

const fn c_name(ended: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(ended.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name has no zero inside"),
    }
}

/// The only word behind a right.
const fn is_xml(word: &str) -> bool {
    matches!(word.as_bytes(), b"xml")
}

macro_rules! operations {
    ($($protocol:literal $name:literal $needs:ident $($xml:ident)?, $method:ident $level:ident
        [$($by:literal),*] [$($takes:literal),*] = $serve:ident $(.$wait:ident)?;)*) => {
        /// All of them.
        pub(super) const OPERATIONS: &[Operation] = &[$(Operation {
            protocol: $protocol,
            name: Name {
                text: $name,
                c: c_name(concat!($name, "\0")),
                full: concat!("S3/", $protocol),
            },
            needs: Needs::$needs,
            xml: false $(|| is_xml(stringify!($xml)))?,
            on: (stringify!($method), Level::$level),
            by: &[$($by),*],
            takes: &[$($takes),*],
        },)*];

        /// Runs the operation of a call.
        ///
        /// # Errors
        /// Those of the operation.
        pub(super) async fn serve(endpoint: &Endpoint, call: &mut Call) -> S3Result<Answer> {
            match call.protocol {
                $($protocol => endpoint.$serve(call)$(.$wait)?,)*
                _ => Err(S3Error::new(S3ErrorCode::NotImplemented)),
            }
        }
    };
}

operations! {
    "ListBuckets" "s3_list_buckets" Login, GET Service [] ["bucket-region", "continuation-token", "max-buckets", "prefix"] = list_buckets;
    "CreateBucket" "s3_create_bucket" WholeBucket xml, PUT Bucket [] [] = create.await;
    "DeleteBucket" "s3_delete_bucket" WholeBucket, DELETE Bucket [] [] = remove.await;
    "HeadBucket" "s3_head_bucket" Bucket, HEAD Bucket [] [] = bucket;
    "GetBucketLocation" "s3_get_bucket_location" Bucket, GET Bucket ["location"] ["location"] = location;
    "ListObjects" "s3_list_objects" Bucket, GET Bucket [] ["delimiter", "encoding-type", "marker", "max-keys", "prefix"] = list_v1.await;
    "ListObjectsV2" "s3_list_objects_v2" Bucket, GET Bucket ["list-type"] ["continuation-token", "delimiter", "encoding-type", "fetch-owner", "list-type", "max-keys", "metadata", "prefix", "start-after"] = list_v2.await;
    "ListMultipartUploads" "s3_list_uploads" Bucket, GET Bucket ["uploads"] ["delimiter", "encoding-type", "key-marker", "max-uploads", "prefix", "upload-id-marker", "uploads"] = uploads;
    "DeleteObjects" "s3_delete_objects" Bucket xml, POST Bucket ["delete"] ["delete"] = delete_many.await;
    "PutObject" "s3_put_object" Write, PUT Object [] [] = put.await;
    "CopyObject" "s3_copy_object" Write, PUT Object ["x-amz-copy-source"] [] = copy.await;
    "GetObject" "s3_get_object" Read, GET Object [] ["partNumber", "response-cache-control", "response-content-disposition", "response-content-encoding", "response-content-language", "response-content-type", "response-expires", "versionId"] = get.await;
    "HeadObject" "s3_head_object" Read, HEAD Object [] ["partNumber", "response-cache-control", "response-content-disposition", "response-content-encoding", "response-content-language", "response-content-type", "response-expires", "versionId"] = head.await;
    "DeleteObject" "s3_delete_object" Write, DELETE Object [] ["versionId"] = delete.await;
    "CreateMultipartUpload" "s3_create_upload" Write, POST Object ["uploads"] ["uploads"] = create_upload.await;
    "UploadPart" "s3_upload_part" Write, PUT Object ["partNumber", "uploadId"] ["partNumber", "uploadId"] = part.await;
    "UploadPartCopy" "s3_upload_part_copy" Write, PUT Object ["partNumber", "uploadId", "x-amz-copy-source"] ["partNumber", "uploadId"] = copy_part.await;
    "CompleteMultipartUpload" "s3_complete_upload" Write xml, POST Object ["uploadId"] ["uploadId"] = complete.await;
    "AbortMultipartUpload" "s3_abort_upload" Write, DELETE Object ["uploadId"] ["uploadId"] = abort.await;
    "ListParts" "s3_list_parts" Write, GET Object ["uploadId"] ["max-parts", "part-number-marker", "uploadId"] = parts;
    "GetObjectAttributes" "s3_get_attributes" Read, GET Object ["attributes"] ["attributes", "versionId"] = object_attributes.await;
    "ListObjectVersions" "s3_list_versions" Bucket, GET Bucket ["versions"] ["delimiter", "encoding-type", "key-marker", "max-keys", "prefix", "version-id-marker", "versions"] = versions.await;
    "GetBucketAcl" "s3_get_setting" Bucket, GET Bucket ["acl"] ["acl"] = acl.await;
    "GetBucketCors" "s3_get_setting" Bucket, GET Bucket ["cors"] ["cors"] = get_cors;
    "GetBucketEncryption" "s3_get_setting" Bucket, GET Bucket ["encryption"] ["encryption"] = unset;
    "GetBucketLifecycleConfiguration" "s3_get_setting" Bucket, GET Bucket ["lifecycle"] ["lifecycle"] = get_lifecycle;
    "GetBucketLogging" "s3_get_setting" Bucket, GET Bucket ["logging"] ["logging"] = unset;
    "GetBucketPolicy" "s3_get_setting" Bucket, GET Bucket ["policy"] ["policy"] = unset;
    "GetBucketReplication" "s3_get_setting" Bucket, GET Bucket ["replication"] ["replication"] = unset;
    "GetBucketTagging" "s3_get_setting" Bucket, GET Bucket ["tagging"] ["tagging"] = unset;
    "GetBucketVersioning" "s3_get_setting" Bucket, GET Bucket ["versioning"] ["versioning"] = unset;
    "GetBucketWebsite" "s3_get_setting" Bucket, GET Bucket ["website"] ["website"] = unset;
    "GetObjectLockConfiguration" "s3_get_setting" Bucket, GET Bucket ["object-lock"] ["object-lock"] = unset;
    "GetObjectAcl" "s3_get_setting" Read, GET Object ["acl"] ["acl", "versionId"] = acl.await;
    "GetObjectTagging" "s3_get_setting" Read, GET Object ["tagging"] ["tagging", "versionId"] = tags.await;
    "PutObjectTagging" "s3_put_tags" Write xml, PUT Object ["tagging"] ["tagging", "versionId"] = put_tags.await;
    "DeleteObjectTagging" "s3_delete_tags" Write, DELETE Object ["tagging"] ["tagging", "versionId"] = delete_tags.await;
    "PutBucketCors" "s3_put_setting" WholeBucket xml, PUT Bucket ["cors"] ["cors"] = put_cors.await;
    "DeleteBucketCors" "s3_delete_setting" WholeBucket, DELETE Bucket ["cors"] ["cors"] = delete_cors.await;
    "PutBucketLifecycleConfiguration" "s3_put_setting" WholeBucket xml, PUT Bucket ["lifecycle"] ["lifecycle"] = put_lifecycle.await;
    "DeleteBucketLifecycle" "s3_delete_setting" WholeBucket, DELETE Bucket ["lifecycle"] ["lifecycle"] = delete_lifecycle.await;
}

/// Name for a request that was refused before its operation was known.
pub(super) const UNKNOWN: Name = Name {
    text: "s3_unknown",
    c: c"s3_unknown",
    full: "",
};

/// Name for the question of a browser whether a page may ask.
pub(super) const PREFLIGHT: Name = Name {
    text: "s3_preflight",
    c: c"s3_preflight",
    full: "S3/Preflight",
};

/// The operation on this that most of its names tell from others; `None`: none is served.
pub(super) fn resolve(
    method: &Method,
    level: Level,
    has: impl Fn(&str) -> bool,
) -> Option<&'static Operation> {
    let all = OPERATIONS.iter();
    let named =
        all.filter(|it| it.on == (method.as_str(), level) && it.by.iter().all(|name| has(name)));
    named.max_by_key(|it| it.by.len())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The cells of a table of docs/s3.md, of its lines behind the head.
    pub(crate) fn documented(table: &str) -> Vec<Vec<&'static str>> {
        let page = include_str!("../../../docs/s3.md");
        let begin = format!("<!-- {table} -->");
        let lines = page.lines().skip_while(|line| *line != begin).skip(3);
        let lines = lines.take_while(|line| line.starts_with('|'));
        let cells = |line: &'static str| {
            let inside = line.trim_matches('|').split('|');
            inside.map(str::trim).collect()
        };
        lines.map(cells).collect()
    }

    /// The operation that the protocol calls so.
    pub(crate) fn find(protocol: &str) -> &'static Operation {
        let mut all = OPERATIONS.iter();
        all.find(|operation| operation.protocol == protocol)
            .unwrap()
    }

    #[test]
    fn the_operations_are_those_of_the_page() {
        let told = documented("operations");
        assert_eq!(told.len(), OPERATIONS.len());
        for (told, operation) in told.iter().zip(OPERATIONS) {
            assert_eq!(told[..2], [operation.protocol, operation.name.text]);
            let takes = operation.takes.join(", ");
            assert_eq!(told[3], takes, "{}", operation.protocol);
            assert!(operation.takes.is_sorted());
            let begins = match operation.needs {
                Needs::Login | Needs::Bucket => continue,
                Needs::WholeBucket => "write, whole bucket",
                Needs::Read => "read",
                Needs::Write => "write",
            };
            assert!(told[2].starts_with(begins), "{told:?}");
        }
    }
}
