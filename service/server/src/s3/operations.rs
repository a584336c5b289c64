//! The operations of S3 that are served: their names everywhere, and what they need.

use std::ffi::CStr;

use crate::grpc::methods::Name;

/// What an operation needs of the rights of its key, as far as the path tells.
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

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// As the protocol calls it.
    pub(super) protocol: &'static str,
    /// As metrics and reports do.
    pub(super) name: Name,
    /// Which right.
    pub(super) needs: Needs,
}

const fn c_name(ended: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(ended.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name has no zero inside"),
    }
}

macro_rules! operations {
    ($($protocol:literal $name:literal $needs:ident,)*) => {
        /// All of them.
        pub(super) const OPERATIONS: &[Operation] = &[$(Operation {
            protocol: $protocol,
            name: Name {
                text: $name,
                c: c_name(concat!($name, "\0")),
                full: concat!("S3/", $protocol),
            },
            needs: Needs::$needs,
        },)*];
    };
}

operations! {
    "ListBuckets" "s3_list_buckets" Login,
    "CreateBucket" "s3_create_bucket" WholeBucket,
    "DeleteBucket" "s3_delete_bucket" WholeBucket,
    "HeadBucket" "s3_head_bucket" Bucket,
    "GetBucketLocation" "s3_get_bucket_location" Bucket,
    "ListObjects" "s3_list_objects" Bucket,
    "ListObjectsV2" "s3_list_objects_v2" Bucket,
    "ListMultipartUploads" "s3_list_uploads" Bucket,
    "DeleteObjects" "s3_delete_objects" Bucket,
    "PutObject" "s3_put_object" Write,
    "CopyObject" "s3_copy_object" Write,
    "GetObject" "s3_get_object" Read,
    "HeadObject" "s3_head_object" Read,
    "DeleteObject" "s3_delete_object" Write,
    "CreateMultipartUpload" "s3_create_upload" Write,
    "UploadPart" "s3_upload_part" Write,
    "UploadPartCopy" "s3_upload_part_copy" Write,
    "CompleteMultipartUpload" "s3_complete_upload" Write,
    "AbortMultipartUpload" "s3_abort_upload" Write,
    "ListParts" "s3_list_parts" Write,
}

/// What stands for a request that was refused before its operation was known.
pub(super) const UNKNOWN: Name = Name {
    text: "s3_unknown",
    c: c"s3_unknown",
    full: "",
};

/// The operation that the protocol calls so; `None`: it is not served.
pub(super) fn find(protocol: &str) -> Option<&'static Operation> {
    let mut all = OPERATIONS.iter();
    all.find(|operation| operation.protocol == protocol)
}
