//! The peers.

use serde::Serialize;

/// Peer to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// Our engine, called in a process
    Engine,
    /// Our service, through gRPC
    Service,
    /// Our service through gRPC, its store a file on ext4
    ServiceExt4,
    /// Our service through gRPC, its store a file on xfs
    ServiceXfs,
    /// Our service, through S3
    ServiceS3,
    /// The service through S3 without MD5 (`s3-etag = "crc"`)
    ServiceS3Crc,
    /// The original engine
    Cannyls,
    /// The limit of the disk
    Fio,
    /// Files on ext4
    FilesExt4,
    /// Files on xfs
    FilesXfs,
    /// MinIO on xfs
    Minio,
    /// versitygw on xfs
    Versitygw,
}

impl Who {
    pub(super) const ALL: [Who; 12] = [
        Who::Engine,
        Who::Service,
        Who::ServiceExt4,
        Who::ServiceXfs,
        Who::ServiceS3,
        Who::ServiceS3Crc,
        Who::Cannyls,
        Who::Fio,
        Who::FilesExt4,
        Who::FilesXfs,
        Who::Minio,
        Who::Versitygw,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Who::Engine => "our engine",
            Who::Service => "our service",
            Who::ServiceExt4 => "our file on ext4",
            Who::ServiceXfs => "our file on xfs",
            Who::ServiceS3 => "our service, S3",
            Who::ServiceS3Crc => "the same without MD5",
            Who::Cannyls => "cannyls",
            Who::Fio => "fio",
            Who::FilesExt4 => "files on ext4",
            Who::FilesXfs => "files on xfs",
            Who::Minio => "MinIO on xfs",
            Who::Versitygw => "versitygw on xfs",
        }
    }

    pub(super) fn durability(self) -> &'static str {
        match self {
            Who::Engine
            | Who::Service
            | Who::ServiceExt4
            | Who::ServiceXfs
            | Who::ServiceS3
            | Who::ServiceS3Crc => "data and record on stable storage (synced)",
            Who::Cannyls => {
                "Storage::put, then Storage::journal_sync: one fdatasync for data and record, in no order"
            }
            Who::Fio => "the write's data on stable storage (fdatasync); there is no record",
            Who::FilesExt4 | Who::FilesXfs => {
                "a new file written through O_DIRECT, fsync, rename, fsync of the directory"
            }
            Who::Minio => {
                "as shipped: it syncs data and its metadata file; of renames it says nothing"
            }
            Who::Versitygw => "as shipped: it syncs nothing, and a power cut may lose the put",
        }
    }

    /// Keeps objects as users run it: no part of another, and no limit.
    pub(super) fn is_service(self) -> bool {
        !matches!(
            self,
            Who::Engine | Who::ServiceS3Crc | Who::Cannyls | Who::Fio
        )
    }

    /// Runs on a file system.
    pub(super) fn needs_files(self) -> bool {
        matches!(
            self,
            Who::ServiceExt4
                | Who::ServiceXfs
                | Who::FilesExt4
                | Who::FilesXfs
                | Who::Minio
                | Who::Versitygw
        )
    }
}
