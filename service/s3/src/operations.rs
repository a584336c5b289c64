//! The operations of S3 that are served: their names everywhere, and what they need.

use std::ffi::CStr;

use lumpscope_server::request::methods::Name;

/// Right that an operation needs of its key, as far as the path tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// A login.
    Login,
    /// Any right in the bucket; the operation looks closer.
    Bucket,
    /// To write every key of the bucket.
    WholeBucket,
    /// To read this key.
    Read,
    /// To write this key.
    Write,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// As the protocol calls it.
    pub(super) protocol: &'static str,
    /// As metrics and reports do.
    pub(super) name: Name,
    pub(super) needs: Needs,
    /// True: its body is XML, and in memory before it begins.
    pub(super) xml: bool,
    /// Its parameters.
    pub(super) takes: &'static [&'static str],
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
    ($($protocol:literal $name:literal $needs:ident $($xml:ident)? [$($takes:literal),*],)*) => {
        pub(super) const OPERATIONS: &[Operation] = &[$(Operation {
            protocol: $protocol,
            name: Name {
                text: $name,
                c: c_name(concat!($name, "\0")),
                full: concat!("S3/", $protocol),
            },
            needs: Needs::$needs,
            xml: false $(|| is_xml(stringify!($xml)))?,
            takes: &[$($takes),*],
        },)*];
    };
}

operations! {
    "ListBuckets" "s3_list_buckets" Login ["bucket-region", "continuation-token", "max-buckets", "prefix"],
    "CreateBucket" "s3_create_bucket" WholeBucket xml [],
    "DeleteBucket" "s3_delete_bucket" WholeBucket [],
    "HeadBucket" "s3_head_bucket" Bucket [],
    "GetBucketLocation" "s3_get_bucket_location" Bucket ["location"],
    "ListObjects" "s3_list_objects" Bucket ["delimiter", "encoding-type", "marker", "max-keys", "prefix"],
    "ListObjectsV2" "s3_list_objects_v2" Bucket ["continuation-token", "delimiter", "encoding-type", "fetch-owner", "list-type", "max-keys", "metadata", "prefix", "start-after"],
    "ListMultipartUploads" "s3_list_uploads" Bucket ["delimiter", "encoding-type", "key-marker", "max-uploads", "prefix", "upload-id-marker", "uploads"],
    "DeleteObjects" "s3_delete_objects" Bucket xml ["delete"],
    "PutObject" "s3_put_object" Write [],
    "CopyObject" "s3_copy_object" Write [],
    "GetObject" "s3_get_object" Read ["partNumber", "response-cache-control", "response-content-disposition", "response-content-encoding", "response-content-language", "response-content-type", "response-expires", "versionId"],
    "HeadObject" "s3_head_object" Read ["partNumber", "response-cache-control", "response-content-disposition", "response-content-encoding", "response-content-language", "response-content-type", "response-expires", "versionId"],
    "DeleteObject" "s3_delete_object" Write ["versionId"],
    "CreateMultipartUpload" "s3_create_upload" Write ["uploads"],
    "UploadPart" "s3_upload_part" Write ["partNumber", "uploadId"],
    "UploadPartCopy" "s3_upload_part_copy" Write ["partNumber", "uploadId"],
    "CompleteMultipartUpload" "s3_complete_upload" Write xml ["uploadId"],
    "AbortMultipartUpload" "s3_abort_upload" Write ["uploadId"],
    "ListParts" "s3_list_parts" Write ["max-parts", "part-number-marker", "uploadId"],
    "GetObjectAttributes" "s3_get_attributes" Read ["attributes", "versionId"],
    "ListObjectVersions" "s3_list_versions" Bucket ["delimiter", "encoding-type", "key-marker", "max-keys", "prefix", "version-id-marker", "versions"],
    "GetBucketAcl" "s3_get_setting" Bucket ["acl"],
    "GetBucketCors" "s3_get_setting" Bucket ["cors"],
    "GetBucketEncryption" "s3_get_setting" Bucket ["encryption"],
    "GetBucketLifecycleConfiguration" "s3_get_setting" Bucket ["lifecycle"],
    "GetBucketLogging" "s3_get_setting" Bucket ["logging"],
    "GetBucketPolicy" "s3_get_setting" Bucket ["policy"],
    "GetBucketReplication" "s3_get_setting" Bucket ["replication"],
    "GetBucketTagging" "s3_get_setting" Bucket ["tagging"],
    "GetBucketVersioning" "s3_get_setting" Bucket ["versioning"],
    "GetBucketWebsite" "s3_get_setting" Bucket ["website"],
    "GetObjectLockConfiguration" "s3_get_setting" Bucket ["object-lock"],
    "GetObjectAcl" "s3_get_setting" Read ["acl", "versionId"],
    "GetObjectTagging" "s3_get_setting" Read ["tagging", "versionId"],
    "PutObjectTagging" "s3_put_tags" Write xml ["tagging", "versionId"],
    "DeleteObjectTagging" "s3_delete_tags" Write ["tagging", "versionId"],
    "PutBucketCors" "s3_put_setting" WholeBucket xml ["cors"],
    "DeleteBucketCors" "s3_delete_setting" WholeBucket ["cors"],
    "PutBucketLifecycleConfiguration" "s3_put_setting" WholeBucket xml ["lifecycle"],
    "DeleteBucketLifecycle" "s3_delete_setting" WholeBucket ["lifecycle"],
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

/// The operation that the protocol calls so; `None`: it is not served.
pub(super) fn find(protocol: &str) -> Option<&'static Operation> {
    let mut all = OPERATIONS.iter();
    all.find(|operation| operation.protocol == protocol)
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
