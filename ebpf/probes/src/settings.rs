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
/// `io_kiocb.cqe.user_data`, or `io_kiocb.user_data`.
#[unsafe(no_mangle)]
pub static IO_USER_DATA: Global<u32> = Global::new(0);
/// `request_queue.disk`.
#[unsafe(no_mangle)]
pub static QUEUE_DISK: Global<u32> = Global::new(0);
/// `gendisk.major`; `first_minor` follows it.
#[unsafe(no_mangle)]
pub static DISK_MAJOR: Global<u32> = Global::new(0);

// Classic flavour: offsets in the records, from tracefs. The start record is that of
// block_io_start or block_getrq.

/// `dev` in all three.
#[unsafe(no_mangle)]
pub static TP_DEV: Global<u32> = Global::new(8);
/// `sector` in all three.
#[unsafe(no_mangle)]
pub static TP_SECTOR: Global<u32> = Global::new(16);
/// `nr_sector` in all three.
#[unsafe(no_mangle)]
pub static TP_SECTORS: Global<u32> = Global::new(24);
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
/// `user_data` of the io_uring's submit record.
#[unsafe(no_mangle)]
pub static TP_USER_DATA: Global<u32> = Global::new(24);
