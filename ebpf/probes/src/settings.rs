//! What the loader sets before the programs are loaded. The verifier sees constants.

use aya_ebpf::Global;

/// The service's process id in its own pid namespace.
#[unsafe(no_mangle)]
pub static OWN_TGID: Global<u32> = Global::new(0);
/// Device of the service's pid namespace, as the kernel encodes it.
#[unsafe(no_mangle)]
pub static NS_DEV: Global<u64> = Global::new(0);
/// Inode of the service's pid namespace; 0: use the global process ids.
#[unsafe(no_mangle)]
pub static NS_INO: Global<u64> = Global::new(0);

/// So many entries of the table of requests in flight may stay when their request has completed.
#[unsafe(no_mangle)]
pub static KEEP: Global<u32> = Global::new(0);

/// `task_struct.flags`, from BTF with every flavour; 0: not known, kernel threads are then known by
/// their names only.
#[unsafe(no_mangle)]
pub static TASK_FLAGS: Global<u32> = Global::new(0);

/// For tests: `done` overlooks about one completion in so many; 0: none.
#[unsafe(no_mangle)]
pub static SKIP_DONE: Global<u32> = Global::new(0);

// Raw flavours: offsets in kernel structures, from BTF.

/// `request.q`.
#[unsafe(no_mangle)]
pub static RQ_QUEUE: Global<u32> = Global::new(0);
/// `request.cmd_flags`.
#[unsafe(no_mangle)]
pub static RQ_FLAGS: Global<u32> = Global::new(0);
/// `request.__data_len`.
#[unsafe(no_mangle)]
pub static RQ_LEN: Global<u32> = Global::new(0);
/// `request.__sector`.
#[unsafe(no_mangle)]
pub static RQ_SECTOR: Global<u32> = Global::new(0);
/// `request.start_time_ns`; 0: the kernel has none.
#[unsafe(no_mangle)]
pub static RQ_BORN: Global<u32> = Global::new(0);
/// `request.mq_hctx`; 0: not known.
#[unsafe(no_mangle)]
pub static RQ_HCTX: Global<u32> = Global::new(0);
/// `blk_mq_hw_ctx.queue_num`.
#[unsafe(no_mangle)]
pub static HCTX_NUMBER: Global<u32> = Global::new(0);
/// `io_kiocb.cqe.user_data`, or `io_kiocb.user_data`.
#[unsafe(no_mangle)]
pub static IO_USER_DATA: Global<u32> = Global::new(0);
/// `io_kiocb.opcode`.
#[unsafe(no_mangle)]
pub static IO_OPCODE: Global<u32> = Global::new(0);
/// Which argument of `io_uring_queue_async_work` is the request.
#[unsafe(no_mangle)]
pub static PUNTED_ARGUMENT: Global<u32> = Global::new(0);
/// `request.rq_disk`; 0: the kernel has none, the disk is that of the queue.
#[unsafe(no_mangle)]
pub static RQ_DISK: Global<u32> = Global::new(0);
/// `request.bio`.
#[unsafe(no_mangle)]
pub static RQ_BIO: Global<u32> = Global::new(0);
/// 1: until they are sent, requests are known by their bios.
#[unsafe(no_mangle)]
pub static BY_BIO: Global<u32> = Global::new(0);
/// 1: the status of a completion is an errno; 0: a `blk_status_t`.
#[unsafe(no_mangle)]
pub static DONE_ERRNO: Global<u32> = Global::new(0);
/// 0: this kernel does not show when requests are made.
#[unsafe(no_mangle)]
pub static HAS_START: Global<u32> = Global::new(1);
/// `bio.bi_next`.
#[unsafe(no_mangle)]
pub static BIO_NEXT: Global<u32> = Global::new(0);
/// `bio.bi_opf`.
#[unsafe(no_mangle)]
pub static BIO_FLAGS: Global<u32> = Global::new(0);
/// `bio.bi_iter.bi_sector`.
#[unsafe(no_mangle)]
pub static BIO_SECTOR: Global<u32> = Global::new(0);
/// `bio.bi_iter.bi_size`.
#[unsafe(no_mangle)]
pub static BIO_BYTES: Global<u32> = Global::new(0);
/// `bio.bi_status`.
#[unsafe(no_mangle)]
pub static BIO_STATUS: Global<u32> = Global::new(0);
/// `bio.bi_blkg`; 0: the kernel keeps no account of cgroups.
#[unsafe(no_mangle)]
pub static BIO_GROUP: Global<u32> = Global::new(0);
/// `blkcg_gq.blkcg`.
#[unsafe(no_mangle)]
pub static GROUP_BLKCG: Global<u32> = Global::new(0);
/// `blkcg.css.cgroup`.
#[unsafe(no_mangle)]
pub static BLKCG_CGROUP: Global<u32> = Global::new(0);
/// `cgroup.root`.
#[unsafe(no_mangle)]
pub static CGROUP_ROOT: Global<u32> = Global::new(0);
/// `cgroup_root.hierarchy_id`; 0 there: version 2.
#[unsafe(no_mangle)]
pub static ROOT_HIERARCHY: Global<u32> = Global::new(0);
/// `cgroup.kn`.
#[unsafe(no_mangle)]
pub static CGROUP_NODE: Global<u32> = Global::new(0);
/// `kernfs_node.id`.
#[unsafe(no_mangle)]
pub static NODE_ID: Global<u32> = Global::new(0);
/// `bio.bi_disk`, or `bio.bi_bdev`.
#[unsafe(no_mangle)]
pub static BIO_DISK: Global<u32> = Global::new(0);
/// `block_device.bd_disk`; 0: the bio names the disk itself.
#[unsafe(no_mangle)]
pub static BDEV_DISK: Global<u32> = Global::new(0);
/// `request_queue.disk`.
#[unsafe(no_mangle)]
pub static QUEUE_DISK: Global<u32> = Global::new(0);
/// `gendisk.major`; `first_minor` follows it.
#[unsafe(no_mangle)]
pub static DISK_MAJOR: Global<u32> = Global::new(0);

// Classic flavour: offsets in the records, from tracefs. The start record is that of
// block_io_start or block_getrq.

/// `dev` in all of them.
#[unsafe(no_mangle)]
pub static TP_DEV: Global<u32> = Global::new(8);
/// `sector` in all of them.
#[unsafe(no_mangle)]
pub static TP_SECTOR: Global<u32> = Global::new(16);
/// `nr_sector` in all of them.
#[unsafe(no_mangle)]
pub static TP_SECTORS: Global<u32> = Global::new(24);
/// `old_dev` of a bio that goes on to another disk.
#[unsafe(no_mangle)]
pub static TP_OLD_DEV: Global<u32> = Global::new(0);
/// `rwbs` of start.
#[unsafe(no_mangle)]
pub static START_RWBS: Global<u32> = Global::new(32);
/// `rwbs` of issue.
#[unsafe(no_mangle)]
pub static ISSUE_RWBS: Global<u32> = Global::new(32);
/// `rwbs` of done.
#[unsafe(no_mangle)]
pub static DONE_RWBS: Global<u32> = Global::new(32);
/// `error` of done.
#[unsafe(no_mangle)]
pub static DONE_ERROR: Global<u32> = Global::new(28);
/// `rwbs` of a bio that is queued.
#[unsafe(no_mangle)]
pub static BIO_QUEUE_RWBS: Global<u32> = Global::new(28);
/// `rwbs` of a bio that is done.
#[unsafe(no_mangle)]
pub static BIO_DONE_RWBS: Global<u32> = Global::new(32);
/// `error` of a bio that is done.
#[unsafe(no_mangle)]
pub static BIO_DONE_ERROR: Global<u32> = Global::new(28);
/// `user_data` of the io_uring's submit record.
#[unsafe(no_mangle)]
pub static TP_USER_DATA: Global<u32> = Global::new(24);
/// `opcode` of the io_uring's record of an I/O for a worker; 0: it has none.
#[unsafe(no_mangle)]
pub static TP_OPCODE: Global<u32> = Global::new(0);
