//! The peers.

use serde::Serialize;

use super::server::{GARAGE, Kind, MINIO, S3S_FS, VERSITYGW, WEED, WEED_S3};
use crate::disks::StoreKind;
use crate::studies::watch::BESIDE;

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
    /// The service through S3, without MD5 (`s3-etag = "auto"`)
    ServiceS3Auto,
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
    /// Garage on xfs
    Garage,
    /// s3s-fs on xfs
    S3sFs,
    /// Ceph's BlueStore on the raw disk, one OSD, through librados
    Bluestore,
    /// SeaweedFS on xfs, by the HTTP of its volumes
    Seaweedfs,
    /// SeaweedFS on xfs, through S3
    SeaweedfsS3,
    /// The S3 server that --s3 names
    GivenS3,
}

impl Who {
    pub(super) const ALL: [Who; 18] = [
        Who::Engine,
        Who::Service,
        Who::ServiceExt4,
        Who::ServiceXfs,
        Who::ServiceS3,
        Who::ServiceS3Auto,
        Who::Cannyls,
        Who::Fio,
        Who::FilesExt4,
        Who::FilesXfs,
        Who::Minio,
        Who::Versitygw,
        Who::Garage,
        Who::S3sFs,
        Who::Bluestore,
        Who::Seaweedfs,
        Who::SeaweedfsS3,
        Who::GivenS3,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Who::Engine => "our engine",
            Who::Service => "our service",
            Who::ServiceExt4 => "our file on ext4",
            Who::ServiceXfs => "our file on xfs",
            Who::ServiceS3 => "our service, S3",
            Who::ServiceS3Auto => "the same without MD5",
            Who::Cannyls => "cannyls",
            Who::Fio => "fio",
            Who::FilesExt4 => "files on ext4",
            Who::FilesXfs => "files on xfs",
            Who::Minio => "MinIO on xfs",
            Who::Versitygw => "versitygw on xfs",
            Who::Garage => "Garage on xfs",
            Who::S3sFs => "s3s-fs on xfs",
            Who::Bluestore => "BlueStore",
            Who::Seaweedfs => "SeaweedFS on xfs",
            Who::SeaweedfsS3 => "SeaweedFS on xfs, S3",
            Who::GivenS3 => "the S3 server given",
        }
    }

    pub(super) fn durability(self) -> &'static str {
        match self {
            Who::Engine
            | Who::Service
            | Who::ServiceExt4
            | Who::ServiceXfs
            | Who::ServiceS3
            | Who::ServiceS3Auto => "data and record on stable storage (synced)",
            Who::Cannyls => {
                "Storage::put, then Storage::journal_sync: one fdatasync for data and record, in no order"
            }
            Who::Fio => "the write's data on stable storage (O_DSYNC); there is no record",
            Who::FilesExt4 | Who::FilesXfs => {
                "a new file written through O_DIRECT, fsync, rename, fsync of the directory"
            }
            Who::Minio => {
                "as shipped: it syncs data and its metadata file; of renames it says nothing"
            }
            Who::Versitygw | Who::Garage | Who::S3sFs => {
                "as shipped: it syncs nothing, and a power cut may lose the put"
            }
            Who::Bluestore => {
                "as shipped: data and its database's record on stable storage; one copy"
            }
            Who::Seaweedfs => {
                "with fsync=true: the volume's data synced; its index is rebuilt from that"
            }
            Who::SeaweedfsS3 => {
                "data with fsync (fs.configure); the filer's database of names syncs nothing"
            }
            Who::GivenS3 => "whatever it does; it is not ours",
        }
    }

    /// Keeps objects as users run it: no part of another, and no limit.
    pub(super) fn is_service(self) -> bool {
        !matches!(
            self,
            Who::Engine | Who::ServiceS3Auto | Who::Cannyls | Who::Fio | Who::GivenS3
        )
    }

    /// A program of others that keeps objects in a directory.
    pub(super) fn program(self) -> Option<&'static Kind> {
        match self {
            Who::Minio => Some(&MINIO),
            Who::Versitygw => Some(&VERSITYGW),
            Who::Garage => Some(&GARAGE),
            Who::S3sFs => Some(&S3S_FS),
            Who::Seaweedfs => Some(&WEED),
            Who::SeaweedfsS3 => Some(&WEED_S3),
            _ => None,
        }
    }

    /// Disk of the lab that it runs on.
    pub(super) fn disk(self) -> StoreKind {
        match self {
            Who::ServiceExt4 | Who::FilesExt4 => StoreKind::Ext4,
            Who::ServiceXfs | Who::FilesXfs => StoreKind::Xfs,
            _ if self.program().is_some() => StoreKind::Xfs,
            _ => StoreKind::Raw,
        }
    }

    /// A file in which it keeps what it knows of objects, none of their data.
    pub(super) fn is_own(self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        match self {
            Who::Minio => name == "xl.meta" || path.contains("/.minio.sys/"),
            Who::Garage => path.contains("/meta/"),
            Who::S3sFs => name.starts_with(".bucket-"),
            // Data lies in files of volumes; everything else is an index, the filer's database or a log.
            Who::Seaweedfs | Who::SeaweedfsS3 => !name.ends_with(".dat"),
            _ => path == BESIDE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_hold_no_data_are_known() {
        for (who, own, data) in [
            (
                Who::Minio,
                "/x/data/lumps/01/xl.meta",
                "/x/data/lumps/01/ab/part.1",
            ),
            (
                Who::Minio,
                "/x/data/.minio.sys/format.json",
                "/x/data/lumps/x",
            ),
            (
                Who::Garage,
                "/x/meta/db.lmdb/data.mdb",
                "/x/data/ab/cd/abcd",
            ),
            (
                Who::S3sFs,
                "/x/data/.bucket-b.object-o.internal.json",
                "/x/data/lumps/1",
            ),
            (Who::Seaweedfs, "/x/data/1.idx", "/x/data/1.dat"),
            (Who::Service, BESIDE, "/dev/loop1"),
            (Who::FilesXfs, BESIDE, "/x/0/meta/1"),
        ] {
            assert!(who.is_own(own) && !who.is_own(data), "{who:?}");
        }
    }
}
