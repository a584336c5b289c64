//! The verbs that wait for room and for the answer.

use super::submit::range_command;
use super::{Store, check_count};
use crate::error::Error;
use crate::lump::LumpId;
use crate::owner::command::StoreCommand;
use crate::payload::{LumpBuf, LumpData};
use crate::request::{
    DeleteManyOutcome, DeleteOutcome, DeleteRangeOutcome, Durability, EmbeddedPage, HeadOutcome,
    ListOutcome, LumpRange, Placement, PutCondition, PutGroup, PutOptions, PutOutcome,
    RangeOutcome, RequestCtx, UsageOutcome,
};

impl Store {
    /// Waiting form of [`Store::submit_put`].
    ///
    /// # Errors
    /// As there.
    pub fn put(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        buf: LumpBuf,
        placement: Placement,
        durability: Durability,
    ) -> Result<PutOutcome, Error> {
        let options = PutOptions {
            placement: Some(placement),
            durability,
            condition: PutCondition::Always,
        };
        self.put_with(ctx, id, buf, options)
    }

    /// Waiting form of [`Store::submit_put_with`].
    ///
    /// # Errors
    /// As there.
    pub fn put_with(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        buf: LumpBuf,
        options: PutOptions,
    ) -> Result<PutOutcome, Error> {
        self.try_call(ctx, |reply| self.put_command(ctx, id, buf, options, reply))
    }

    /// Waiting form of [`Store::submit_put_group`].
    ///
    /// # Errors
    /// As there.
    pub fn put_group(
        &self,
        ctx: RequestCtx,
        group: PutGroup,
        durability: Durability,
    ) -> Result<PutOutcome, Error> {
        self.try_call(ctx, |reply| {
            self.group_command(ctx, group, durability, reply)
        })
    }

    /// Waiting form of [`Store::submit_embedded`].
    ///
    /// # Errors
    /// As there.
    pub fn embedded(&self, range: LumpRange, from: u64) -> Result<EmbeddedPage, Error> {
        let range = range.check()?;
        self.call(RequestCtx::default(), |reply| StoreCommand::Embedded {
            range,
            from,
            reply,
        })
    }

    /// Waiting form of [`Store::submit_get`].
    ///
    /// # Errors
    /// As there.
    pub fn get(&self, ctx: RequestCtx, id: LumpId) -> Result<LumpData, Error> {
        self.call(ctx, |reply| StoreCommand::Get { id, reply })
    }

    /// Waiting form of [`Store::submit_get_range`].
    ///
    /// # Errors
    /// As there.
    pub fn get_range(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        offset: u64,
        len: u64,
    ) -> Result<RangeOutcome, Error> {
        self.call(ctx, |reply| range_command(id, (offset, len), reply))
    }

    /// Waiting form of [`Store::submit_head`].
    ///
    /// # Errors
    /// As there.
    pub fn head(&self, ctx: RequestCtx, id: LumpId) -> Result<HeadOutcome, Error> {
        let sum = false;
        self.call(ctx, |reply| StoreCommand::Head { id, sum, reply })
    }

    /// Waiting form of [`Store::submit_delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        durability: Durability,
    ) -> Result<DeleteOutcome, Error> {
        self.call(ctx, |reply| StoreCommand::Delete {
            id,
            durability,
            reply,
        })
    }

    /// Waiting form of [`Store::submit_delete_many`].
    ///
    /// # Errors
    /// As there.
    pub fn delete_many(
        &self,
        ctx: RequestCtx,
        ids: Vec<LumpId>,
        durability: Durability,
    ) -> Result<DeleteManyOutcome, Error> {
        check_count(&ids)?;
        self.call(ctx, |reply| StoreCommand::DeleteMany {
            ids,
            durability,
            reply,
        })
    }

    /// Waiting form of [`Store::submit_delete_range`].
    ///
    /// # Errors
    /// As there.
    pub fn delete_range(
        &self,
        ctx: RequestCtx,
        start: LumpId,
        end: LumpId,
        durability: Durability,
    ) -> Result<DeleteRangeOutcome, Error> {
        LumpRange {
            start,
            end: Some(end),
        }
        .check()?;
        self.call(ctx, |reply| StoreCommand::DeleteRange {
            start,
            end,
            durability,
            reply,
        })
    }

    /// Waiting form of [`Store::submit_list`].
    ///
    /// # Errors
    /// As there.
    pub fn list(&self, range: LumpRange, limit: usize) -> Result<ListOutcome, Error> {
        let range = range.check()?;
        self.call(RequestCtx::default(), |reply| StoreCommand::List {
            range,
            limit,
            reply,
        })
    }

    /// Waiting form of [`Store::submit_usage`].
    ///
    /// # Errors
    /// As there.
    pub fn usage(&self, range: LumpRange) -> Result<UsageOutcome, Error> {
        let range = range.check()?;
        self.call(RequestCtx::default(), |reply| StoreCommand::Usage {
            range,
            reply,
        })
    }

    /// Waiting form of [`Store::submit_sync`].
    ///
    /// # Errors
    /// As there.
    pub fn sync(&self) -> Result<(), Error> {
        self.call(RequestCtx::default(), |reply| StoreCommand::Sync { reply })
    }
}
