//! Whole images: a store that was in use is altered in places that the input chooses, opened,
//! used, closed and opened again. Records are written with their checksums, so that what stands
//! behind the checksums is reached too.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use lumpscope_engine::clock::virtual_time;
use lumpscope_engine::device::sim::{SimDisk, SimOptions, blank_image};
use lumpscope_engine::format::record::{EmbeddedData, Record};
use lumpscope_engine::format::{Header, Portion};
use lumpscope_engine::units::{BlockCount, BlockIndex, BlockSize, ByteLen};
use lumpscope_engine::{
    Driver, Durability, LumpId, LumpRange, Placement, RequestCtx, Store, StoreOptions,
};

/// Steps of the store that no input may need.
const STEP_LIMIT: u32 = 50_000;
/// Alterations of one input.
const ALTERATIONS: usize = 64;
/// Ids of the lumps that are put and looked for.
const IDS: u128 = 12;

/// Block size, blocks of the ring, unit of the disk.
const SHAPES: [(u16, u64, u32); 4] = [
    (512, 8, 512),
    (512, 40, 512),
    (1536, 4, 512),
    (4096, 2, 4096),
];
const DATA_BLOCKS: u64 = 24;

/// The input, taken from the front; zeros behind its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn number(&mut self, bytes: u32) -> u64 {
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// A number below `limit`; 0 when that is 0.
    fn below(&mut self, limit: usize) -> usize {
        let number = self.number(3);
        usize::try_from(number.checked_rem(limit as u64).unwrap_or(0)).unwrap_or(0)
    }
}

pub(crate) fn image(data: &[u8]) {
    let mut input = Input(data);
    let choice = input.byte();
    let shape = SHAPES[usize::from(choice) % SHAPES.len()];
    let mut image = if choice & 0x80 == 0 {
        used_image(shape)
    } else {
        new_image(shape)
    };
    alter(&mut image, shape, &mut input);
    let options = SimOptions {
        seed: u64::from(choice),
        unit: shape.2,
        is_block_device: choice & 0x40 == 0,
        ..SimOptions::default()
    };
    let disk = SimDisk::new(&image, options);
    salvage(&disk, &image);
    for round in 0..2 {
        if !use_store(&disk, round, choice & 0x20 != 0, false) {
            // What salvage mode has repaired opens without it.
            if use_store(&disk, round, true, true) {
                assert!(use_store(&disk, round, false, false), "repaired in vain");
            }
            return;
        }
    }
}

/// Opens the store in salvage mode without writing, which changes nothing on the disk.
fn salvage(disk: &SimDisk, image: &[u8]) {
    let options = StoreOptions {
        read_only: true,
        salvage: true,
        ..StoreOptions::new("fuzz")
    };
    let _time = virtual_time(disk.now_ns());
    if let Ok((store, _)) = Store::open_stepped(disk.device(), options) {
        let report = store.info().salvage.as_ref();
        assert!(report.is_some(), "salvage mode reports");
    }
    let size = image.len() as u64;
    assert!(
        disk.bytes(0..size) == image,
        "read-only salvage has written"
    );
}

fn new_image((block_size, ring_blocks, _): (u16, u64, u32)) -> Vec<u8> {
    let block_size = BlockSize::new(block_size).expect("one of SHAPES");
    blank_image(block_size, ring_blocks, DATA_BLOCKS, [7; 16])
}

/// A store that has been in use, made once a shape.
fn used_image(shape: (u16, u64, u32)) -> Vec<u8> {
    type Made = Mutex<Vec<((u16, u64, u32), Vec<u8>)>>;
    static MADE: Made = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, image)) = made.iter().find(|(of, _)| *of == shape) {
        return image.clone();
    }
    let options = SimOptions {
        unit: shape.2,
        ..SimOptions::default()
    };
    let disk = SimDisk::new(&new_image(shape), options);
    for round in 0..3 {
        assert!(use_store(&disk, round, false, false), "a sound store opens");
    }
    let image = disk.bytes(0..disk.size());
    made.push((shape, image.clone()));
    image
}

/// Changes the image where and as the input says.
fn alter(
    image: &mut Vec<u8>,
    (block_size, ring_blocks, _): (u16, u64, u32),
    input: &mut Input<'_>,
) {
    let block = usize::from(block_size);
    let ring = 2 * block;
    let ring_len = block * usize::try_from(ring_blocks).unwrap_or(0);
    // Where the next record goes.
    let mut cursor = 0;
    for _ in 0..ALTERATIONS {
        if input.0.is_empty() {
            break;
        }
        match input.byte() % 8 {
            0 => {
                let at = input.below(image.len());
                write(image, at, &[input.byte()]);
            }
            1 => {
                let at = input.below(ring + ring_len);
                let bytes = input.number(8).to_be_bytes();
                write(image, at, &bytes);
            }
            2..5 => {
                let record = record(input);
                let bytes = if cursor + record.len() + 5 <= ring_len {
                    record
                } else {
                    Record::GoToFront.to_bytes()
                };
                write(image, ring + cursor, &bytes);
                cursor += bytes.len();
                write(image, ring + cursor, &Record::EndOfRecords.to_bytes());
            }
            5 => cursor = input.below(ring_len),
            6 => {
                let head = input.number(2);
                write(image, block, &head.to_be_bytes());
            }
            _ if input.byte() & 1 == 0 => resize(image, input),
            _ => {
                let len = input.below(image.len());
                image.truncate(len / 512 * 512);
            }
        }
    }
}

fn write(image: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = image.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Writes a header with other sizes.
fn resize(image: &mut [u8], input: &mut Input<'_>) {
    let Ok(mut header) = Header::decode(image) else {
        return;
    };
    match input.byte() % 3 {
        0 => header.journal_len = ByteLen(input.number(5)),
        1 => header.data_len = ByteLen(input.number(6)),
        _ => {
            if let Ok(size) = BlockSize::new(512 * u16::from(input.byte() % 127 + 1)) {
                header.block_size = size;
            }
        }
    }
    write(image, 0, &header.encode());
}

/// Any record with a right checksum.
fn record(input: &mut Input<'_>) -> Vec<u8> {
    let id = LumpId(u128::from(input.byte()) % (IDS + 2));
    match input.byte() % 6 {
        0 => Record::EndOfRecords.to_bytes(),
        1 => Record::GoToFront.to_bytes(),
        2 => {
            let bytes = vec![input.byte(); usize::from(input.byte())];
            match EmbeddedData::new(&bytes) {
                Ok(data) => Record::Embed { id, data }.to_bytes(),
                Err(_) => Vec::new(),
            }
        }
        3 => Record::Delete { id }.to_bytes(),
        4 => {
            let end = LumpId(id.0 + u128::from(input.byte()));
            Record::DeleteRange { start: id, end }.to_bytes()
        }
        _ => {
            let width = 1 + u32::from(input.byte() % 5);
            let start = BlockIndex(input.number(width));
            let len = BlockCount(u16::try_from(input.number(1)).unwrap_or(0));
            match Portion::new(start, len) {
                Ok(portion) => Record::Put { id, portion }.to_bytes(),
                Err(_) => Vec::new(),
            }
        }
    }
}

/// Opens the store and uses everything it has; whatever that answers is right, if it answers.
/// False: it could not be opened.
fn use_store(disk: &SimDisk, round: u64, abandon: bool, salvage: bool) -> bool {
    let options = StoreOptions {
        queue_limit: 64,
        salvage,
        ..StoreOptions::new("fuzz")
    };
    let opened = {
        let _time = virtual_time(disk.now_ns());
        Store::open_stepped(disk.device(), options)
    };
    let Ok((store, mut driver)) = opened else {
        return false;
    };
    let asked = Rc::new(Cell::new(0));
    let answered = Arc::new(Mutex::new(0));
    submit_all(&store, disk, round, &asked, &answered);
    let done = || *answered.lock().unwrap_or_else(PoisonError::into_inner) == asked.get();
    run(disk, &mut driver, done);
    assert!(done(), "a request was never answered");
    if !abandon {
        driver.begin_close();
        run(disk, &mut driver, || false);
    }
    assert_eq!(disk.violations(), Vec::<String>::new());
    true
}

/// Steps until `done` or closed.
fn run(disk: &SimDisk, driver: &mut Driver, done: impl Fn() -> bool) {
    for _ in 0..STEP_LIMIT {
        if !driver.step(disk.now_ns()) || done() {
            return;
        }
        if !disk.advance() {
            // Nothing but time can make it go on.
            disk.advance_to(disk.now_ns() + 1_000_000_000);
        }
    }
    panic!("the store hangs");
}

fn submit_all(
    store: &Store,
    disk: &SimDisk,
    round: u64,
    asked: &Rc<Cell<u64>>,
    answered: &Arc<Mutex<u64>>,
) {
    let _time = virtual_time(disk.now_ns());
    let ctx = RequestCtx::default();
    let tell = || {
        let answered = Arc::clone(answered);
        move || *answered.lock().unwrap_or_else(PoisonError::into_inner) += 1
    };
    let count = |accepted: bool| asked.set(asked.get() + u64::from(accepted));
    for number in 0..IDS {
        let id = LumpId(number);
        let told = tell();
        count(
            store
                .submit_get(ctx, id, Box::new(move |_, _| told()))
                .is_ok(),
        );
        let told = tell();
        count(
            store
                .submit_head(ctx, id, Box::new(move |_, _| told()))
                .is_ok(),
        );
        let len = 37 * (u64::try_from(number).unwrap_or(0) + round) % 1500;
        let placement = if len.is_multiple_of(3) && len < 300 {
            Placement::Embedded
        } else {
            Placement::Data
        };
        if let Ok(mut buf) = store.lump_buf(len)
            && buf.extend(&vec![0x5A; buf.len()]).is_ok()
        {
            let told = tell();
            let on_done = Box::new(move |_, _| told());
            let durability = Durability::Synced;
            count(
                store
                    .submit_put(ctx, id, buf, placement, durability, on_done)
                    .is_ok(),
            );
        }
    }
    let told = tell();
    let (start, end) = (LumpId(2), LumpId(4));
    let on_done = Box::new(move |_, _| told());
    count(
        store
            .submit_delete_range(ctx, start, end, Durability::Synced, on_done)
            .is_ok(),
    );
    let told = tell();
    let on_done = Box::new(move |_, _| told());
    count(
        store
            .submit_delete(ctx, LumpId(5), Durability::Journaled, on_done)
            .is_ok(),
    );
    let told = tell();
    count(store.submit_sync(Box::new(move |_, _| told())).is_ok());
    let told = tell();
    let on_done = Box::new(move |_, _| told());
    count(store.submit_list(ctx, LumpRange::ALL, 100, on_done).is_ok());
    let told = tell();
    let on_done = Box::new(move |_, _| told());
    count(store.submit_usage(ctx, LumpRange::ALL, on_done).is_ok());
}
