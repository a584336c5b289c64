//! Sizes, removals, stores and health.

use lumpscope_proto::v1;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::call::{Client, Repeat, call};
use crate::error::Error;
use crate::id::LumpId;

/// Methods that send one message and get one back.
macro_rules! unary {
    ($($(#[$doc:meta])* $via:ident $method:ident $repeat:ident ($what:literal) $request:ident => $reply:ident;)*) => {
        impl Client {
            $($(#[$doc])*
            ///
            /// # Errors
            /// [`Error::Refused`] with the codes of the `.proto`; those of a connection.
            pub async fn $method(&self, message: v1::$request) -> Result<v1::$reply, Error> {
                call!(self, Repeat::$repeat, $what, |attempt| {
                    let request = attempt.request(message.clone());
                    Ok(self.$via().$method(request).await?.into_inner())
                })
            })*
        }
    };
}
pub(crate) use unary;

unary! {
    /// Removes all lumps of a range, atomically. After a repetition `deleted` comes from the last try.
    lump_store delete_range Always ("the delete of a range") DeleteRangeRequest => DeleteRangeResponse;
    /// Space used, by the lumps of a range and by the store.
    lump_store usage Always ("the usage") UsageRequest => UsageResponse;
}

impl Client {
    /// Exact size of a lump, without its bytes.
    ///
    /// # Errors
    /// [`Error::Refused`] with the codes of the `.proto`; those of a connection.
    pub async fn head(&self, store: &str, id: LumpId) -> Result<v1::HeadResponse, Error> {
        self.head_with(store, id, false).await
    }

    /// As [`Client::head`]; with `checksum` also the CRC-32C that is stored with the lump.
    ///
    /// # Errors
    /// As [`Client::head`].
    pub async fn head_with(
        &self,
        store: &str,
        id: LumpId,
        checksum: bool,
    ) -> Result<v1::HeadResponse, Error> {
        let message = v1::HeadRequest {
            store: store.to_owned(),
            id: Some(id.into()),
            checksum,
            ..Default::default()
        };
        call!(self, Repeat::Always, "the head", |attempt| {
            let request = attempt.request(message.clone());
            Ok(self.lump_store().head(request).await?.into_inner())
        })
    }

    /// Removes a lump. After a repetition `existed` comes from the last try.
    ///
    /// # Errors
    /// [`Error::Refused`] with the codes of the `.proto`; those of a connection.
    pub async fn delete(
        &self,
        store: &str,
        id: LumpId,
        durability: v1::Durability,
    ) -> Result<v1::DeleteResponse, Error> {
        let message = v1::DeleteRequest {
            store: store.to_owned(),
            id: Some(id.into()),
            durability: durability.into(),
            options: None,
        };
        call!(self, Repeat::Always, "the delete", |attempt| {
            let request = attempt.request(message.clone());
            Ok(self.lump_store().delete(request).await?.into_inner())
        })
    }

    /// The stores of the service.
    ///
    /// # Errors
    /// [`Error::Refused`] with the codes of the `.proto`; those of a connection.
    pub async fn stores(&self) -> Result<Vec<v1::StoreInfo>, Error> {
        call!(self, Repeat::Always, "the list of stores", |attempt| {
            let request = attempt.request(v1::ListStoresRequest {});
            let reply = self.lump_store().list_stores(request).await?;
            Ok(reply.into_inner().stores)
        })
    }

    /// True when the store takes every request; without a name, when any store of the service does. This is the
    /// standard health check of gRPC, which needs no token.
    ///
    /// # Errors
    /// [`Error::Refused`] with NOT_FOUND: there is no such store; those of a connection.
    pub async fn serves(&self, store: Option<&str>) -> Result<bool, Error> {
        let service = store.map_or_else(String::new, |name| format!("store/{name}"));
        call!(self, Repeat::Always, "the health check", |attempt| {
            let request = attempt.request(HealthCheckRequest {
                service: service.clone(),
            });
            let reply = self.health().check(request).await?.into_inner();
            Ok(reply.status() == ServingStatus::Serving)
        })
    }
}
