//! I/O at open: one waited for, or a stream of reads with the next piece under way.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::buffer::{AlignedBuf, BufferPool};
use crate::clock::monotonic_ns;
use crate::declaration::{IoOp, IoPurpose};
use crate::device::{Completion, Device, Io, Wait};
use crate::error::Error;
use crate::format::Geometry;
use crate::format::record::{END_OF_RECORDS_LEN, MAX_RECORD_LEN};
use crate::format::seal::SEALED_END_LEN;
use crate::health::{bound_ns, hang_reason};
use crate::storage::journal::{FoundEnd, PAGE};
use crate::units::{BlockSize, RingPosition, to_usize};

/// Bytes of a stream read at a time. Two such pieces are in memory, one in use and one on its way.
const PIECE: u64 = 2 * 1024 * 1024;

/// The smallest memory alignment that suits a device and a block size.
pub(crate) fn memory_alignment(device: &Device) -> usize {
    let unit = usize::try_from(device.alignment).unwrap_or(BlockSize::MIN.get().into());
    device.memory_alignment.max(unit).max(1).next_power_of_two()
}

/// I/Os that are waited for.
pub(crate) struct BlockingIo<'a> {
    device: &'a mut Device,
    pool: &'a Arc<BufferPool>,
    next_token: &'a mut u64,
    /// Ended, and nobody has asked for them yet.
    ended: Vec<Completion>,
    /// An I/O that takes longer fails; zero: none does.
    bound: Duration,
}

/// An I/O that was started.
struct Started {
    token: u64,
    op: IoOp,
    offset: u64,
    len: u64,
}

impl<'a> BlockingIo<'a> {
    pub(crate) fn new(
        device: &'a mut Device,
        pool: &'a Arc<BufferPool>,
        next_token: &'a mut u64,
    ) -> Self {
        Self {
            device,
            pool,
            next_token,
            ended: Vec::new(),
            bound: Duration::ZERO,
        }
    }

    /// I/Os that take longer than this fail with ETIMEDOUT, and stay in flight; zero: none does.
    pub(crate) fn within(self, bound: Duration) -> Self {
        Self { bound, ..self }
    }

    pub(crate) fn device(&self) -> &Device {
        self.device
    }

    fn start(&mut self, op: IoOp, offset: u64, buf: Option<AlignedBuf>) -> Started {
        let token = *self.next_token;
        *self.next_token += 1;
        let purpose = match op {
            IoOp::Flush => IoPurpose::Flush,
            IoOp::Read => IoPurpose::Recovery,
            // A repair of the journal, its headers, or the claim.
            IoOp::Write => IoPurpose::Journal,
        };
        let io = Io {
            token,
            op,
            forced: false,
            offset,
            buf,
            purpose,
            requests: Vec::new(),
        };
        let len = io.len();
        self.device.backend.submit(io);
        Started {
            token,
            op,
            offset,
            len,
        }
    }

    fn finish(&mut self, started: &Started) -> Result<Option<AlignedBuf>, Error> {
        let until_ns = monotonic_ns().saturating_add(bound_ns(self.bound));
        loop {
            let mine = self.ended.iter().position(|end| end.token == started.token);
            if let Some(at) = mine {
                let completion = self.ended.swap_remove(at);
                let Started {
                    op, offset, len, ..
                } = *started;
                completion
                    .result
                    .map_err(|source| Error::from_io(op, offset, len, source))?;
                return Ok(completion.buf);
            }
            if monotonic_ns() >= until_ns {
                let why = hang_reason("it", self.bound);
                let source = io::Error::new(io::ErrorKind::TimedOut, why);
                let Started {
                    op, offset, len, ..
                } = *started;
                return Err(Error::from_io(op, offset, len, source));
            }
            let wait = if until_ns == u64::MAX {
                Wait::Forever
            } else {
                Wait::Until(until_ns)
            };
            self.device.backend.wait(&mut self.ended, wait);
        }
    }

    fn start_read(&mut self, offset: u64, len: u64) -> Started {
        let buf = self.pool.get(to_usize(len));
        self.start(IoOp::Read, offset, Some(buf))
    }

    /// Reads whole units.
    pub(crate) fn read(&mut self, offset: u64, len: u64) -> Result<AlignedBuf, Error> {
        let started = self.start_read(offset, len);
        self.finish(&started)?.ok_or(Error::Closed)
    }

    /// Writes whole units.
    pub(super) fn write(&mut self, offset: u64, buf: AlignedBuf) -> Result<(), Error> {
        let started = self.start(IoOp::Write, offset, Some(buf));
        self.finish(&started).map(|_| ())
    }

    /// Writes bytes that fill whole units.
    pub(super) fn write_bytes(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let buf = self.pool.copy_of(bytes);
        self.write(offset, buf)
    }

    /// Flips bits of a byte of the device.
    pub(super) fn flip(&mut self, byte: u64, mask: u8) -> Result<(), Error> {
        let in_unit = byte % self.unit();
        let mut bytes = self.read(byte - in_unit, self.unit())?;
        if let Some(byte) = bytes.get_mut(to_usize(in_unit)) {
            *byte ^= mask;
        }
        self.write(byte - in_unit, bytes)
    }

    /// Makes what was read or written the state that a power cut leaves.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let started = self.start(IoOp::Flush, 0, None);
        self.finish(&started).map(|_| ())
    }

    pub(crate) fn unit(&self) -> u64 {
        u64::from(self.device.alignment)
    }

    pub(super) fn pool(&self) -> &Arc<BufferPool> {
        self.pool
    }
}

/// Reads a range from front to back, and the next piece already while one is dealt with.
pub(super) struct Stream {
    next: u64,
    end: u64,
    under_way: Option<Started>,
}

impl Stream {
    /// The bytes `start..end`, whole units.
    pub(super) fn new(start: u64, end: u64) -> Self {
        Self {
            next: start,
            end,
            under_way: None,
        }
    }

    fn read_ahead(&mut self, io: &mut BlockingIo<'_>) {
        let len = self.end.saturating_sub(self.next).min(PIECE);
        self.under_way = (len > 0).then(|| io.start_read(self.next, len));
        self.next += len;
    }

    /// The next piece; `None`: the range has ended.
    pub(super) fn next(&mut self, io: &mut BlockingIo<'_>) -> Result<Option<AlignedBuf>, Error> {
        if self.under_way.is_none() {
            self.read_ahead(io);
        }
        let Some(started) = self.under_way.take() else {
            return Ok(None);
        };
        self.read_ahead(io);
        io.finish(&started)
    }
}

/// Reads the ring from some position on.
pub(super) struct RingReader {
    geometry: Geometry,
    stream: Stream,
    window: Option<AlignedBuf>,
    /// Ring position of the window's first byte: start of a unit.
    window_start: u64,
    /// A record that begins in the window before, with what follows it in this one.
    carry: Vec<u8>,
    carry_start: u64,
}

impl RingReader {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self {
            geometry: *geometry,
            stream: Stream::new(0, 0),
            window: None,
            window_start: 0,
            carry: Vec::new(),
            carry_start: 0,
        }
    }

    fn window(&self) -> &[u8] {
        self.window.as_deref().unwrap_or_default()
    }

    /// At least `total` bytes from `position`, or all up to the end of the ring. No record is
    /// longer than what is there after two calls with the same position.
    pub(super) fn at(
        &mut self,
        io: &mut BlockingIo<'_>,
        position: RingPosition,
        total: u64,
    ) -> Result<&[u8], Error> {
        let ring_len = self.geometry.ring_len().0;
        let wanted = ring_len.min(position.0.saturating_add(total));
        let window_end = self.window_start + self.window().len() as u64;
        let carry_end = self.carry_start + self.carry.len() as u64;
        if (self.carry_start..self.window_start).contains(&position.0) && wanted <= carry_end {
            return Ok(from(&self.carry, position.0 - self.carry_start));
        }
        let inside = (self.window_start..window_end).contains(&position.0);
        if inside && wanted <= window_end {
            return Ok(from(self.window(), position.0 - self.window_start));
        }
        if inside {
            self.carry = from(self.window(), position.0 - self.window_start).to_vec();
            self.carry_start = position.0;
            self.advance(io, window_end, wanted)?;
            let more = self.window.as_deref().unwrap_or_default();
            let more = more.get(..MAX_RECORD_LEN).unwrap_or(more);
            self.carry.extend_from_slice(more);
            return Ok(&self.carry);
        }
        self.carry = Vec::new();
        if self.window.is_some() && position.0 == window_end {
            self.advance(io, window_end, wanted)?;
        } else {
            let start = position.0 - position.0 % io.unit();
            let byte = |position| self.geometry.ring_byte(RingPosition(position)).0;
            self.stream = Stream::new(byte(start), byte(ring_len));
            self.advance(io, start, wanted)?;
        }
        Ok(from(self.window(), position.0 - self.window_start))
    }

    /// Goes on to the window that begins at `start`; it reaches `wanted`, or is as long as ever.
    fn advance(&mut self, io: &mut BlockingIo<'_>, start: u64, wanted: u64) -> Result<(), Error> {
        self.window = match self.stream.next(io) {
            // A sector behind the end of the journal may be unreadable, and does not matter.
            Err(Error::Io { .. }) => {
                let ring_len = self.geometry.ring_len().0;
                let end = wanted.next_multiple_of(io.unit()).min(ring_len);
                let byte = |position| self.geometry.ring_byte(RingPosition(position)).0;
                self.stream = Stream::new(byte(end), byte(ring_len));
                Some(io.read(byte(start), end.saturating_sub(start))?)
            }
            piece => piece?,
        };
        self.window_start = start;
        Ok(())
    }

    /// The end of the journal at `tail`, with the seal behind it if there is one.
    pub(super) fn end(
        &self,
        io: &mut BlockingIo<'_>,
        uuid: [u8; 16],
        tail: RingPosition,
    ) -> Result<FoundEnd, Error> {
        let unit = io.unit();
        let ring_len = self.geometry.ring_len().0;
        let start = tail.0 - tail.0 % unit;
        let end = (tail.0 + SEALED_END_LEN as u64)
            .next_multiple_of(unit)
            .min(ring_len);
        let bytes = io.read(self.geometry.ring_byte(RingPosition(start)).0, end - start)?;
        let tail_bytes = bytes.get(..to_usize(tail.0 - start)).unwrap_or_default();
        let behind = from(&bytes, tail.0 - start + END_OF_RECORDS_LEN as u64);
        Ok(FoundEnd::new(
            (uuid, ring_len),
            tail,
            tail_bytes.to_vec(),
            behind,
        ))
    }

    /// The end of a journal that is taken to end at `tail`, whatever stands there. What lies in
    /// other units is not read: it may be unreadable.
    pub(super) fn cut(
        &self,
        io: &mut BlockingIo<'_>,
        tail: RingPosition,
    ) -> Result<FoundEnd, Error> {
        let unit = io.unit();
        let before = tail.0 % unit;
        let mut tail_bytes = Vec::new();
        if before > 0 {
            let start = self.geometry.ring_byte(RingPosition(tail.0 - before)).0;
            let bytes = io.read(start, unit)?;
            tail_bytes.extend_from_slice(bytes.get(..to_usize(before)).unwrap_or_default());
        }
        Ok(FoundEnd {
            tail,
            tail_bytes,
            seal: None,
            mended: false,
            unsettled: None,
            run: None,
        })
    }
}

/// Takes the bytes of the tail's page before its unit, too, so that writes can be whole pages; if
/// they can be read: they may lie before the head, where nobody cares.
pub(super) fn widen(io: &mut BlockingIo<'_>, geometry: &Geometry, end: &mut FoundEnd) {
    let ring_start = geometry.ring_byte(RingPosition(0)).0;
    let unit = ring_start + end.tail.0 - end.tail_bytes.len() as u64;
    let page = (unit - unit % PAGE).max(ring_start);
    if page < unit
        && let Ok(bytes) = io.read(page, unit - page)
    {
        end.tail_bytes.splice(..0, bytes.iter().copied());
    }
}

fn from(bytes: &[u8], at: u64) -> &[u8] {
    bytes.get(to_usize(at)..).unwrap_or_default()
}
