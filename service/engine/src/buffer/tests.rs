//! Alignment, recycling and the budget.

use super::memory::{HUGE_PAGE, MAX_TAIL, TAIL_STEP};
use super::*;

const ANY: Payer = payer(0, 0);

const fn payer(login: u32, connection: u32) -> Payer {
    Payer { login, connection }
}

#[test]
fn buffers_are_aligned_zeroed_and_recycled() {
    let pool = BufferPool::new(512);
    for len in [1, 512, 4097, 70_000, 1 << 20, 3 << 20] {
        let mut buf = pool.zeroed(len);
        assert_eq!(buf.len(), len);
        assert_eq!(buf.as_ptr().align_offset(4096), 0);
        assert!(buf.iter().all(|&byte| byte == 0));
        buf.fill(7);
        let at = buf.as_ptr();
        drop(buf);
        let again = pool.zeroed(len);
        assert_eq!(again.as_ptr(), at);
        assert!(again.iter().all(|&byte| byte == 0));
    }
}

#[test]
fn the_pool_is_bounded() {
    let pool = BufferPool::new(4096);
    let many: Vec<_> = (0..100).map(|_| pool.get(2 << 20)).collect();
    drop(many);
    assert_eq!(pool.lock().free_bytes, POOL_LIMIT);
}

#[test]
fn sizes_that_are_not_asked_for_make_room_for_those_that_are() {
    const MIB: usize = 1 << 20;
    let pool = BufferPool::new(4096);
    let many = |len: usize, count| -> Vec<_> { (0..count).map(|_| pool.get(len)).collect() };
    let free = || pool.lock().free_bytes / MIB;
    drop((many(4 * MIB, 10), many(2 * MIB, 10)));
    assert_eq!(free(), 60, "there is room for both");
    let used = many(2 * MIB, 50);
    assert_eq!(free(), 28, "3 of 4 MiB went, none before 100 were in use");
    let more = many(2 * MIB, 50);
    assert_eq!(free(), 0);
    drop((used, more));
    assert_eq!(free(), POOL_LIMIT / MIB);
}

#[test]
fn halves_go_back_together() {
    const LEN: usize = 1 << 20;
    let pool = BufferPool::with_budget(4096, 2 * LEN as u64, u64::MAX);
    let [mut one, mut other] = pool.get_for_put(2 * LEN).unwrap().halves(LEN - 512);
    one.fill(1);
    other.fill(2);
    assert!(one.iter().all(|&byte| byte == 1) && one.len() == LEN - 512);
    assert_eq!(one.as_ptr().align_offset(4096), 0);
    assert_eq!(other.as_ptr() as usize - one.as_ptr() as usize, LEN);
    one.set_len(LEN);
    drop(one);
    assert_eq!((pool.used(), pool.lock().free_bytes), (2 * LEN as u64, 0));
    assert!(other.iter().all(|&byte| byte == 2));
    drop(other);
    assert_eq!((pool.used(), pool.lock().free_bytes), (0, 2 * LEN));
    assert_eq!(pool.lock().out, 0);
}

#[test]
fn lumps_stay_within_the_budget_and_puts_leave_room_for_gets() {
    let pool = BufferPool::with_budget(4096, 40_960, u64::MAX);
    let puts: Vec<_> = std::iter::from_fn(|| pool.get_for_put(4096).ok()).collect();
    assert_eq!((puts.len(), pool.used()), (7, 7 * 4096));
    let refused = pool.get_for_put(1).unwrap_err();
    let Error::BuffersExhausted {
        needed,
        used,
        budget,
        ..
    } = refused
    else {
        panic!("{refused}");
    };
    assert_eq!((needed, used, budget), (4096, 7 * 4096, 40_960));
    let woken = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = Arc::clone(&woken);
    pool.set_reader(Waker::new(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }));
    let woken = || woken.load(std::sync::atomic::Ordering::SeqCst);
    let first = pool.reserve(ANY, 8192).unwrap();
    let second = pool.reserve(ANY, 4096).unwrap();
    assert_eq!(pool.used(), 40_960);
    drop(pool.get(1 << 20));
    assert_eq!((pool.used(), woken()), (40_960, 0), "not a lump's");
    assert!(pool.reserve(ANY, 1).is_err());
    // Less than reserved: the rest comes back with the buffer's use.
    let read = first.into_buf(100);
    assert_eq!((pool.used(), read.len()), (9 * 4096, 100));
    drop(second);
    assert_eq!((pool.used(), woken()), (8 * 4096, 1));
    drop((read, puts));
    assert_eq!((pool.used(), woken()), (0, 1));
    // Larger than all there is: alone.
    let large = pool.reserve(ANY, 1 << 20).unwrap();
    assert!(pool.reserve(ANY, 1).is_err() && pool.get_for_put(1).is_err());
    drop(large);
    let large = pool.get_for_put(1 << 20).unwrap();
    assert!(pool.reserve(ANY, 1).is_err());
    drop(large);
    assert_eq!((pool.used(), woken()), (0, 3));
}

#[test]
fn gets_stay_within_their_part() {
    let pool = BufferPool::with_budget(4096, 40_960, 8192);
    let first = pool.reserve(ANY, 4096).unwrap();
    let second = pool.reserve(ANY, 4096).unwrap();
    assert!(pool.reserve(ANY, 1).is_err());
    assert_eq!((pool.used(), pool.used_by_gets()), (8192, 8192));
    let put = pool.get_for_put(4096).unwrap();
    assert_eq!((pool.used(), pool.used_by_gets()), (12_288, 8192));
    drop((first, second));
    // Larger than the part of gets: alone among gets.
    let large = pool.reserve(ANY, 16_384).unwrap();
    assert!(pool.reserve(ANY, 1).is_err());
    drop((large, put));
    assert_eq!(pool.used(), 0);
}

#[test]
fn a_payer_leaves_a_quarter_to_others_and_small_gets_have_a_reserve() {
    let (greedy, other) = (payer(1, 0), payer(2, 0));
    let pool = BufferPool::with_budget(4096, 64 << 20, 16 << 20);
    let mut held = Vec::new();
    let share = loop {
        match pool.reserve(greedy, 2 << 20) {
            Ok(reserved) => held.push(reserved),
            Err(short) => break short,
        }
    };
    assert_eq!((held.len(), share), (6, Short::Share));
    assert!(!pool.has_share(greedy, 1) && pool.has_share(other, 16 << 20));
    held.push(pool.reserve(other, 4 << 20).unwrap());
    let full = pool.reserve(other, 2 << 20).unwrap_err();
    assert_eq!(full, Short::Memory);
    // A sixteenth of it, in pieces of 128 KiB.
    let small: Vec<_> = std::iter::from_fn(|| pool.reserve(greedy, 68 << 10).ok()).collect();
    assert_eq!(small.len(), 8);
    assert!(pool.reserve_small(1).is_none());
    assert_eq!(pool.used_by_gets(), 17 << 20);
    drop((held, small));
    assert_eq!((pool.used(), pool.used_by_gets()), (0, 0));
    // One get may have more than the share.
    let large = pool.reserve(greedy, 20 << 20).unwrap();
    assert!(!pool.has_share(greedy, 1));
    drop(large);
    assert!(pool.lock().held_by.is_empty());
}

#[test]
fn a_connection_leaves_a_third_of_its_logins_share_to_the_others() {
    let (greedy, other) = (payer(1, 1), payer(1, 2));
    let pool = BufferPool::with_budget(4096, 64 << 20, 16 << 20);
    let take = |payer| std::iter::from_fn(|| pool.reserve(payer, 2 << 20).ok()).collect();
    let held: [Vec<_>; 2] = [greedy, other].map(take);
    assert_eq!(held.each_ref().map(Vec::len), [4, 2]);
}

#[test]
fn who_finds_its_share_taken_is_woken_by_each_buffer_that_comes_back() {
    let payer = payer(1, 0);
    let pool = BufferPool::with_budget(4096, 64 << 20, 16 << 20);
    let woken = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = Arc::clone(&woken);
    pool.set_reader(Waker::new(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }));
    let woken = || woken.load(std::sync::atomic::Ordering::SeqCst);
    let mut held: Vec<_> = std::iter::from_fn(|| pool.reserve(payer, 2 << 20).ok()).collect();
    // It asks again after each wake, as the owner thread does, until there is enough.
    for wake in 1..=2 {
        held.pop();
        assert_eq!(woken(), wake);
        assert_eq!(pool.has_share(payer, 4 << 20), wake == 2);
    }
    held.pop();
    assert_eq!(woken(), 2, "nobody waits any more");
}

#[test]
fn large_buffers_waste_little_and_lie_on_huge_pages() {
    const MIB: usize = 1 << 20;
    let block = 4096;
    for (len, want) in [
        (MIB + block, 2 * MIB),
        (2 * MIB - 1, 2 * MIB),
        (2 * MIB + block, 2 * MIB + TAIL_STEP),
        (4 * MIB + block, 4 * MIB + TAIL_STEP),
        (4 * MIB + MAX_TAIL, 4 * MIB + MAX_TAIL),
        (4 * MIB + MAX_TAIL + 1, 6 * MIB),
        (MIB - 1, 2 * MIB),
        (MIB / 2 + 1, 2 * MIB),
        (MIB / 2, MIB / 2),
        (65_537, 2 * TAIL_STEP),
        (4097, 8192),
    ] {
        assert_eq!(capacity_for(len, 4096), want, "{len}");
    }
    let pool = BufferPool::new(4096);
    let mut buf = pool.get(4 * MIB + block);
    buf.fill(1);
    assert_eq!(buf.as_ptr().align_offset(HUGE_PAGE), 0);
}

#[test]
fn who_waits_for_memory_hears_of_it() {
    let pool = BufferPool::with_budget(4096, 8192, u64::MAX);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || {
                for _ in 0..200 {
                    loop {
                        let seen = pool.releases();
                        match pool.get_for_put(4096) {
                            Ok(buf) => break drop(buf),
                            Err(_) => pool.wait_for_release(seen),
                        }
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(pool.used(), 0);
}

#[test]
fn lent_buffers_are_part_of_what_the_pool_keeps() {
    const LEN: usize = 4 << 20;
    let pool = BufferPool::with_budget(4096, 1, 1);
    let many = || -> Vec<_> { (0..40).map(|_| pool.untouched(LEN)).collect() };
    let kept = |pool: &BufferPool| {
        let state = pool.lock();
        (state.free_bytes, state.lent)
    };
    drop(many());
    assert_eq!(kept(&pool), (POOL_LIMIT, 0));
    let lent = many();
    assert_eq!(kept(&pool), (0, POOL_LIMIT));
    drop(pool.get(LEN));
    assert_eq!(kept(&pool), (0, POOL_LIMIT), "nothing more is kept");
    assert_eq!((pool.used(), pool.releases()), (0, 0), "they do not count");
    drop(lent);
    assert_eq!(kept(&pool), (POOL_LIMIT, 0));
}
