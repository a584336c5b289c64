//! S3 over the objects of the stores, through the same door as gRPC.
//!
//! ```text
//! serve.rs ─▶ body.rs ─▶ signed.rs ─▶ s3s ─────▶ route.rs ───▶ operations.rs ─▶ objects
//!  id, times   patience   what is      signature  operation,    put, get,
//!                         signed                  rights, XML   list, ...
//! ```
//!
//! [s3s](https://docs.rs/s3s) checks signatures of version 4 (in headers, presigned, in chunks) and
//! has the types of documents. Limits, each a setting or named where it is: headers
//! (`max-header-bytes`), a body (`s3-max-body`), XML ([`MAX_XML`]), a signed chunk, user metadata
//! and keys and parts (those of S3, in lumpscope-objects), silence and speed (`body-timeout`,
//! `min-rate`), and memory, of which there is one budget for gRPC and S3 (`put-memory`): who finds
//! none waits for `body-timeout`, then is told to come back (`SlowDown`).

mod access;
mod attributes;
mod body;
mod buckets;
mod call;
mod checks;
mod complete;
mod configure;
mod copy;
mod cors;
mod encoded_words;
mod endpoint;
mod error;
mod form;
#[doc(hidden)]
pub mod fuzzing;
mod get;
mod hosts;
mod inside;
mod lifecycle;
mod list;
mod memory;
mod multipart;
mod operations;
mod parameters;
mod put;
mod reply;
mod route;
mod serve;
mod settings;
mod signed;
mod slow;
mod tags;
mod unserved;
mod unset;
mod whole;
mod xml;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lumpscope_objects::{Ctx, Objects};
use s3s::service::{S3Service, S3ServiceBuilder};
use tracing::{info, warn};

use access::Keys;
use body::Patience;
use endpoint::Endpoint;
use inside::Inside;
use lifecycle::Swept;
use lumpscope_server::S3_XML;
use lumpscope_server::door::HttpLimits;
use lumpscope_server::request::{Budget, Readers};
use lumpscope_server::serve::S3Parts;
use route::{AnyName, Nothing, Router};
use serve::ServeState;

/// Most bytes of a request that is XML: 10,000 parts with checksums have less.
pub const MAX_XML: usize = 4 << 20;
/// Bytes of memory for a byte of such XML: what is read from the shortest of entries.
const XML_GROWS: u64 = 8;
/// Time between two looks for forgotten uploads.
const EXPIRY_LOOK: Duration = Duration::from_secs(600);
/// Bytes of a body that are taken from a socket at once: with the 16 KiB that are enough for
/// headers, a body of 1 MiB is 64 reads.
const BUFFER_BYTES: usize = 128 << 10;

/// Serves S3 on a listener of the service until the service stops; handed to
/// [`Service::start_with`](lumpscope_server::serve::Service::start_with).
#[must_use]
pub fn serve(parts: S3Parts) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(run(parts))
}

async fn run(parts: S3Parts) {
    let S3Parts {
        listener,
        entrance,
        config,
        sources,
        requests,
        stopped,
    } = parts;
    let endpoint = Endpoint {
        scheme: match config.tls_cert {
            Some(_) => "https",
            None => "http",
        },
        stores: sources.stores.clone(),
        only: config.s3_store.clone(),
        domains: config.s3_domain.clone().into(),
        creating: Arc::default(),
        put_memory: sources.put_memory.clone(),
        max_body: config.s3_max_body.0,
        etag: config.s3_etag,
        memory_wait: config.body_timeout,
        settings: Arc::default(),
        look: Arc::default(),
    };
    let keys = Keys {
        reloader: Arc::clone(&sources.door.reloader),
        memory: Budget::new(S3_XML),
        wait: config.body_timeout,
    };
    let router = Router { endpoint, keys };
    let max_header_bytes = config.max_header_bytes.as_u32();
    let serving = ServeState {
        s3: signatures(&router),
        router: router.clone(),
        requests,
        readers: Readers::new(config.body_timeout, config.min_rate.0),
        patience: Patience {
            silence: config.body_timeout,
            min_rate: config.min_rate.0,
            max: config.s3_max_body.0,
        },
        max_header_bytes,
    };
    let limits = HttpLimits {
        header_timeout: config.handshake_timeout,
        buffer_bytes: BUFFER_BYTES.max(config.max_header_bytes.as_usize()),
    };
    let age = config.s3_upload_expiry;
    tokio::select! {
        () = serve::serve(listener, entrance, limits, serving, stopped) => {}
        () = expire(&router.endpoint, age) => {}
    }
}

/// Checks signatures, and hands requests on to the router.
fn signatures(router: &Router) -> S3Service {
    let mut builder = S3ServiceBuilder::new(Nothing);
    builder.set_auth(router.keys.clone());
    builder.set_validation(AnyName);
    builder.set_route(router.clone());
    builder.build()
}

/// Gives up uploads that were begun so long ago, and deletes what expires by the rules of its
/// bucket, now and then; never returns.
async fn expire(endpoint: &Endpoint, age: Duration) {
    loop {
        // Rules that were just made are looked at soon.
        let _ = tokio::time::timeout(EXPIRY_LOOK, endpoint.look.notified()).await;
        // At the same time: a disk that hangs holds up its own store only.
        let served = endpoint.served();
        let looks = served.iter().map(|inside| expire_in(endpoint, inside, age));
        futures_util::future::join_all(looks).await;
    }
}

async fn expire_in(endpoint: &Endpoint, Inside { named, objects }: &Inside, age: Duration) {
    let store = &named.name;
    if named.store.is_frozen() {
        return;
    }
    if !age.is_zero() {
        match objects.expire(Ctx::default(), age).await {
            Ok(0) => {}
            Ok(uploads) => info!(store, uploads, "forgotten uploads given up"),
            Err(error) => warn!(store, %error, "forgotten uploads not given up: trying again"),
        }
    }
    sweep(endpoint, store, objects).await;
}

/// Deletes what expires by the rules of its bucket.
async fn sweep(endpoint: &Endpoint, store: &str, objects: &Objects) {
    for bucket in objects.buckets() {
        let bucket = bucket.name;
        let Some(rules) = endpoint.settings.lifecycle(objects, &bucket) else {
            continue;
        };
        let now_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now_ms = u64::try_from(now_ms.as_millis()).unwrap_or(u64::MAX);
        let swept = lifecycle::sweep(objects, (&bucket, &rules), now_ms).await;
        match swept {
            Ok(Swept {
                objects: 0,
                uploads: 0,
            }) => {}
            Ok(Swept { objects, uploads }) => {
                info!(
                    store,
                    bucket, objects, uploads, "expired by the rules of the bucket"
                );
            }
            Err(error) => warn!(store, bucket, %error, "not all that expired: trying again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grouped(number: u64) -> String {
        let digits = number.to_string();
        let groups = digits.as_bytes().rchunks(3).rev();
        let groups = groups.map(|group| String::from_utf8_lossy(group).into_owned());
        groups.collect::<Vec<_>>().join(",")
    }

    #[test]
    fn the_limits_are_those_of_the_page() {
        let told = operations::tests::documented("limits");
        let is = |line: usize, limit: String| assert!(told[line][1].starts_with(&limit), "{limit}");
        let xml = format!(
            "{} bytes, counted {XML_GROWS} times",
            grouped(MAX_XML as u64)
        );
        is(1, xml);
        is(2, format!("{} bytes", grouped(body::MAX_HELD)));
        let (most, at_once) = buckets::DELETES;
        is(3, format!("{}, {at_once} at a time", grouped(most as u64)));
        is(4, grouped(u64::from(list::MAX_KEYS.unsigned_abs())));
        is(5, grouped(u64::from(buckets::MAX_BUCKETS.unsigned_abs())));
        is(6, format!("{} seconds", grouped(signed::LONGEST)));
        is(9, format!("{} bytes", grouped(form::MAX_FIELDS as u64)));
        let sums = format!("{} bytes as base64", grouped(whole::MAX_OF_PARTS as u64));
        is(10, sums);
        let (most, key, value) = tags::MOST;
        let wanted = format!("{most}; a key of 1 to {key} characters, a value of {value}");
        is(11, wanted);
        is(12, format!("{};", cors::MOST));
        let (rules, id) = lifecycle::MOST;
        is(13, format!("{};", grouped(rules as u64)));
        let drained = grouped(body::MAX_DRAINED as u64);
        let seconds = body::DRAIN_TIME.as_secs();
        let wanted = format!("read for {seconds} seconds, at most {drained} bytes");
        is(14, wanted);
        assert!(told[13][1].ends_with(&format!("an ID of {id} characters")));
    }
}
