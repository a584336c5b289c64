//! The programs that watch block requests: `start`, `issue` and `done`, each in three flavours;
//! and `submit`, which notes whose I/O an io_uring submits. Disks that make no requests (device
//! mapper, md, zram) have two of their own: `bio_queue` and `bio_done`.
//!
//! Only one flavour is loaded. All offsets come from the loader (see `settings`); this code
//! knows no kernel version. It must stay short: it runs for every block request of the machine,
//! in the submitter's context (start), in any (issue), and in interrupts (done).
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![allow(
    internal_features,
    reason = "an atomic add without a result needs the intrinsic"
)]
#![allow(unsafe_op_in_unsafe_fn, reason = "the whole program is helper calls")]

mod bio;
mod classic;
mod maker;
mod maps;
mod raw;
mod read;
mod seek;
mod settings;
mod submission;
mod task;
mod track;

/// The kernel lets only GPL-compatible programs call the tracing helpers.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
